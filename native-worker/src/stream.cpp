#include "stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

namespace meshnet {

grpc::ByteBuffer ToBuffer(std::string packet) {
  auto * owned = new std::string(std::move(packet));
  grpc::Slice slice(
      owned->data(), owned->size(), [](void * p) { delete static_cast<std::string *>(p); }, owned);
  return grpc::ByteBuffer(&slice, 1);
}

void Traffic::DialledBegins() {
  std::lock_guard lock(mu_);
  ++dialled_;
}

void Traffic::DialledEnded() {
  std::lock_guard lock(mu_);
  --dialled_;
  ended_.notify_all();
}

bool Traffic::WaitNoDialled(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mu_);
  return ended_.wait_until(lock, deadline, [&] { return dialled_ == 0; });
}

void Stream::SetEvents(std::shared_ptr<StreamEvents> events) {
  bool late = false;
  {
    std::lock_guard lock(mu_);
    events_ = events;
    late = told_end_;
  }
  if (late && events) events->OnEnd(grpc::Status(grpc::StatusCode::CANCELLED, "the call has ended"), false);
}

std::shared_ptr<StreamEvents> Stream::events() const {
  std::lock_guard lock(mu_);
  return events_;
}

void Stream::Send(grpc::ByteBuffer packet) {
  {
    std::lock_guard lock(mu_);
    if (finish_wanted_ || done_) return;
    queue_.push_back(std::move(packet));
  }
  Pump();
}

void Stream::Finish(grpc::Status status) {
  {
    std::lock_guard lock(mu_);
    if (finish_wanted_ || done_) return;
    finish_wanted_ = true;
    finish_status_ = std::move(status);
  }
  Pump();
}

void Stream::Abort() {
  {
    std::lock_guard lock(mu_);
    if (done_) return;
    queue_.clear();
    if (!finish_wanted_) finish_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "aborted");
    finish_wanted_ = true;
    Cancel();
  }
  Pump();
}

size_t Stream::queued() const {
  std::lock_guard lock(mu_);
  return queue_.size();
}

// At most one write at a time; then the end. An operation is started outside the lock, and the flags that were set
// under it keep every other thread from ending the call meanwhile.
void Stream::Pump() {
  enum class Step { kNone, kWrite, kEnd, kRelease } step = Step::kNone;
  grpc::Status status;
  {
    std::lock_guard lock(mu_);
    if (done_ || writing_ || released_) return;
    if (!queue_.empty() && !writing_ended_) {
      writing_ = true;
      writing_buffer_ = std::move(queue_.front());
      queue_.pop_front();
      step = Step::kWrite;
    } else if (starting_ > 0) {
      return;
    } else if (finish_wanted_ && !writing_ended_) {
      writing_ended_ = true;
      writing_ = true;
      status = finish_status_;
      step = Step::kEnd;
    } else if (read_ended_ && side_ == Side::kClient) {
      released_ = true;
      step = Step::kRelease;
    }
  }
  if (step == Step::kWrite) {
    traffic_->bytes_out += writing_buffer_.Length();
    ++traffic_->packets_out;
    StartWriting(&writing_buffer_);
  } else if (step == Step::kEnd) {
    EndWriting(status);
  } else if (step == Step::kRelease) {
    Release();
  }
}

void Stream::Read() {
  {
    std::lock_guard lock(mu_);
    if (done_ || released_ || read_ended_) return;
    // After its Finish a server may not start anything.
    if (writing_ended_ && side_ == Side::kServer) return;
    ++starting_;
  }
  StartReading(&reading_);
  {
    std::lock_guard lock(mu_);
    --starting_;
  }
  Pump();
}

void Stream::ReadDone(bool ok) {
  if (!ok) {
    {
      std::lock_guard lock(mu_);
      read_ended_ = true;
    }
    Pump();
    return;
  }
  traffic_->bytes_in += reading_.Length();
  ++traffic_->packets_in;
  grpc::Slice slice;
  if (!reading_.TrySingleSlice(&slice).ok() && !reading_.DumpToSingleSlice(&slice).ok()) slice = grpc::Slice();
  reading_.Clear();
  if (const auto hearer = events()) hearer->OnPacket({reinterpret_cast<const char *>(slice.begin()), slice.size()});
  Read();
}

void Stream::WriteDone(bool ok) {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    writing_buffer_.Clear();
    if (!ok) queue_.clear();
  }
  Pump();
}

void Stream::WritingEnded() {
  {
    std::lock_guard lock(mu_);
    writing_ = false;
  }
  Pump();
}

