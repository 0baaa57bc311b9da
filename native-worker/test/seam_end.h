// SeamEnd: one worker's edge without an engine: a TLS listener, tickets, a dialler, and a lane that only takes notes.
// Threads: the test's thread; notes come from gRPC's.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "certificate.h"
#include "seam.h"
#include "seam_client.h"
#include "service.h"
#include "service_dial.h"
#include "tickets.h"
#include "timer.h"
#include "tls.h"

namespace meshnet {

// Takes down what the seam tells its lane.
class NotedLane final : public LaneHost {
 public:
  struct Note {
    enum class Kind { kAttached, kDelivered, kClosed, kFailed, kWoken } kind;
    Port port = Port::kUp;
    Frame frame{};
    Code code = Code::kOk;
  };

  Status Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) override;
  Status Deliver(const LaneKey & key, Port from, Frame frame) override;
  void PortClosed(const LaneKey & key, Port port) override;
  void PortFailed(const LaneKey & key, Port port, const Status & why) override;
  void Wake() override;

  // The next note of that kind, others are dropped; fails the test after ten seconds.
  Note Next(Note::Kind kind);
  std::shared_ptr<FrameSink> sink() const;
  size_t n_notes() const;

 private:
  void Add(Note note);

  mutable std::mutex mu_;
  std::condition_variable news_;
  std::deque<Note> notes_;
  size_t n_notes_ = 0;
  std::shared_ptr<FrameSink> sink_;
};

class SeamEnd {
 public:
  explicit SeamEnd(uint32_t handshake_ms = kHandshakeMs);
  ~SeamEnd();

  // A lane with one seam end; the peer is expected by its certificate.
  std::shared_ptr<Seam> AddLane(const SeamTerms & terms, const std::string & peer_sha256);
  std::string ticket() const { return ticket_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // To this end's listener, as somebody with that certificate.
  std::shared_ptr<grpc::Channel> ChannelAs(const Certificate & certificate) const;
  SeamClient::Metadata metadata() const { return {{"meshnet-ticket-bin", ticket_}}; }

  Certificate certificate;
  NotedLane lane;
  std::shared_ptr<PeerSet> peers = std::make_shared<PeerSet>();
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  Timer timer;
  Tickets tickets{peers};
  std::unique_ptr<Dialler> dialler;
  std::atomic<int> n_refused{0};

 private:
  std::string ticket_;
  std::unique_ptr<SeamService> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// A route of two stages that meet at layer 2 of 4, 32 elements wide.
SeamTerms TailTerms();
SeamTerms HeadTerms();
// The head's Open to the tail.
Frame UpstreamOpen(uint32_t attempt, uint64_t next_seq = 1);
// A prefill or decode run of n positions.
Frame MakeRun(seam::v1::Phase phase, uint32_t pos, uint32_t n);

}  // namespace meshnet
