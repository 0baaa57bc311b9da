#include "seam_client.h"

#include <gtest/gtest.h>

#include <chrono>

#include "status_report.h"

namespace meshnet {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

struct SeamClient::Inbox : StreamEvents {
  void OnPacket(std::string_view bytes) override {
    std::lock_guard lock(mu);
    packets.emplace_back(bytes);
    news.notify_all();
  }
  void OnEnd(const grpc::Status & status, bool) override {
    std::lock_guard lock(mu);
    end = status;
    news.notify_all();
  }

  std::mutex mu;
  std::condition_variable news;
  std::deque<std::string> packets;
  std::optional<grpc::Status> end;
};

SeamClient::SeamClient(std::shared_ptr<grpc::Channel> channel, const Metadata & metadata)
    : channel_(std::move(channel)),
      inbox_(std::make_shared<Inbox>()),
      stream_(DialStream(channel_, metadata, traffic_, inbox_)) {}

SeamClient::~SeamClient() {
  stream_->Abort();
  EXPECT_TRUE(traffic_->WaitNoDialled(std::chrono::steady_clock::now() + kPatience));
}

void SeamClient::SendBytes(std::string packet) { stream_->Send(ToBuffer(std::move(packet))); }

void SeamClient::SendFrame(Frame frame) {
  frame.mutable_lane()->set_session(lane_.session);
  frame.mutable_lane()->set_epoch(lane_.epoch);
  frame.mutable_lane()->set_stage(lane_.stage);
  size_t offset = 0;
  SendBytes(EncodePacket(frame, &offset));
}

void SeamClient::SendNext(Frame frame) {
  frame.mutable_lane()->set_session(lane_.session);
  frame.mutable_lane()->set_epoch(lane_.epoch);
  frame.mutable_lane()->set_stage(lane_.stage);
  frame.set_seq(next_seq_++);
  size_t offset = 0;
  std::string packet = EncodePacket(frame, &offset);
  sent_.Add(std::string_view(packet).substr(offset));
  SendBytes(std::move(packet));
}

void SeamClient::SendClose() {
  Frame frame;
  frame.mutable_close()->set_n_frames(next_seq_ - 1);
  frame.mutable_close()->set_digest(sent_.Value());
  SendNext(std::move(frame));
}

std::optional<Frame> SeamClient::Next(std::chrono::seconds patience) {
  std::string packet;
  {
    std::unique_lock lock(inbox_->mu);
    inbox_->news.wait_for(lock, patience, [&] { return !inbox_->packets.empty() || inbox_->end; });
    if (inbox_->packets.empty()) return std::nullopt;
    packet = std::move(inbox_->packets.front());
    inbox_->packets.pop_front();
  }
  std::vector<ParsedFrame> frames;
  const Status status = ParsePacket(packet, &frames);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(frames.size(), 1u);
  if (frames.size() != 1) return std::nullopt;
  if (frames[0].frame.seq() != 0 && !frames[0].frame.has_close()) {
    EXPECT_EQ(frames[0].frame.seq(), n_received_ + 1);
    ++n_received_;
    received_.Add(frames[0].raw);
  }
  return std::move(frames[0].frame);
}

std::optional<Frame> SeamClient::NextOf(FrameKind kind) {
  while (auto frame = Next()) {
    FrameKind is = FrameKind::kAck;
    EXPECT_TRUE(KindOf(*frame, &is).ok());
    if (is == kind) return frame;
    if (is == FrameKind::kError) {
      ADD_FAILURE() << "error " << CodeName(CodeFrom(frame->error().code())) << ": " << frame->error().message();
    }
  }
  return std::nullopt;
}

Code SeamClient::NextError(std::chrono::seconds patience) {
  while (auto frame = Next(patience)) {
    if (frame->has_error()) return CodeFrom(frame->error().code());
  }
  return Code::kOk;
}

grpc::Status SeamClient::WaitEnd() {
  std::unique_lock lock(inbox_->mu);
  const bool ended = inbox_->news.wait_for(lock, kPatience, [&] { return inbox_->end.has_value(); });
  EXPECT_TRUE(ended) << "the call does not end";
  return inbox_->end.value_or(grpc::Status::OK);
}

}  // namespace meshnet
