// Runs again, on fresh contexts, the batches that the stages of a ring ran; prompts, sampled tokens, residual streams
// and sequence ids are its own. What came out then has to have the same bits.
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "findings.h"
#include "sampler.h"
#include "sessions_play.h"
#include "sessions_record.h"

namespace meshnet {

// What the tail drew, and from what.
struct DrawnRow {
  int32_t token = -1;
  std::vector<float> logits;
};
// By session and turn; in order.
using TurnKey = std::pair<std::string, uint32_t>;
using Draws = std::map<TurnKey, std::vector<DrawnRow>>;

class Replay {
 public:
  // Loads the stages. `sessions` and `findings` outlive the replay.
  Replay(const RingOptions & options, const std::vector<PlayedSession> & sessions, Findings * findings);

  // One composition for each stage. What differs from it is a finding; so is a batch whose input nothing computed.
  void Run(const std::vector<std::vector<RanStep>> & compositions);
  // The answers that gateways got, against the tokens drawn here.
  void CheckAnswers() const;

  const Draws & draws() const { return draws_; }
  size_t n_compared() const { return n_compared_; }  // rows

 private:
  using RowKey = std::tuple<std::string, uint32_t, int32_t>;  // session, turn, position
  struct Held {
    int32_t seq = 0;
    int32_t n = 0;  // positions
  };
  struct Stage {
    std::unique_ptr<Shard> shard;
    const std::vector<RanStep> * steps = nullptr;
    size_t next = 0;
    std::map<std::string, Held> held{};
    std::vector<int32_t> free_ids{};
    std::map<RowKey, std::vector<float>> output{};  // not taken by the next stage yet
  };
  struct Asked {
    const PlayedTurn * turn = nullptr;
    uint32_t positions = 0;
    std::unique_ptr<Sampler> sampler{};
  };

  bool IsReady(size_t stage, const RanStep & step) const;
  // False: the stage cannot go on.
  bool RunStep(size_t stage, const RanStep & step);
  bool RunBatch(size_t stage, const RanStep & step);
  // Where the row goes; nullptr when there is no id for it, or the state cannot go back to it.
  Held * Place(Stage & stage, const RanRow & row);
  void Compare(size_t stage, const RanStep & step);
  void Sample(const RanRow & row, const float * logits);
  std::optional<int32_t> TokenOf(const RanRow & row) const;
  void Add(size_t stage, const std::string & what);

  Findings * findings_;
  const std::vector<PlayedSession> & sessions_;
  std::vector<Stage> stages_;
  std::unique_ptr<TokenPieces> pieces_;
  std::map<TurnKey, Asked> asked_;
  std::map<RowKey, int32_t> sampled_;  // by the position at which the token runs
  Draws draws_;
  size_t n_compared_ = 0;
};

}  // namespace meshnet
