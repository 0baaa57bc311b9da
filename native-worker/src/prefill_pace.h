// PrefillPace: how many rows of prompts a head may put into a tick while others decode, from what its ticks and the way
// round the ring have cost so far.
// Threads: pure bookkeeping; the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "tick_sizes.h"

namespace meshnet {

// What a tick aims at while somebody decodes: a cancel takes effect between ticks. Passed only where a prompt would be
// less than half as fast as alone.
inline constexpr uint64_t kTickTargetUs = 50'000;
// The same while nobody decodes: no neighbour's wait is at stake, so that the target can be what ticks seldom pass, at
// a somewhat slower stage too, and not what they take on the average.
inline constexpr uint64_t kAloneTargetUs = 40'000;
// How many times as long as undisturbed a token should take beside a prompt that has ticks of its own, and how many
// times as long as alone the prompt. What is promised is 2.5 for 95 of 100 tokens, and 2.
inline constexpr double kOwnTokenRatio = 2.1;
inline constexpr double kOwnPromptRatio = 1.9;
// The same for a prompt in ticks of decoding.
inline constexpr double kMaxPromptRatio = 1.8;
// With one stage both are in the same tick. Time of prefill beside a unit of time of decoding: a decoder then
// waits 2.25 times as long for its next token as undisturbed, and a prompt takes 1.8 times as long as alone. Where more
// prompts wait than lanes decode, for any number of stages, it is as many times more, up to the target of a tick.
inline constexpr double kPrefillShare = 1.25;
// The same for rows that cost hardly anything more: 2.4 times as long.
inline constexpr double kCheapShare = 1.4;
// Prompts for each decoder that count at most: beside one session, a client with many does not have all of the time.
inline constexpr double kMaxCrowd = 4;
// Below it a tick's own overhead is what counts.
inline constexpr uint64_t kMinPrefillUs = 2'000;
// Rows of the first prompt, whose cost is unknown.
inline constexpr uint32_t kFirstRows = 16;
// Rows of a tick of prefill alone at most while somebody decodes.
inline constexpr uint32_t kMaxOwnRows = 128;
// After so many smaller ticks of prefill alone, beside decoders, one has as many rows as it would without them: what a
// prompt takes alone grows with it, and what is promised to it is measured by that. Two of a hundred tokens are late
// by it.
inline constexpr uint64_t kAloneTicks = 48;
static_assert(kAloneTicks > kFreshTicks);  // it stands for itself
// Rows of a tick at least while nobody decodes: with eight, kernels take up to twice as long a row, with 64 hardly
// less. Short prompts come in several ticks, so that the stages share them.
inline constexpr uint32_t kAloneRows = 16;
// For how many ticks the cost of decoding alone is believed where ticks have both. After it one goes without prefill,
// and the groups that follow come out of step for a while: rarely enough that few of a hundred tokens are late by it.
inline constexpr uint64_t kBelievedTicks = 128;
// For how long decoders may be held, at the slowest stage, while more sessions wait for their first token than decode,
// and how many tokens each of them has had before that begins again: three of a hundred are late by it. Whoever began
// first has his second token later, and all the others their first one earlier; then they decode in full groups, where
// each would go round nearly alone.
inline constexpr uint64_t kHoldUs = 1'000'000;
inline constexpr double kHoldLaps = 32;
// Tokens of every decoder in one measurement of their undisturbed time, and before it until groups are what they are
// without a prompt.
inline constexpr double kQuietLaps = 3;
inline constexpr double kCalmLaps = 2;
// Groups with prefill on their way at most, whatever the stages claim about their times.
inline constexpr size_t kMaxPrefillGroups = 64;
// A decoding lane that is away for longer, and for four times as long as usual, holds back nobody's prompt.
inline constexpr uint64_t kLostUs = 1'000'000;
// A group with prefill is believed to be on its way for kLostUs, or for so many ticks like the one it was in.
inline constexpr uint64_t kLostTicks = 8;

// What a head's prompts share the ring with.
struct PaceLoad {
  uint32_t n_stages = 1;  // of the longest ring
  uint32_t lanes = 0;     // that decode, here or on their way, without those that are lost
  uint32_t cap = 0;       // lanes of a tick at most; 0: all
  uint32_t prompts = 1;   // lanes that wait with rows of prefill
  uint64_t now_us = UINT64_MAX;  // by default everything is long ago
};

class PrefillPace {
 public:
  // Rows of prefill, `left` at most, in a tick with that many rows of decoding. 0: prompts have ticks of their own, or
  // had them since the last tokens, or the cost of this tick without prefill is to be measured.
  uint32_t Rows(uint32_t decode_rows, const PaceLoad & load, uint32_t left) const;
  // Rows of the tick of prefill alone that comes next even if decoders are here, as each of them has had a token since
  // the last one. 0: none is due.
  uint32_t OwnRowsDue(const PaceLoad & load, uint32_t left) const;
  // From when on a tick of prefill alone can be due. While stages have time to spare, one that followed a short lap at
  // once would make the next lap long.
  uint64_t OwnFrom(const PaceLoad & load, uint32_t left) const;
  // Whether decoders wait until all rows of the prompts that are here have gone: a crowd that is soon through.
  bool Holds(const PaceLoad & load, uint64_t rows) const;
  // Rows of prefill while nobody decodes, or they are held: what kAloneTargetUs allows, kAloneRows at least.
  uint32_t AloneRows() const;

