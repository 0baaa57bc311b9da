// Seam: this worker's end of one Activation Seam: it outlives its streams, keeps their order, and is the engine's sink.
// Threads: every method from any thread, never blocking. The FrameSink methods never call back into the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "frame.h"
#include "port.h"
#include "seam_open.h"
#include "seam_receiver.h"
#include "seam_sender.h"
#include "status.h"
#include "stream.h"
#include "timer.h"

namespace meshnet {

// The lane behind a seam, as Engine offers it (see engine.h for each). Called without any lock of the seam that
// its FrameSink methods take.
class LaneHost {
 public:
  virtual ~LaneHost() = default;
  virtual Status Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) = 0;
  virtual Status Deliver(const LaneKey & key, Port from, Frame frame) = 0;
  virtual void PortClosed(const LaneKey & key, Port port) = 0;
  virtual void PortFailed(const LaneKey & key, Port port, const Status & why) = 0;
  virtual void Wake() = 0;
};

class Seam : public FrameSink, public std::enable_shared_from_this<Seam> {
 public:
  // Both outlive the seam. `refused` counts what this end refuses.
  Seam(SeamTerms terms, LaneHost * host, Timer * timer, std::function<void(Code)> refused);
  ~Seam() override = default;

  const SeamTerms & terms() const { return terms_; }

  // Listener: takes over the stream on which `open` came, answers Opened and what has to be sent again. The caller has
  // checked the ticket and the peer. CheckOpen's codes, kAttemptStale, kResumeLost; then the seam is as it was, except
  // that after kResumeLost its lane has failed.
  Status Accept(const std::shared_ptr<Stream> & stream, const meshnet::seam::v1::Open & open);

  // Dialler: retires the stream of a lower attempt and gives the packet to send first. kAttemptStale, kStreamEnded.
  Status BeginAttempt(uint32_t attempt, std::string * packet);
  // Dialler, on the answer.
  Status Connected(const std::shared_ptr<Stream> & stream, uint32_t attempt, const meshnet::seam::v1::Opened & opened);
  // The lane ends when it had a stream before.
  void DialFailed(uint32_t attempt, const Status & why);

  // The lane has ended: tells the other end if nobody did, and lets the stream go.
  void Shut(const Status & why);

  void Send(Frame frame) override;
  bool ReserveCredit(uint64_t payload_bytes) override;
  void Consumed(uint64_t payload_bytes) override;
  void SendClose() override;
  uint32_t MaxChunkTokens() const override;

 private:
  class Hearer;  // one stream's events

  void Receive(uint32_t attempt, std::string_view bytes);
  Status ReceiveFrame(uint32_t attempt, ParsedFrame parsed);
  // The stream's own bookkeeping. *fresh: the lane hears of the frame.
  Status Take(uint32_t attempt, const ParsedFrame & parsed, FrameKind kind, bool * fresh);
  void StreamEnded(uint32_t attempt, const grpc::Status & status, bool half_open);
  bool IsCurrent(uint32_t attempt) const;
  // The peer broke the rules, or the stream broke: both are told, once.
  void Fail(const Status & why);
  // The same from a place that must not call the host.
  void FailSoon(const Status & why);
  Status AttachOnce();

  // With mu_ held.
  void Run(const std::shared_ptr<Stream> & stream, uint64_t credit_bytes, const meshnet::seam::v1::Limits & limits,
           const std::vector<grpc::ByteBuffer> & packets);
  Frame ToPeer() const;
  Status Write(Frame frame);
  void WriteError(const Status & why);
  void WriteClose();
  void FinishWhenClosed();
  // Lets the stream go when its queue is empty, and after kLingerMs whatever happens.
  void LetGo();

  const SeamTerms terms_;
  const FrameRules rules_;
  const Port port_;
  LaneHost * const host_;
  Timer * const timer_;
  const std::function<void(Code)> refused_;

  std::mutex deliver_mu_;  // taken before mu_; one packet at a time, whatever stream it came on
  mutable std::mutex mu_;
  std::shared_ptr<Stream> stream_;
  // Of the attempt before, unused, until the other end has answered the new one: it would take its end for ours.
  std::shared_ptr<Stream> retiring_;
  int64_t attempt_ = -1;
  int64_t dead_attempt_ = -1;  // the last one that was given up before its Opened
  SeamSender sender_;
  SeamReceiver receiver_;
  uint32_t max_chunk_tokens_;  // the lower of both ends
  bool attached_ = false;
  bool close_sent_ = false;
  bool close_received_ = false;
  bool ended_ = false;  // no stream will be used any more
};

}  // namespace meshnet
