// The frame codec: what it reads, what it refuses, and that no small message makes it build a large object.
#include "frame.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "bounds.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

// A length-delimited field.
std::string Field(uint32_t number, const std::string & content) {
  return Varint(number << 3 | 2) + Varint(content.size()) + content;
}

std::string LaneField() { return Field(1, Field(1, std::string(kSessionBytes, 's'))); }

Code ParseCode(const std::string & packet) {
  std::vector<ParsedFrame> frames;
  const Status status = ParsePacket(packet, &frames);
  EXPECT_EQ(status.ok(), !frames.empty());
  return status.code();
}

// One frame of these raw fields.
Code RawCode(const std::string & fields) { return ParseCode(Field(1, LaneField() + fields)); }

Frame WithLane() {
  Frame frame;
  frame.mutable_lane()->set_session(std::string(kSessionBytes, 's'));
  frame.mutable_lane()->set_epoch(1);
  return frame;
}

Code FrameCode(const Frame & frame) {
  size_t offset = 0;
  return ParseCode(EncodePacket(frame, &offset));
}

FrameRules Rules() {
  FrameRules rules;
  rules.lane = {std::string(kSessionBytes, 's'), 1, 0};
  rules.turns = rules.activations = rules.loop = true;
  rules.width = 64;
  rules.max_positions = 100;
  rules.n_vocab = 1000;
  return rules;
}

Frame Activation(uint32_t n, pb::DType dtype = pb::DTYPE_F32, uint64_t bytes_each = 64 * 4) {
  Frame frame = WithLane();
  frame.set_seq(1);
  frame.set_phase(pb::PHASE_DECODE);
  frame.set_n_tokens(n);
  auto * tensor = frame.add_tensors();
  tensor->set_name(kBoundaryTensor);
  tensor->set_dtype(dtype);
  tensor->add_shape(n);
  tensor->add_shape(64);
  tensor->set_data(std::string(n * bytes_each, '\0'));
  return frame;
}

TEST(Frame, gives_the_frame_and_its_own_bytes) {
  const Frame sent = Activation(2);
  size_t offset = 0;
  const std::string packet = EncodePacket(sent, &offset);
  std::vector<ParsedFrame> frames;
  ASSERT_TRUE(ParsePacket(packet, &frames).ok());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].raw, std::string_view(packet).substr(offset));
  EXPECT_EQ(frames[0].frame.SerializeAsString(), sent.SerializeAsString());
  EXPECT_TRUE(CheckFrame(frames[0].frame, Rules()).ok());
}

TEST(Frame, ignores_unknown_fields) {
  EXPECT_EQ(RawCode(Field(200, "new") + Varint(201 << 3) + Varint(7)), Code::kOk);
  EXPECT_EQ(ParseCode(Field(9, "new") + Field(1, LaneField())), Code::kOk);
}

