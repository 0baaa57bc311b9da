#include "seam.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "bounds.h"
#include "status_report.h"

namespace meshnet {

namespace pb = meshnet::seam::v1;

// Knows which attempt it hears: what a replaced stream still delivers is nobody's.
class Seam::Hearer : public StreamEvents {
 public:
  Hearer(std::shared_ptr<Seam> seam, uint32_t attempt) : seam_(std::move(seam)), attempt_(attempt) {}
  void OnPacket(std::string_view bytes) override { seam_->Receive(attempt_, bytes); }
  void OnEnd(const grpc::Status & status, bool half_open) override { seam_->StreamEnded(attempt_, status, half_open); }

 private:
  const std::shared_ptr<Seam> seam_;
  const uint32_t attempt_;
};

Seam::Seam(SeamTerms terms, LaneHost * host, Timer * timer, std::function<void(Code)> refused)
    : terms_(std::move(terms)),
      rules_(IncomingRules(terms_)),
      port_(PortOf(terms_)),
      host_(host),
      timer_(timer),
      refused_(std::move(refused)),
      receiver_(terms_.credit_bytes),
      max_chunk_tokens_(terms_.max_chunk_tokens) {}

Status Seam::Accept(const std::shared_ptr<Stream> & stream, const pb::Open & open) {
  if (Status s = CheckOpen(terms_, open); !s.ok()) return s;
  std::lock_guard order(deliver_mu_);
  std::shared_ptr<Stream> old;
  Status resumed;
  {
    std::lock_guard lock(mu_);
    if (ended_) return {Code::kLaneNotOpen, "the seam has ended"};
    if (open.attempt() <= attempt_) {
      return {Code::kAttemptStale,
              "attempt " + std::to_string(open.attempt()) + " comes after " + std::to_string(attempt_)};
    }
    std::vector<grpc::ByteBuffer> packets;
    resumed = sender_.ResendFrom(open.next_seq(), &packets);
    if (resumed.ok()) {
      old = std::move(stream_);
      attempt_ = open.attempt();
      Frame answer = ToPeer();
      *answer.mutable_opened() = MakeOpened(terms_, open, receiver_.next_seq(), receiver_.TakeGrant());
      size_t offset = 0;
      packets.insert(packets.begin(), ToBuffer(EncodePacket(answer, &offset)));
      Run(stream, open.credit_bytes(), open.limits(), packets);
    }
  }
  if (old) old->Abort();
  if (resumed.code() == Code::kResumeLost) Fail(resumed);
  if (!resumed.ok()) return resumed;
  if (Status s = AttachOnce(); !s.ok()) Fail(s);
  stream->SetEvents(std::make_shared<Hearer>(shared_from_this(), open.attempt()));
  return {};
}

Status Seam::BeginAttempt(uint32_t attempt, std::string * packet) {
  std::lock_guard order(deliver_mu_);
  std::lock_guard lock(mu_);
  if (ended_) return {Code::kStreamEnded, "the seam has ended"};
  if (attempt <= attempt_) {
    return {Code::kAttemptStale, "attempt " + std::to_string(attempt) + " comes after " + std::to_string(attempt_)};
  }
  attempt_ = attempt;
  if (stream_) retiring_ = std::move(stream_);
  stream_ = nullptr;
  Frame first = ToPeer();
  *first.mutable_open() = MakeOpen(terms_, attempt, receiver_.next_seq(), receiver_.TakeGrant());
  size_t offset = 0;
  *packet = EncodePacket(first, &offset);
  return {};
}

Status Seam::Connected(const std::shared_ptr<Stream> & stream, uint32_t attempt, const pb::Opened & opened) {
  if (Status s = CheckOpened(terms_, attempt, opened); !s.ok()) return s;
  std::shared_ptr<Stream> old;
  {
    std::lock_guard order(deliver_mu_);
    std::lock_guard lock(mu_);
    if (ended_) return {Code::kStreamEnded, "the seam has ended"};
    if (attempt != attempt_ || attempt == dead_attempt_) return {Code::kAttemptStale, "the attempt was given up"};
    std::vector<grpc::ByteBuffer> packets;
    if (Status s = sender_.ResendFrom(opened.next_seq(), &packets); !s.ok()) return s;
    Run(stream, opened.credit_bytes(), opened.limits(), packets);
    old = std::move(retiring_);
  }
  if (old) old->Abort();
  if (Status s = AttachOnce(); !s.ok()) {
    Fail(s);
    return s;
  }
  stream->SetEvents(std::make_shared<Hearer>(shared_from_this(), attempt));
  return {};
}

void Seam::DialFailed(uint32_t attempt, const Status & why) {
  {
    std::lock_guard lock(mu_);
    if (attempt != attempt_) return;
    dead_attempt_ = attempt;  // a late Opened changes nothing
    if (!attached_) return;
  }
  Fail(why);
}

void Seam::Shut(const Status & why) {
  std::lock_guard lock(mu_);
  if (ended_) return;
  if (!why.ok()) WriteError(why);
  if (!why.ok() || !stream_) return LetGo();
  if (!close_sent_) WriteClose();
  FinishWhenClosed();
}

void Seam::Send(Frame frame) {
  std::lock_guard lock(mu_);
  if (ended_) return;
  const bool last = frame.has_error();
  if (last) frame.mutable_error()->set_message(SafeText(frame.error().message(), kMaxErrorMessageBytes));
  if (Status s = Write(std::move(frame)); !s.ok()) FailSoon(s);
  if (last) LetGo();
}

bool Seam::ReserveCredit(uint64_t payload_bytes) {
  std::lock_guard lock(mu_);
  return sender_.Reserve(payload_bytes);
}

uint32_t Seam::MaxChunkTokens() const {
  std::lock_guard lock(mu_);
  return max_chunk_tokens_;
}

void Seam::Consumed(uint64_t payload_bytes) {
  std::lock_guard lock(mu_);
  // Without a stream the next Open or Opened says it.
  if (ended_ || !stream_) return receiver_.Keep(payload_bytes);
  const uint64_t grant = receiver_.Consumed(payload_bytes);
  if (grant == 0) return;
  Frame frame;
  frame.mutable_credit()->set_bytes(grant);
  if (Status s = Write(std::move(frame)); !s.ok()) FailSoon(s);
}

void Seam::SendClose() {
  std::lock_guard lock(mu_);
  if (ended_ || close_sent_) return;
  WriteClose();
  FinishWhenClosed();
}

void Seam::Receive(uint32_t attempt, std::string_view bytes) {
  std::lock_guard order(deliver_mu_);
  if (!IsCurrent(attempt)) return;
  std::vector<ParsedFrame> frames;
  Status s = ParsePacket(bytes, &frames);
  if (s.ok() && frames.size() != 1) s = Status(Code::kMalformed, "packing was not agreed");
  if (s.ok()) s = ReceiveFrame(attempt, std::move(frames.front()));
  if (!s.ok()) Fail(s);
}

Status Seam::ReceiveFrame(uint32_t attempt, ParsedFrame parsed) {
  FrameKind kind;
  if (Status s = KindOf(parsed.frame, &kind); !s.ok()) return s;
  if (Status s = CheckFrame(parsed.frame, rules_); !s.ok()) return s;
  bool fresh = false;
  if (Status s = Take(attempt, parsed, kind, &fresh); !s.ok()) return s;
  if (!fresh) return {};
  switch (kind) {
    case FrameKind::kCredit:
      host_->Wake();
      return {};
    case FrameKind::kClose: {
      host_->PortClosed(terms_.lane, port_);
      std::lock_guard lock(mu_);
      FinishWhenClosed();
      return {};
    }
    case FrameKind::kError: {
      // The lane hears why it ends; the stream has nothing more to say.
      {
        std::lock_guard lock(mu_);
        LetGo();
      }
      const Status why = FromError(parsed.frame.error());
      if (!host_->Deliver(terms_.lane, port_, std::move(parsed.frame)).ok()) host_->PortFailed(terms_.lane, port_, why);
      return {};
    }
    default:
      return host_->Deliver(terms_.lane, port_, std::move(parsed.frame));
  }
}

Status Seam::Take(uint32_t attempt, const ParsedFrame & parsed, FrameKind kind, bool * fresh) {
  const Frame & frame = parsed.frame;
  std::lock_guard lock(mu_);
  if (ended_ || attempt != attempt_) return {};
  const bool prefill = kind == FrameKind::kRun && frame.phase() == pb::PHASE_PREFILL;
  if (!prefill) {
    if (Status s = receiver_.CountExempt(SeamReceiver::Clock::now()); !s.ok()) return s;
  }
  if (frame.ack() != 0) {
    if (Status s = sender_.Acked(frame.ack()); !s.ok()) return s;
  }
  if (kind == FrameKind::kCredit) {
    *fresh = true;
    sender_.AddCredit(frame.credit().bytes());
    return {};
  }
  if (!IsSequenced(kind)) {
    *fresh = kind == FrameKind::kError;
    return {};
  }
  const bool next = frame.seq() == receiver_.next_seq();
  if (next && close_received_) return {Code::kMalformed, "a frame follows Close"};
  if (next && kind == FrameKind::kClose) {
    if (frame.close().n_frames() != receiver_.n_accepted() || frame.close().digest() != receiver_.digest()) {
      return {Code::kDigestMismatch, "Close names " + std::to_string(frame.close().n_frames()) + " frames, " +
                                         std::to_string(receiver_.n_accepted()) + " were accepted, or other bytes"};
    }
  }
  if (Status s = receiver_.Accept(frame.seq(), parsed.raw, prefill ? PayloadBytes(frame) : 0, fresh); !s.ok()) return s;
  if (*fresh && kind == FrameKind::kClose) close_received_ = true;
  return receiver_.ack_due() ? Write(Frame()) : Status();
}

void Seam::StreamEnded(uint32_t attempt, const grpc::Status & status, bool half_open) {
  {
    std::lock_guard lock(mu_);
    if (ended_ || attempt != attempt_) return;
    if (close_received_ && half_open) return;  // our own Close is still to come
  }
  Fail({Code::kStreamEnded, "the stream ended without Close: " + status.error_message()});
}

bool Seam::IsCurrent(uint32_t attempt) const {
  std::lock_guard lock(mu_);
  return !ended_ && attempt == attempt_;
}

void Seam::Fail(const Status & why) {
  bool attached = false;
  {
    std::lock_guard lock(mu_);
    if (ended_) return;
    attached = attached_;
    WriteError(why);
    LetGo();
  }
  refused_(why.code());
  if (attached) host_->PortFailed(terms_.lane, port_, why);
}

void Seam::FailSoon(const Status & why) {
  timer_->Post([self = shared_from_this(), why] { self->Fail(why); });
}

Status Seam::AttachOnce() {
  {
    std::lock_guard lock(mu_);
    if (attached_) return {};
    attached_ = true;
  }
  if (Status s = host_->Attach(terms_.lane, port_, shared_from_this()); !s.ok()) return s;
  return CarriesLoop(terms_) ? host_->Attach(terms_.lane, Port::kLoop, shared_from_this()) : Status();
}

void Seam::Run(const std::shared_ptr<Stream> & stream, uint64_t credit_bytes, const pb::Limits & limits,
               const std::vector<grpc::ByteBuffer> & packets) {
  stream_ = stream;
  sender_.SetCredit(credit_bytes);
  if (limits.max_chunk_tokens() != 0) {
    max_chunk_tokens_ = std::min(terms_.max_chunk_tokens, limits.max_chunk_tokens());
  }
  for (const auto & packet : packets) stream_->Send(packet);
}

Frame Seam::ToPeer() const {
  Frame frame;
  frame.mutable_lane()->set_session(terms_.lane.session);
  frame.mutable_lane()->set_epoch(terms_.lane.epoch);
  frame.mutable_lane()->set_stage(PeerStage(terms_));
  return frame;
}

Status Seam::Write(Frame frame) {
  FrameKind kind;
  if (Status s = KindOf(frame, &kind); !s.ok()) return s;
  *frame.mutable_lane() = ToPeer().lane();
  frame.set_ack(receiver_.TakeAck());
  frame.set_seq(IsSequenced(kind) ? sender_.next_seq() : 0);
  size_t offset = 0;
  std::string packet = EncodePacket(frame, &offset);
  if (packet.empty()) return {Code::kFrameTooLarge, "a frame of this worker passes the limit of a packet"};
  const grpc::ByteBuffer buffer = ToBuffer(std::move(packet));
  const bool stuck = stream_ && stream_->queued() >= kMaxQueuedFrames;
  if (stream_ && !stuck) stream_->Send(buffer);
  if (IsSequenced(kind)) {
    // After the send: hashing takes as long as half of the way, and the frame is under way meanwhile.
    grpc::Slice slice;
    if (!buffer.TrySingleSlice(&slice).ok()) return {Code::kInternal, "a packet in pieces"};
    const auto raw = std::string_view(reinterpret_cast<const char *>(slice.begin()), slice.size()).substr(offset);
    const bool prefill = kind == FrameKind::kRun && frame.phase() == pb::PHASE_PREFILL;
    sender_.Count(raw);
    if (Status s = sender_.Keep(buffer, raw.size(), prefill ? PayloadBytes(frame) : 0); !s.ok()) return s;
  }
  return stuck ? Status(Code::kRateExceeded, "the other end reads nothing") : Status();
}

void Seam::WriteError(const Status & why) {
  if (!stream_) return;
  Frame frame = ToPeer();
  *frame.mutable_error() = ToError(why, terms_.lane.stage);
  size_t offset = 0;
  stream_->Send(ToBuffer(EncodePacket(frame, &offset)));
}

void Seam::WriteClose() {
  Frame frame;
  frame.mutable_close()->set_n_frames(sender_.n_sent());
  frame.mutable_close()->set_digest(sender_.digest());
  close_sent_ = true;
  if (Status s = Write(std::move(frame)); !s.ok()) FailSoon(s);
  timer_->After(kLingerMs, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Fail({Code::kStreamEnded, "no Close came back"});
  });
}

void Seam::FinishWhenClosed() {
  if (!ended_ && close_sent_ && close_received_) LetGo();
}

void Seam::LetGo() {
  ended_ = true;
  if (retiring_) timer_->Post([old = std::move(retiring_)] { old->Abort(); });
  retiring_ = nullptr;
  if (!stream_) return;
  stream_->Finish();
  timer_->After(kLingerMs, [stream = std::move(stream_)] { stream->Abort(); });
  stream_ = nullptr;
}

}  // namespace meshnet
