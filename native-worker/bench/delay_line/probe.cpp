// Measures a line from inside its namespaces: round trips of datagrams and of frames over TCP, and bulk transfers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../seam_tcp.h"

namespace {

using meshnet::bench::Socket;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char * kUsage = R"(usage: meshnet-delay-probe --serve yes | --to ADDRESS

--serve answers until stdin closes; it prints {"ready":true} first. --to does what each line on stdin asks for and prints
one line for it:
  {"do":"udp","n":N,"bytes":N,"gap_us":N}     {"us":[...],"lost":N}   echoes of datagrams, one after another
  {"do":"frames","n":N,"bytes":N,"gap_us":N}  {"us":[...]}            echoes of whole frames over one new TCP connection;
      "warm_bytes":N                          before them, untimed, one frame of this size
  {"do":"bulk","bytes":N}                     {"ms":N,"intact":B}     one TCP transfer until its receipt has come back
)";

constexpr uint16_t kUdpPort = 7007, kFramePort = 7008, kBulkPort = 7009;
constexpr int kUdpWaitS = 5;
constexpr uint64_t kMaxRounds = 1'000'000;
constexpr uint64_t kMaxDatagram = 65507, kMaxFrame = 1 << 20, kMaxBulk = 1ull << 33;
constexpr size_t kBlock = 1 << 16;

void Require(bool ok, const char * what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

sockaddr_in Address(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = ip;
  return address;
}

int Bound(int type, uint16_t port) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  const int on = 1;
  const sockaddr_in any = Address(htonl(INADDR_ANY), port);
  Require(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0, "SO_REUSEADDR");
  Require(bind(fd, reinterpret_cast<const sockaddr *>(&any), sizeof(any)) == 0, "bind");
  return fd;
}

int Connected(int type, uint32_t ip, uint16_t port) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  Require(fd >= 0, "socket");
  const sockaddr_in peer = Address(ip, port);
  Require(connect(fd, reinterpret_cast<const sockaddr *>(&peer), sizeof(peer)) == 0, "connect");
  const int on = 1;
  if (type == SOCK_STREAM) Require(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  return fd;
}

// FNV-1a over any number of blocks.
class Hash {
 public:
  void Add(const char * data, size_t n) {
    for (size_t i = 0; i < n; ++i) value_ = (value_ ^ static_cast<unsigned char>(data[i])) * 0x100000001b3;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

void EchoDatagrams(int fd) {
  std::vector<char> buffer(kMaxDatagram);
  for (;;) {
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    const ssize_t n = recvfrom(fd, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr *>(&from), &length);
    if (n >= 0) sendto(fd, buffer.data(), static_cast<size_t>(n), 0, reinterpret_cast<const sockaddr *>(&from), length);
  }
}

// The length first, then as many bytes; the receipt is their hash.
void TakeBulk(Socket & socket) {
  uint64_t left = 0;
  if (!socket.ReadAll(&left, sizeof(left))) return;
  Hash hash;
  std::vector<char> block(kBlock);
  while (left > 0) {
    const size_t n = std::min<uint64_t>(left, kBlock);
    if (!socket.ReadAll(block.data(), n)) return;
    hash.Add(block.data(), n);
    left -= n;
  }
  const uint64_t receipt = hash.value();
  socket.WriteAll(&receipt, sizeof(receipt));
}

void Accept(int listener, const std::function<void(Socket &)> & serve) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::thread([fd, serve] {
      try {
        Socket socket(fd);
        serve(socket);
      } catch (const std::exception & e) {
        std::fprintf(stderr, "meshnet-delay-probe: %s\n", e.what());
      }
    }).detach();
  }
}

int Serve() {
  const int udp = Bound(SOCK_DGRAM, kUdpPort), frames = Bound(SOCK_STREAM, kFramePort), bulk = Bound(SOCK_STREAM, kBulkPort);
  Require(listen(frames, SOMAXCONN) == 0 && listen(bulk, SOMAXCONN) == 0, "listen");
  std::thread([udp] { EchoDatagrams(udp); }).detach();
  std::thread([frames] { Accept(frames, meshnet::bench::EchoTcp); }).detach();
  std::thread([bulk] { Accept(bulk, TakeBulk); }).detach();
  std::puts("{\"ready\":true}");
  std::fflush(stdout);
  std::string ignored;
  while (std::getline(std::cin, ignored)) continue;
  // The threads wait in the kernel for ever: there is nothing to join.
  std::_Exit(0);
}

