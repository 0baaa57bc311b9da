#include "namespace.h"

#include <sched.h>

#include <algorithm>
#include <sstream>

namespace meshnet::delay {
namespace {

constexpr const char * kHere = "/proc/thread-self/ns/net";

// The thread is in another namespace until the end of the visit: in a new one, or in that of a descriptor.
class Visit {
 public:
  Visit() : home_(Open(kHere, O_RDONLY)) { Require(unshare(CLONE_NEWNET) == 0, "new network namespace"); }
  explicit Visit(const Fd & net) : home_(Open(kHere, O_RDONLY)) {
    Require(setns(net.get(), CLONE_NEWNET) == 0, "enter a network namespace");
  }
  ~Visit() {
    // Nothing that follows would be true in another namespace.
    if (setns(home_.get(), CLONE_NEWNET) != 0) _exit(1);
  }
  Visit(const Visit &) = delete;
  Visit & operator=(const Visit &) = delete;

 private:
  Fd home_;
};

std::string SysctlPath(std::string name) {
  if (name.rfind("net.", 0) != 0 || name.find('/') != std::string::npos || name.find("..") != std::string::npos) {
    throw std::runtime_error("not a sysctl of a network namespace: " + name);
  }
  std::replace(name.begin(), name.end(), '.', '/');
  return "/proc/sys/" + name;
}

// From the beginning: such files are made anew by each read there.
std::string ReadAll(const Fd & fd, const std::string & what) {
  std::string text(4096, '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  Require(n >= 0, what);
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace

Namespace Namespace::Create(const TunSettings & settings, const Sysctls & sysctls) {
  const Visit visit;
  Fd net = Open(kHere, O_RDONLY);
  for (const auto & [name, value] : sysctls) {
    const Fd file = Open(SysctlPath(name), O_WRONLY);
    Require(write(file.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size()), name + "=" + value);
  }
  BringLoopbackUp();
  Fd tun = OpenTun(settings);
  return {settings.address, std::move(net), std::move(tun), Open("/proc/thread-self/net/dev", O_RDONLY)};
}

uint64_t Namespace::DeviceDrops() const {
  // A line a device: the name, eight figures of what it received, then of what it sent: bytes, packets, errors, drops.
  constexpr int kSentDrops = 8 + 3;
  std::istringstream lines(ReadAll(statistics_, "device statistics"));
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).find(kTunName) == std::string::npos) continue;
    std::istringstream figures(line.substr(colon + 1));
    uint64_t value = 0;
    for (int i = 0; i <= kSentDrops; ++i) figures >> value;
    return figures ? value : 0;
  }
  return 0;
}

Sysctls Namespace::Read(const std::vector<std::string> & names) const {
  const Visit visit(net_);
  Sysctls found;
  for (const std::string & name : names) {
    const std::string path = SysctlPath(name);
    if (access(path.c_str(), R_OK) != 0) continue;
    std::string value = ReadAll(Open(path, O_RDONLY), name);
    while (!value.empty() && value.back() == '\n') value.pop_back();
    std::replace(value.begin(), value.end(), '\t', ' ');
    found.emplace_back(name, value);
  }
  return found;
}

}  // namespace meshnet::delay
