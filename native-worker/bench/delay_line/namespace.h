// Namespace: a network namespace without a name in the file system, with its loopback up and one TUN device in it.
// Threads: not safe; the calling thread visits the namespace and comes back.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device.h"

namespace meshnet::delay {

using Sysctls = std::vector<std::pair<std::string, std::string>>;  // name with dots, value

// It lives as long as this object, or a process inside; then the kernel takes everything away.
class Namespace {
 public:
  // The sysctls are set before the device is there. Throws std::runtime_error with what was refused.
  static Namespace Create(const TunSettings & settings, const Sysctls & sysctls);

  uint32_t address() const { return address_; }
  int net_fd() const { return net_.get(); }
  int tun_fd() const { return tun_.get(); }
  // Packets that the kernel dropped since we did not read them in time.
  uint64_t DeviceDrops() const;
  // Their values inside; those that this kernel has not are left out. Throws as Create does.
  Sysctls Read(const std::vector<std::string> & names) const;

 private:
  Namespace(uint32_t address, Fd net, Fd tun, Fd statistics)
      : address_(address), net_(std::move(net)), tun_(std::move(tun)), statistics_(std::move(statistics)) {}

  uint32_t address_;
  Fd net_, tun_, statistics_;
};

// Kills what runs in these namespaces (this process aside) and waits until it has ended. False: some was there still
// when the time was over.
bool Sweep(const std::vector<int> & net_fds);

}  // namespace meshnet::delay