uint64_t Number(const json & request, const char * name, uint64_t highest) {
  const uint64_t value = request.value(name, uint64_t{0});
  if (value > highest) throw std::runtime_error(std::string(name) + " is above " + std::to_string(highest));
  return value;
}

void Gap(uint64_t us) {
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

json Datagrams(uint32_t ip, const json & request) {
  const uint64_t n = Number(request, "n", kMaxRounds), gap_us = Number(request, "gap_us", kMaxRounds);
  std::vector<char> out(std::max<uint64_t>(Number(request, "bytes", kMaxDatagram), sizeof(uint64_t))), in(kMaxDatagram);
  const int fd = Connected(SOCK_DGRAM, ip, kUdpPort);
  Socket owner(fd);
  const timeval wait{kUdpWaitS, 0};
  Require(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0, "SO_RCVTIMEO");
  json us = json::array();
  uint64_t lost = 0;
  for (uint64_t i = 0; i < n; ++i) {
    Gap(gap_us);
    std::memcpy(out.data(), &i, sizeof(i));
    const auto begin = Clock::now();
    Require(send(fd, out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()), "send");
    ssize_t got = 0;
    do {
      got = recv(fd, in.data(), in.size(), 0);
    } while (got >= 0 && std::memcmp(in.data(), &i, sizeof(i)) != 0);  // an echo that came after its time
    if (got < 0) ++lost;
    else us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return {{"us", us}, {"lost", lost}};
}

// Its length, then as many bytes.
std::string Frame(uint64_t n) {
  const auto length = static_cast<uint32_t>(n);
  return std::string(reinterpret_cast<const char *>(&length), sizeof(length)).append(length, 'x');
}

json Frames(uint32_t ip, const json & request) {
  const uint64_t n = Number(request, "n", kMaxRounds), gap_us = Number(request, "gap_us", kMaxRounds);
  const std::string warm = Frame(Number(request, "warm_bytes", kMaxFrame));
  const std::string message = Frame(Number(request, "bytes", kMaxFrame));
  std::string back;
  Socket socket(Connected(SOCK_STREAM, ip, kFramePort));
  if (request.contains("warm_bytes")) meshnet::bench::RoundTripTcp(socket, warm, &back);
  json us = json::array();
  for (uint64_t i = 0; i < n; ++i) {
    Gap(gap_us);
    const auto begin = Clock::now();
    meshnet::bench::RoundTripTcp(socket, message, &back);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (back != message) throw std::runtime_error("a frame came back changed");
  }
  return {{"us", us}};
}

json Bulk(uint32_t ip, const json & request) {
  const uint64_t bytes = Number(request, "bytes", kMaxBulk);
  Socket socket(Connected(SOCK_STREAM, ip, kBulkPort));
  Hash hash;
  std::vector<char> block(kBlock);
  uint64_t state = bytes + 1;
  const auto begin = Clock::now();
  socket.WriteAll(&bytes, sizeof(bytes));
  for (uint64_t left = bytes; left > 0;) {
    const size_t n = std::min<uint64_t>(left, kBlock);
    for (size_t i = 0; i < kBlock; i += sizeof(state)) {
      state = state * 6364136223846793005 + 1442695040888963407;
      std::memcpy(block.data() + i, &state, sizeof(state));
    }
    hash.Add(block.data(), n);
    socket.WriteAll(block.data(), n);
    left -= n;
  }
  uint64_t receipt = 0;
  if (!socket.ReadAll(&receipt, sizeof(receipt))) throw std::runtime_error("no receipt");
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return {{"ms", ms}, {"intact", receipt == hash.value()}};
}

json Do(uint32_t ip, const std::string & line) {
  try {
    const json request = json::parse(line);
    const std::string what = request.value("do", "");
    if (what == "udp") return Datagrams(ip, request);
    if (what == "frames") return Frames(ip, request);
    if (what == "bulk") return Bulk(ip, request);
    return {{"error", "unknown request"}};
  } catch (const std::exception & e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main(int argc, char ** argv) {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  in_addr peer{};
  const std::string option = argc == 3 ? argv[1] : "";
  try {
    if (option == "--serve") return Serve();
  } catch (const std::exception & e) {
    std::fprintf(stderr, "meshnet-delay-probe: %s\n", e.what());
    return 1;
  }
  if (option != "--to" || inet_pton(AF_INET, argv[2], &peer) != 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Do(peer.s_addr, line).dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
