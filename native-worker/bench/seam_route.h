// One node's part of the benchmark's route A, B, A: real seams with an echo in place of the engines.
// Threads: one thread calls; the streams have theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "certificate.h"
#include "port.h"

namespace meshnet::bench {

// The route of one frame size: A is stages 0 and 2, B is stage 1, so that a whole activation frame goes both ways.
// Both seams share one connection.
struct RouteSpec {
  std::string session;
  std::string up_ticket, down_ticket;  // of B's ends towards stage 0 and stage 2
  uint32_t width = 0;                  // f32 elements of the residual
};

std::string NewSession();
std::string NewTicket();

// B: listens, and hands each frame from its receiving thread to the echo's thread, which sends it on, as an engine would.
class EchoNode {
 public:
  EchoNode();
  ~EchoNode();

  const Certificate & certificate() const;
  // Only that peer is let in.
  uint16_t Listen(const std::string & peer_sha256);
  void Add(const RouteSpec & spec);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A: dials both seams of each route, sends from stage 0 and waits at stage 2. Failures are std::runtime_error.
class PingNode {
 public:
  PingNode();
  ~PingNode();

  const Certificate & certificate() const;
  void Connect(const RouteSpec & spec, const std::string & endpoint, const std::string & peer_certificate);
  // One frame there and back, with its payload copied in at the start. Returns what came.
  Frame RoundTrip(const RouteSpec & spec, const std::string & payload);
  // Orderly Close both ways: each end checks count and digest of all that came.
  void Close(const RouteSpec & spec);
  // REQUIRES: every route is closed.
  void WaitEnded();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshnet::bench
