#include "seam_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace meshnet::bench {
namespace {

constexpr uint32_t kMaxMessageBytes = 1 << 20;

void Require(bool ok, const char * what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetNoDelay(int fd) {
  const int on = 1;
  Require(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

}  // namespace

Socket::~Socket() { close(fd_); }

void Socket::WriteAll(const void * data, size_t n) {
  const auto * at = static_cast<const char *>(data);
  while (n > 0) {
    const ssize_t wrote = write(fd_, at, n);
    if (wrote < 0 && errno == EINTR) continue;
    Require(wrote > 0, "write");
    at += wrote;
    n -= static_cast<size_t>(wrote);
  }
}

bool Socket::ReadAll(void * data, size_t n) {
  auto * at = static_cast<char *>(data);
  const size_t wanted = n;
  while (n > 0) {
    const ssize_t got = read(fd_, at, n);
    if (got < 0 && errno == EINTR) continue;
    Require(got >= 0, "read");
    if (got == 0 && n == wanted) return false;
    if (got == 0) throw std::runtime_error("the other side closed inside a message");
    at += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

int ListenLoopback(uint16_t * port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  Require(bind(fd, reinterpret_cast<sockaddr *>(&address), length) == 0, "bind");
  Require(listen(fd, 1) == 0, "listen");
  Require(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) == 0, "getsockname");
  *port = ntohs(address.sin_port);
  return fd;
}

int AcceptOne(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  Require(fd >= 0, "accept");
  SetNoDelay(fd);
  return fd;
}

int ConnectLoopback(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  const sockaddr_in address = Loopback(port);
  Require(connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) == 0, "connect");
  SetNoDelay(fd);
  return fd;
}

void EchoTcp(Socket & socket) {
  uint32_t n = 0;
  std::string message;
  while (socket.ReadAll(&n, sizeof(n))) {
    if (n > kMaxMessageBytes) throw std::runtime_error("a message is too long");
    message.resize(sizeof(n) + n);
    std::memcpy(message.data(), &n, sizeof(n));
    if (!socket.ReadAll(message.data() + sizeof(n), n)) throw std::runtime_error("a message is cut short");
    socket.WriteAll(message.data(), message.size());
  }
}

void RoundTripTcp(Socket & socket, const std::string & message, std::string * back) {
  socket.WriteAll(message.data(), message.size());
  back->resize(message.size());
  if (!socket.ReadAll(back->data(), back->size())) throw std::runtime_error("the echo closed");
}

}  // namespace meshnet::bench