  // A tick is over in which every lane ran. `lanes`: that decode, in this tick or not.
  void Ran(uint32_t decode_rows, uint32_t prefill_rows, uint64_t took_us, uint32_t lanes = 0);
  // A tick is over, whatever became of its lanes: with decoders held, as Holds said, or not.
  void Held(bool held, uint64_t took_us);
  // The tick's output has gone to the next stage. Group numbers grow.
  void Sent(uint64_t group, bool prefill, uint64_t now_us);
  // Takes for through what has been on its way for too long: a decoder whose tokens are late, or whose last stage keeps
  // them back, would hold up everybody's prompts otherwise.
  void Forget(uint64_t now_us);
  // When there is something to forget; UINT64_MAX: nothing is on its way.
  uint64_t ForgetAt() const { return on_way_.empty() ? UINT64_MAX : on_way_.front().until_us; }
  // A token of the group is back. Every stage runs groups in order, so those before it are through too. `slowest_us`:
  // the longest that a stage computed for it; 0: not said.
  void Returned(uint64_t group, uint64_t away_us, uint64_t slowest_us);

  // When a lane that left at `sent_us` counts as lost.
  uint64_t LostAt(uint64_t sent_us) const;

 private:
  struct Step {
    double us = 0;
    uint64_t tick = 0;  // of the last measurement
  };

  // Ticks of prefill alone in a token's way round the ring.
  struct OwnTicks {
    uint32_t rows = 0;  // of each
    size_t n = 1;
    bool idle = false;      // stages have the time while decoders are away
    uint64_t every_us = 0;  // from the start of one to that of the next at least
  };

  struct Away {
    uint64_t group = 0;
    uint64_t until_us = 0;
  };

  double StepUs(uint32_t decode_rows) const;
  uint32_t SharedRows(uint32_t decode_rows, double crowd, uint32_t left) const;
  double LeastRows(uint32_t decode_rows, double step_us) const;
  OwnTicks PlanOwn(const PaceLoad & load, uint32_t left) const;
  bool HasRoom(const PaceLoad & load, const OwnTicks & own) const;
  bool IsDue(const PaceLoad & load, const OwnTicks & own, size_t n_lap) const;
  uint64_t OwnFrom(const OwnTicks & own) const;
  size_t MaxGroups(uint32_t n_stages) const;
  double Slowness(double step_us) const;
  double QuietUs(const PaceLoad & load, double step_us, double decode_us) const;
  // Once for each tick of decoding, in order.
  void TimeLaps(uint64_t now_us);

  std::map<uint32_t, Step> steps_;  // ticks without prefill, by their rows; as many as lanes at most
  TickSizes shared_;                // ticks with both
  TickSizes own_;                   // ticks of prefill alone
  uint32_t last_own_rows_ = 0;
  uint64_t n_small_ = 0;  // ticks of prefill alone since one had, or was to have, the rows that it has without decoders
  double laps_ = 0;              // tokens that each of the decoders has had
  std::deque<double> own_laps_;  // laps_ at the newest of the ticks of prefill alone
  double held_us_ = 0;           // for which decoders have been held; 0: they were not in the last tick
  double may_hold_laps_ = 0;     // laps_ from which on it may begin
  uint64_t n_ticks_ = 0;
  uint32_t last_decode_rows_ = 0;
  double row_us_ = 0;        // what a row of prefill adds to a tick; 0: not known
  double alone_row_us_ = 0;  // what one takes while nobody decodes; 0: not known

  uint64_t took_us_ = 0;           // the last tick
  uint64_t prefill_start_us_ = 0;  // of the last one with prefill

  struct Quiet {
    double us = 0;       // of a token
    double away_us = 0;  // away_us_ at that time
  };
  std::map<uint32_t, Quiet> quiet_;  // undisturbed, by lanes that decode; as many as lanes at most
  uint32_t lanes_ = 0;               // that decoded when the last tick began
  bool calm_ = false;                // of the measurement that runs: kCalmLaps have passed
  uint64_t calm_since_us_ = 0;       // no prefill was on the way since, and lanes_ stayed; 0: none runs
  double calm_since_laps_ = 0;

  std::deque<Away> on_way_;  // groups with prefill that have not come back, oldest first
  uint64_t newest_ = 0;
  uint64_t quiet_from_ = 0;  // the first group that no prefill was ahead of
  double away_us_ = 0;       // a trip round the ring without prefill on the way
  double slowest_us_ = 0;    // the slowest stage's part of it
};

}  // namespace meshnet
