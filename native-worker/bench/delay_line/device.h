// The devices of a network namespace. Everything here acts on the namespace that the calling thread is in.
// Threads: safe; no state but the kernel's.
#pragma once

#include <cstdint>

#include "fd.h"

namespace meshnet::delay {

constexpr const char * kTunName = "mesh0";

struct TunSettings {
  uint32_t address = 0;  // host byte order; its network has 24 bits
  int mtu = 1500;
};

// A TUN device, up, and the route to its network: whole IPv4 packets, one a read, nothing before them. It goes with its
// descriptor, which does not block. Throws std::runtime_error with what was refused.
Fd OpenTun(const TunSettings & settings);

void BringLoopbackUp();

}  // namespace meshnet::delay
