// Raw TCP on the loopback with TCP_NODELAY: what a seam is held against.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace meshnet::bench {

// A socket that closes with its owner. Failures are std::runtime_error.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(const Socket &) = delete;
  Socket & operator=(const Socket &) = delete;

  int fd() const { return fd_; }
  void WriteAll(const void * data, size_t n);
  // False when the other side closed before the first byte.
  bool ReadAll(void * data, size_t n);

 private:
  const int fd_;
};

int ListenLoopback(uint16_t * port);
int AcceptOne(int listener);
int ConnectLoopback(uint16_t port);

// Sends back every message until the other side closes: 4 bytes of length, then as many.
void EchoTcp(Socket & socket);
// One message there and back, into *back.
void RoundTripTcp(Socket & socket, const std::string & message, std::string * back);

}  // namespace meshnet::bench