void Stream::Ended(const grpc::Status & status, bool half_open) {
  std::shared_ptr<StreamEvents> hearer;
  {
    std::lock_guard lock(mu_);
    if (told_end_) return;
    told_end_ = true;
    hearer = events_;
  }
  if (hearer) hearer->OnEnd(status, half_open);
}

void Stream::Closing() {
  std::lock_guard lock(mu_);
  done_ = true;
  queue_.clear();
}

void Stream::Done() {
  std::shared_ptr<Stream> last;
  std::shared_ptr<StreamEvents> events;
  std::lock_guard lock(mu_);
  events = std::move(events_);
  last = std::move(self_);
}

namespace {

class ServerStream final : public Stream, public grpc::ServerGenericBidiReactor {
 public:
  ServerStream(grpc::GenericCallbackServerContext * context, std::shared_ptr<Traffic> traffic)
      : Stream(Side::kServer, std::move(traffic)), context_(context) {}

  void Run(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    Read();
  }

 private:
  void StartReading(grpc::ByteBuffer * into) override { StartRead(into); }
  void StartWriting(const grpc::ByteBuffer * packet) override { StartWrite(packet); }
  void EndWriting(const grpc::Status & status) override { grpc::ServerGenericBidiReactor::Finish(status); }
  void Cancel() override { context_->TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) Ended(grpc::Status::OK, !context_->IsCancelled());
    ReadDone(ok);
  }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override {
    Ended(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"), false);
    Stream::Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
  }
  void OnDone() override {
    Closing();
    Ended(grpc::Status::OK, false);
    Done();
  }

  grpc::GenericCallbackServerContext * context_;
};

class ClientStream final : public Stream, public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientStream(const std::shared_ptr<grpc::Channel> & channel, std::shared_ptr<Traffic> traffic)
      : Stream(Side::kClient, std::move(traffic)), call_(std::make_unique<Call>(channel)) {}

  void Run(std::shared_ptr<Stream> self, const std::vector<std::pair<std::string, std::string>> & metadata) {
    self_ = std::move(self);
    traffic()->DialledBegins();
    for (const auto & [key, value] : metadata) call_->context.AddMetadata(key, value);
    call_->stub.PrepareBidiStreamingCall(&call_->context, kStreamMethod, grpc::StubOptions(), this);
    AddHold();
    Read();
    StartCall();
  }

 private:
  // What refers to the channel.
  struct Call {
    explicit Call(const std::shared_ptr<grpc::Channel> & channel) : stub(channel) {}
    grpc::GenericStub stub;
    grpc::ClientContext context;
  };

  void StartReading(grpc::ByteBuffer * into) override { StartRead(into); }
  void StartWriting(const grpc::ByteBuffer * packet) override { StartWrite(packet); }
  void EndWriting(const grpc::Status &) override { StartWritesDone(); }
  void Cancel() override { call_->context.TryCancel(); }
  void Release() override { RemoveHold(); }

  void OnReadDone(bool ok) override { ReadDone(ok); }
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnWritesDoneDone(bool) override { WritingEnded(); }
  void OnDone(const grpc::Status & status) override {
    Closing();
    call_.reset();
    const auto last = self_;  // until this returns
    Ended(status, false);
    Done();
    traffic()->DialledEnded();
  }

  std::unique_ptr<Call> call_;
};

}  // namespace

grpc::ServerGenericBidiReactor * AcceptStream(
    grpc::GenericCallbackServerContext * context, std::shared_ptr<Traffic> traffic,
    const std::function<std::shared_ptr<StreamEvents>(const std::shared_ptr<Stream> &, grpc::Status *)> & connect) {
  auto stream = std::make_shared<ServerStream>(context, std::move(traffic));
  grpc::Status refusal;
  auto events = connect(stream, &refusal);
  stream->SetEvents(events);
  stream->Run(stream);
  if (!events) stream->Stream::Finish(refusal);
  return stream.get();
}

std::shared_ptr<Stream> DialStream(const std::shared_ptr<grpc::Channel> & channel,
                                   const std::vector<std::pair<std::string, std::string>> & metadata,
                                   std::shared_ptr<Traffic> traffic, std::shared_ptr<StreamEvents> events) {
  auto stream = std::make_shared<ClientStream>(channel, std::move(traffic));
  stream->SetEvents(std::move(events));
  stream->Run(stream, metadata);
  return stream;
}

}  // namespace meshnet
