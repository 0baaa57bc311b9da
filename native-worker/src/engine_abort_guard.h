// AbortGuard: while one lives, a failed assertion of ggml is an exception, so that what a peer sent ends its lane and
// not the worker. Threads: any, several guards at a time; ggml keeps one callback for the process, and the last guard
// puts the old one back.
#pragma once

#include <ggml.h>

#include <mutex>
#include <stdexcept>

namespace meshnet {

class AbortGuard {
 public:
  AbortGuard() {
    const std::lock_guard lock(mutex_);
    if (n_guards_++ > 0) return;
    previous_ = ggml_set_abort_callback([](const char * what) { throw std::runtime_error(what); });
  }
  ~AbortGuard() {
    const std::lock_guard lock(mutex_);
    if (--n_guards_ == 0) ggml_set_abort_callback(previous_);
  }
  AbortGuard(const AbortGuard &) = delete;
  AbortGuard & operator=(const AbortGuard &) = delete;

 private:
  static inline std::mutex mutex_;
  static inline int n_guards_ = 0;
  static inline ggml_abort_callback_t previous_ = nullptr;
};

}  // namespace meshnet
