#include "lane_stand.h"

#include <gtest/gtest.h>

#include "lane_bundle.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_UNSPECIFIED;
using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_LOOP;
using seam::v1::PHASE_PREFILL;

std::string Describe(const Frame & f) {
  std::string s;
  if (f.has_turn()) s = "turn " + std::to_string(f.turn().turn());
  if (f.has_turn_tokens()) s = "ids " + std::to_string(f.turn_tokens().ids_size());
  if (f.has_cancel()) s = "cancel " + std::to_string(f.cancel().turn());
  if (f.phase() == PHASE_PREFILL) s = "prefill " + std::to_string(f.pos()) + "+" + std::to_string(f.n_tokens());
  if (f.phase() == PHASE_DECODE) s = "decode " + std::to_string(f.pos());
  if (f.phase() == PHASE_LOOP) {
    s = "loop " + std::to_string(f.pos());
    if (f.tokens_size() > 0) s += "=" + std::to_string(f.tokens(0));
    if (f.finish() != FINISH_UNSPECIFIED) s += " finish " + std::to_string(f.finish());
  }
  if (f.chunk_end()) s += " end";
  return s + " b" + std::to_string(f.branch());
}

}  // namespace

void Sink::Send(Frame frame) { log_->push_back(name_ + ": " + Describe(frame)); }

bool Sink::ReserveCredit(uint64_t bytes) {
  if (credit < bytes) return false;
  credit -= bytes;
  return true;
}

Status Host::Truncate(int32_t seq, int32_t keep) {
  if (keep < min_rewind) return {Code::kRewindLost, ""};
  log_->push_back("truncate " + std::to_string(seq) + " to " + std::to_string(keep));
  return {};
}

Stand::Stand(bool head, bool tail, uint32_t n_stages, uint32_t stage) : host(&log) {
  LaneSpec spec{.params = {.key = {"session", 1, stage}, .n_stages = n_stages, .positions = 32},
                .head = head,
                .tail = tail,
                .n_embd = kWidth,
                .n_vocab = kVocab,
                .n_ubatch = 8,
                .seq = 3,
                .step_deadline_us = 1000};
  lane = std::make_unique<Lane>(spec, &host);
  lane->ports.Attach(Port::kUp, up);
  if (!tail) lane->ports.Attach(Port::kDown, down);
  if (n_stages > 2 && (head || tail)) lane->ports.Attach(Port::kLoop, loop);
}

Status Stand::Turn(uint32_t number, uint32_t start, uint32_t n, uint32_t branch, uint32_t max_tokens) {
  Frame frame;
  frame.set_branch(branch);
  auto * turn = frame.mutable_turn();
  turn->set_turn(number);
  turn->set_start(start);
  turn->set_n_tokens(n);
  turn->set_max_tokens(max_tokens);
  turn->set_logprobs(-1);
  return In(Port::kUp, frame);
}

Status Stand::Ids(uint32_t number, uint32_t n, bool last) {
  Frame frame;
  frame.mutable_turn_tokens()->set_turn(number);
  for (uint32_t i = 0; i < n; i++) frame.mutable_turn_tokens()->add_ids(static_cast<int32_t>(10 + i));
  frame.mutable_turn_tokens()->set_last(last);
  return In(Port::kUp, frame);
}

Status Stand::Cancel(uint32_t number) {
  Frame frame;
  frame.mutable_cancel()->set_turn(number);
  return In(Port::kUp, frame);
}

Status Stand::Activation(seam::v1::Phase phase, uint32_t pos, uint32_t n, uint32_t branch, bool end) {
  Frame frame;
  frame.set_phase(phase);
  frame.set_branch(branch);
  frame.set_pos(pos);
  frame.set_n_tokens(n);
  frame.set_group(pos + 1);
  frame.set_group_size(1);
  frame.set_chunk_end(end);
  WriteBundle(std::vector<float>(n * kWidth, 1.0F), seam::v1::DTYPE_F32, kWidth, &frame);
  return In(Port::kUp, frame);
}

Status Stand::Loop(Port port, uint32_t pos, int32_t token, uint32_t branch, seam::v1::Finish finish) {
  Frame frame;
  frame.set_phase(PHASE_LOOP);
  frame.set_branch(branch);
  frame.set_pos(pos);
  if (token >= 0) {
    frame.set_n_tokens(1);
    frame.add_tokens(token);
  }
  frame.set_finish(finish);
  return In(port, frame);
}

void Stand::Run(int32_t token) {
  const auto ready = lane->Ready();
  ASSERT_TRUE(ready && ready->complete);
  const LaneRun run = lane->Plan(ready->rows);
  ASSERT_TRUE(lane->Reserve(run, now));
  std::vector<Row> rows;
  std::vector<float> input;
  lane->Fill(run, &rows, &input);
  ASSERT_EQ(rows.size(), run.rows);
  for (const Row & row : rows) last_input = row.token;
  lane->Advance(run, now);
  if (!lane->spec().tail) {
    ASSERT_TRUE(lane->Forward(run, std::vector<float>(run.rows * kWidth), {}).ok());
  } else if (run.wants_logits) {
    ASSERT_TRUE(lane->Emit(run, {.token = token, .end_of_generation = token == 2, .logprobs = {}}, {}, 1, now).ok());
  }
}

}  // namespace meshnet
