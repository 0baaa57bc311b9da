#include "lane_turn.h"

#include <cmath>

#include "bounds.h"

namespace meshnet {
namespace {

// False for NaN too.
bool Within(float value, float low, float high) { return value >= low && value <= high; }

Status CheckSampling(const seam::v1::Sampling & s, int32_t n_vocab) {
  if (!Within(s.temperature(), 0, kMaxTemperature)) return {Code::kTurnInvalid, "temperature is out of range"};
  if (!Within(s.top_p(), 0, 1)) return {Code::kTurnInvalid, "top_p is out of range"};
  if (!Within(s.min_p(), 0, 1)) return {Code::kTurnInvalid, "min_p is out of range"};
  if (!Within(s.presence_penalty(), -kMaxPenalty, kMaxPenalty) ||
      !Within(s.frequency_penalty(), -kMaxPenalty, kMaxPenalty)) {
    return {Code::kTurnInvalid, "a penalty is out of range"};
  }
  if (static_cast<size_t>(s.logit_bias_size()) > kMaxLogitBias) return {Code::kTurnInvalid, "too many biases"};
  for (const auto & bias : s.logit_bias()) {
    if (bias.token() < 0 || bias.token() >= n_vocab)
      return {Code::kTokenInvalid, "a biased id is not in the vocabulary"};
    if (!Within(bias.bias(), -kMaxBias, kMaxBias)) return {Code::kTurnInvalid, "a bias is out of range"};
  }
  return {};
}

}  // namespace

Status CheckTurn(const seam::v1::Turn & turn, int32_t n_vocab) {
  if (turn.n_tokens() == 0) return {Code::kTurnInvalid, "a turn needs one token at least"};
  if (turn.max_tokens() == 0) return {Code::kTurnInvalid, "max_tokens must be 1 at least"};
  if (turn.logprobs() < -1 || turn.logprobs() > kMaxLogprobs) {
    return {Code::kTurnInvalid, "logprobs must be -1 to " + std::to_string(kMaxLogprobs)};
  }
  if (turn.grammar().size() > kMaxGrammarBytes) return {Code::kGrammarInvalid, "the grammar is too long"};
  return CheckSampling(turn.sampling(), n_vocab);
}

void LaneTurn::Begin(const seam::v1::Turn & turn) {
  turn_ = turn;
  ids_.clear();
  state_ = State::kCollect;
}

Status LaneTurn::Add(const seam::v1::TurnTokens & piece, int32_t n_vocab) {
  if (state_ == State::kIdle && piece.turn() == turn_.turn() && turn_.turn() != 0) return {};
  if (state_ != State::kCollect || piece.turn() != turn_.turn()) {
    return {Code::kTurnInvalid, "token ids of turn " + std::to_string(piece.turn()) + ", which is not announced"};
  }
  const size_t total = ids_.size() + static_cast<size_t>(piece.ids_size());
  if (piece.ids_size() == 0 || total > turn_.n_tokens() || piece.last() != (total == turn_.n_tokens())) {
    return {Code::kTurnInvalid, "the turn announced " + std::to_string(turn_.n_tokens()) + " token ids"};
  }
  for (const int32_t id : piece.ids()) {
    if (id < 0 || id >= n_vocab) return {Code::kTokenInvalid, "id " + std::to_string(id) + " is not in the vocabulary"};
  }
  ids_.insert(ids_.end(), piece.ids().begin(), piece.ids().end());
  if (piece.last()) state_ = State::kRun;
  return {};
}

}  // namespace meshnet