TEST(Frame, refuses_bytes_that_are_no_packet) {
  for (const std::string & bytes :
       {std::string(), std::string("\xff"), std::string("\x0a\xff\xff\xff\xff\x0f", 6), std::string(100, '\xff'),
        std::string("\x08\x01", 2), std::string("\x0a\x02\x0a", 3), std::string("\0\0", 2)}) {
    EXPECT_EQ(ParseCode(bytes), Code::kMalformed);
  }
  EXPECT_EQ(RawCode(std::string("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12)), Code::kMalformed);
  EXPECT_EQ(ParseCode(Field(1, "")), Code::kMalformed);
}

TEST(Frame, refuses_groups_however_deep) {
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "\x0b";  // start of group 1
  EXPECT_EQ(ParseCode(nested), Code::kMalformed);
  EXPECT_EQ(RawCode(nested), Code::kMalformed);
}

TEST(Frame, refuses_a_million_empty_messages) {
  std::string frames, tensors, times, details, logprobs, biases, unknown;
  for (int i = 0; i < 500000; ++i) {
    frames += std::string("\x0a\0", 2);
    tensors += std::string("\x52\0", 2);
    times += std::string("\x6a\0", 2);
    details += std::string("\x22\0", 2);
    logprobs += std::string("\x72\0", 2);
    biases += std::string("\x42\0", 2);
    unknown += std::string("\x78\x01", 2);
  }
  EXPECT_EQ(ParseCode(frames), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(tensors), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(times), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(logprobs), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(unknown), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(Field(22, details)), Code::kLimitExceeded);
  EXPECT_EQ(RawCode(Field(18, Field(5, biases))), Code::kLimitExceeded);
}

TEST(Frame, refuses_a_message_that_stands_twice) {
  EXPECT_EQ(RawCode(Field(22, "") + Field(22, "")), Code::kMalformed);
  EXPECT_EQ(ParseCode(Field(1, LaneField() + LaneField())), Code::kMalformed);
}

TEST(Frame, refuses_more_than_a_packet_or_a_payload_holds) {
  EXPECT_EQ(ParseCode(std::string(kMaxPacketBytes + 1, '\0')), Code::kFrameTooLarge);
  Frame frame = Activation(1);
  frame.mutable_tensors(0)->set_data(std::string(kMaxPayloadBytes + 1, '\0'));
  EXPECT_EQ(FrameCode(frame), Code::kFrameTooLarge);
  frame.mutable_tensors(0)->set_data(std::string(kMaxPacketBytes, '\0'));
  size_t offset = 0;
  EXPECT_TRUE(EncodePacket(frame, &offset).empty());
}

TEST(Frame, refuses_frames_of_two_kinds_or_none) {
  Frame frame = Activation(1);
  frame.mutable_credit()->set_bytes(1);
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
  frame = Activation(1);
  frame.clear_phase();
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
  frame = WithLane();
  frame.set_ack(4);
  EXPECT_EQ(FrameCode(frame), Code::kOk);
  frame.clear_lane();
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
}

TEST(Frame, ties_seq_to_the_kind) {
  Frame frame = Activation(1);
  frame.clear_seq();
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
  frame = WithLane();
  frame.set_seq(1);
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
  frame.mutable_error()->set_code(pb::ERROR_CODE_INTERNAL);
  EXPECT_EQ(FrameCode(frame), Code::kMalformed);
}

TEST(Frame, holds_messages_to_their_limits) {
  Frame frame = WithLane();
  frame.set_seq(1);
  auto * turn = frame.mutable_turn();
  turn->set_turn(1);
  turn->set_n_tokens(1);
  EXPECT_EQ(FrameCode(frame), Code::kOk);
  turn->set_grammar(std::string(kMaxGrammarBytes + 1, 'x'));
  EXPECT_EQ(FrameCode(frame), Code::kLimitExceeded);
  turn->clear_grammar();
  turn->set_logprobs(kMaxLogprobs + 1);
  EXPECT_EQ(FrameCode(frame), Code::kTurnInvalid);
  turn->set_logprobs(-2);
  EXPECT_EQ(FrameCode(frame), Code::kTurnInvalid);
  turn->set_logprobs(-1);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.f, 101.f}) {
    turn->mutable_sampling()->set_temperature(bad);
    EXPECT_EQ(FrameCode(frame), Code::kTurnInvalid);
  }
  frame.clear_turn();
  for (size_t i = 0; i <= kMaxTurnTokens; ++i) frame.mutable_turn_tokens()->add_ids(1);
  EXPECT_EQ(FrameCode(frame), Code::kLimitExceeded);
  frame.clear_turn_tokens();
  frame.clear_seq();
  frame.mutable_error()->set_message(std::string(kMaxErrorMessageBytes + 1, 'x'));
  EXPECT_EQ(FrameCode(frame), Code::kLimitExceeded);
}

TEST(Frame, checks_tensors_in_the_order_of_the_specification) {
  const auto code = [](const std::function<void(pb::Tensor &)> & change) {
    Frame frame = Activation(2);
    change(*frame.mutable_tensors(0));
    return CheckFrame(frame, Rules()).code();
  };
  EXPECT_EQ(code([](pb::Tensor & t) { t.clear_shape(); }), Code::kShapeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) {
              for (int i = 0; i < 3; ++i) t.add_shape(1);
            }),
            Code::kShapeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) { t.set_shape(1, 0); }), Code::kShapeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) {
              t.clear_shape();
              for (int i = 0; i < 4; ++i) t.add_shape(UINT32_MAX);
            }),
            Code::kShapeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) { t.set_dtype(pb::DTYPE_UNSPECIFIED); }), Code::kDtypeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) { t.set_dtype(static_cast<pb::DType>(99)); }), Code::kDtypeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) { t.set_dtype(pb::DTYPE_F16); }), Code::kDtypeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) { t.mutable_data()->push_back('x'); }), Code::kSizeMismatch);
  EXPECT_EQ(code([](pb::Tensor & t) { t.clear_data(); }), Code::kSizeMismatch);
  EXPECT_EQ(code([](pb::Tensor & t) { t.set_name("x"); }), Code::kShapeInvalid);
  EXPECT_EQ(code([](pb::Tensor & t) {
              t.set_shape(0, 4);
              t.set_shape(1, 32);
            }),
            Code::kShapeInvalid);
}

