// AbortGuard: while it lives, a failed assertion of ggml is an exception, so that what a peer sent ends its lane and
// not the worker. Threads: ggml keeps one callback for the process; only one thread at a time holds a guard.
#pragma once

#include <ggml.h>

#include <stdexcept>

namespace meshnet {

class AbortGuard {
 public:
  AbortGuard() : previous_(ggml_set_abort_callback([](const char * what) { throw std::runtime_error(what); })) {}
  ~AbortGuard() { ggml_set_abort_callback(previous_); }
  AbortGuard(const AbortGuard &) = delete;
  AbortGuard & operator=(const AbortGuard &) = delete;

 private:
  ggml_abort_callback_t previous_;
};

}  // namespace meshnet
