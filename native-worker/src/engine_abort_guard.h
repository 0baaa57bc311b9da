// AbortGuard: while a thread holds one, a failed assertion of ggml on that thread is an exception, so that what a peer
// sent ends its lane and not the worker. On all others a failed assertion ends the process as ever: an exception out of
// a decode would leave the threads that compute with it waiting for one.
// Threads: any, each for itself.
#pragma once

#include <ggml.h>

#include <cstdio>
#include <stdexcept>

namespace meshnet {

class AbortGuard {
 public:
  AbortGuard() {
    // ggml keeps one callback for the process.
    [[maybe_unused]] static const ggml_abort_callback_t before = ggml_set_abort_callback(OnAbort);
    n_held_++;
  }
  ~AbortGuard() { n_held_--; }
  AbortGuard(const AbortGuard &) = delete;
  AbortGuard & operator=(const AbortGuard &) = delete;

 private:
  // ggml ends the process when this returns.
  static void OnAbort(const char * what) {
    if (n_held_ > 0) throw std::runtime_error(what);
    std::fprintf(stderr, "%s\n", what);
  }

  static inline thread_local int n_held_ = 0;
};

}  // namespace meshnet
