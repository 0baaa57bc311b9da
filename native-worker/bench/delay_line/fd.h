// Fd: a file descriptor that is closed with its owner, and how system calls fail here.
// Threads: a value type; no shared state.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace meshnet::delay {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd && other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd & operator=(Fd &&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

inline void Require(bool ok, const std::string & what) {
  if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

inline Fd Open(const std::string & path, int flags) {
  Fd fd(open(path.c_str(), flags | O_CLOEXEC));
  Require(fd.get() >= 0, path);
  return fd;
}

}  // namespace meshnet::delay
