// LaneTurn: one request of a session as every stage sees it: the announcement, its ids as they come, and how far it
// got.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "port.h"
#include "status.h"

namespace meshnet {

// Ranges of Sampling; outside of them a turn is refused. The filters have natural bounds.
inline constexpr float kMaxTemperature = 100;
inline constexpr float kMaxPenalty = 2;
inline constexpr float kMaxBias = 100;

// Counts and parameters of a Turn, without the lane that it is for. kTurnInvalid, kTokenInvalid (a biased id),
// kGrammarInvalid (its length).
Status CheckTurn(const seam::v1::Turn & turn, int32_t n_vocab);

class LaneTurn {
 public:
  enum class State {
    kIdle,     // no turn, or it is over
    kCollect,  // announced; ids are missing
    kRun,      // all ids are known
  };

  // REQUIRES a turn that CheckTurn let pass.
  void Begin(const seam::v1::Turn & turn);
  // One piece of ids. A piece of a turn that is over changes nothing. kTurnInvalid, kTokenInvalid.
  Status Add(const seam::v1::TurnTokens & piece, int32_t n_vocab);
  void End() { state_ = State::kIdle; }

  State state() const { return state_; }
  bool running() const { return state_ != State::kIdle; }
  const seam::v1::Turn & announced() const { return turn_; }
  uint32_t number() const { return turn_.turn(); }
  // First position after the prompt.
  uint32_t prompt_end() const { return turn_.start() + turn_.n_tokens(); }
  // Id of a prompt position. REQUIRES announced().start() <= pos < prompt_end(), all ids known.
  int32_t id_at(uint32_t pos) const { return ids_[pos - turn_.start()]; }

 private:
  State state_ = State::kIdle;
  seam::v1::Turn turn_;
  std::vector<int32_t> ids_;
};

}  // namespace meshnet
