#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "namespace.h"

namespace meshnet::delay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSweepLimit{5};

using Identity = std::pair<dev_t, ino_t>;

Identity IdentityOf(const struct stat & info) { return {info.st_dev, info.st_ino}; }

// Descriptors of the processes inside: what they name cannot become another process.
std::vector<Fd> ProcessesIn(const std::vector<Identity> & namespaces) {
  std::vector<Fd> found;
  const std::unique_ptr<DIR, int (*)(DIR *)> proc(opendir("/proc"), closedir);
  Require(proc != nullptr, "/proc");
  while (const dirent * entry = readdir(proc.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == getpid()) continue;
    Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    struct stat info{};
    // Looked at after the descriptor is held. A process that has ended has no namespace any more.
    if (process.get() < 0 || stat(("/proc/" + std::string(entry->d_name) + "/ns/net").c_str(), &info) != 0) continue;
    if (std::find(namespaces.begin(), namespaces.end(), IdentityOf(info)) == namespaces.end()) continue;
    found.push_back(std::move(process));
  }
  return found;
}

bool EndedBefore(const Fd & process, Clock::time_point deadline) {
  pollfd watched{process.get(), POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int n = poll(&watched, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

}  // namespace

bool Sweep(const std::vector<int> & net_fds) {
  std::vector<Identity> namespaces;
  for (const int fd : net_fds) {
    struct stat info{};
    Require(fstat(fd, &info) == 0, "a namespace to sweep");
    namespaces.push_back(IdentityOf(info));
  }
  struct stat own{};
  Require(stat("/proc/self/ns/net", &own) == 0, "our own namespace");
  if (std::find(namespaces.begin(), namespaces.end(), IdentityOf(own)) != namespaces.end()) {
    throw std::runtime_error("our own network namespace is not one to sweep");
  }
  const auto deadline = Clock::now() + kSweepLimit;
  // Again until there are none: one may have made another before it died.
  for (;;) {
    const std::vector<Fd> inside = ProcessesIn(namespaces);
    if (inside.empty()) return true;
    for (const Fd & process : inside) syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    for (const Fd & process : inside) {
      if (!EndedBefore(process, deadline)) return false;
    }
  }
}

}  // namespace meshnet::delay