TEST(Frame, knows_the_size_of_every_dtype) {
  uint64_t bytes = 0;
  EXPECT_TRUE(TensorBytes(pb::DTYPE_F32, 3, 64, &bytes));
  EXPECT_EQ(bytes, 3u * 64 * 4);
  EXPECT_TRUE(TensorBytes(pb::DTYPE_F16, 3, 64, &bytes));
  EXPECT_EQ(bytes, 3u * 64 * 2);
  EXPECT_TRUE(TensorBytes(pb::DTYPE_Q8_0, 3, 64, &bytes));
  EXPECT_EQ(bytes, 3u * 2 * 34);
  EXPECT_FALSE(TensorBytes(pb::DTYPE_Q8_0, 3, 63, &bytes));
  EXPECT_FALSE(TensorBytes(pb::DTYPE_F32, UINT64_MAX / 2, 64, &bytes));
  EXPECT_FALSE(TensorBytes(pb::DTYPE_UNSPECIFIED, 1, 1, &bytes));
}

TEST(Frame, holds_runs_to_the_session) {
  const auto code = [](const std::function<void(Frame &)> & change) {
    Frame frame = Activation(2);
    change(frame);
    return CheckFrame(frame, Rules()).code();
  };
  EXPECT_EQ(code([](Frame & f) { f.set_pos(98); }), Code::kOk);
  EXPECT_EQ(code([](Frame & f) { f.set_pos(99); }), Code::kPositionInvalid);
  EXPECT_EQ(code([](Frame & f) { f.add_tokens(1); }), Code::kMalformed);
  EXPECT_EQ(code([](Frame & f) {
              f.add_tokens(1);
              f.add_tokens(1000);
            }),
            Code::kTokenInvalid);
  EXPECT_EQ(code([](Frame & f) { f.set_finish(pb::FINISH_END); }), Code::kMalformed);
  EXPECT_EQ(code([](Frame & f) { f.mutable_lane()->set_epoch(2); }), Code::kLaneNotOpen);
  Frame loop = WithLane();
  loop.set_phase(pb::PHASE_LOOP);
  EXPECT_EQ(CheckFrame(loop, Rules()).code(), Code::kPositionInvalid);
  loop.set_finish(pb::FINISH_CANCELLED);
  EXPECT_EQ(CheckFrame(loop, Rules()).code(), Code::kOk);
  loop.set_n_tokens(1);
  loop.add_tokens(5);
  loop.set_pos(100);
  EXPECT_EQ(CheckFrame(loop, Rules()).code(), Code::kOk);
  loop.set_pos(101);
  EXPECT_EQ(CheckFrame(loop, Rules()).code(), Code::kPositionInvalid);
}

TEST(Frame, carries_only_what_the_direction_does) {
  FrameRules nothing = Rules();
  nothing.turns = nothing.activations = nothing.loop = false;
  EXPECT_EQ(CheckFrame(Activation(1), nothing).code(), Code::kRoleInvalid);
  Frame frame = WithLane();
  frame.mutable_turn()->set_n_tokens(1);
  EXPECT_EQ(CheckFrame(frame, nothing).code(), Code::kRoleInvalid);
  EXPECT_EQ(CheckFrame(frame, Rules()).code(), Code::kOk);
  frame.mutable_turn()->set_start(100);
  EXPECT_EQ(CheckFrame(frame, Rules()).code(), Code::kContextFull);
  frame = WithLane();
  frame.mutable_turn_tokens()->add_ids(1000);
  EXPECT_EQ(CheckFrame(frame, Rules()).code(), Code::kTokenInvalid);
  frame = WithLane();
  frame.mutable_open();
  EXPECT_EQ(CheckFrame(frame, Rules()).code(), Code::kMalformed);
  frame = WithLane();
  frame.mutable_error();
  EXPECT_EQ(CheckFrame(frame, nothing).code(), Code::kOk);
}

}  // namespace
}  // namespace meshnet
