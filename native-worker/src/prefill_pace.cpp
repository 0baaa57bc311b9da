#include "prefill_pace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "bounds.h"

namespace meshnet {
namespace {

// Of a new value, in a mean that follows the load.
constexpr double kWeight = 0.25;
// Of a new cost that is above the mean: a tick that takes too long makes everybody wait, one that is short nobody.
constexpr double kRiseWeight = 0.5;
// A stage that is this much faster than the slowest still counts as one that a group can be at.
constexpr double kStageTolerance = 0.25;
// Of a first tick, at most this many times as much may be the part that it shares with decoding.
constexpr double kMaxShared = 4;
// Of a lap, as sums of parts come out.
constexpr double kLap = 1 - 1e-6;
// What a part of the target counts that a tick passes it by.
constexpr double kOverTarget = 0.25;
// A size that was never tried has this many times the rows of one that was, at most: what lies beyond is a guess.
constexpr uint32_t kGrowth = 2;
// How much better another size must be than the one in use.
constexpr double kChange = 1.1;
// A trip counts as this many times as long as usual at most.
constexpr double kMaxLonger = 2;
// Of a token's time: a trip that differs by more is another way, and not only another size of groups.
constexpr double kOtherWay = 0.5;
// A trip that takes this many times as long as usual is no delay any more.
constexpr double kLostTrips = 4;

// Time for prefill beside a step of decoding: `wanted_us` where the target of a tick allows it.
double BudgetUs(double step_us, double wanted_us) {
  constexpr double target = kTickTargetUs;
  if (step_us == 0) return target / 2;
  return std::max<double>(std::min(wanted_us, target - step_us), kMinPrefillUs);
}

// Rows of prefill with which all rows of a tick are whole kKernelRows, where that leaves any.
uint32_t RoundedDown(uint32_t decode_rows, uint32_t rows) {
  const uint32_t whole = (decode_rows + rows) / kKernelRows * kKernelRows;
  return whole > decode_rows ? whole - decode_rows : rows;
}

double RoundedUp(uint32_t decode_rows, double rows) {
  return std::ceil((decode_rows + rows) / kKernelRows) * kKernelRows - decode_rows;
}

// Prompts for each decoder.
double Crowd(const PaceLoad & load) {
  return std::clamp(static_cast<double>(load.prompts) / std::max(1U, load.lanes), 1.0, kMaxCrowd);
}

// Where promises to sessions cannot be kept otherwise, ticks may be longer than the target.
double TargetRatio(double us) {
  const double ratio = us / kTickTargetUs;
  return std::min(ratio, 1 + (ratio - 1) * kOverTarget);
}

// Whether prompts are in the ticks of decoders. With several stages they have ticks of their own, which one stage
// computes while another decodes: a few larger ones cost less than many small ones. Where most wait for their first
// token, what counts is that the weights are read once for all.
bool IsShared(const PaceLoad & load) { return load.n_stages == 1 || load.prompts > load.lanes; }

// Of what is close to its bound little more is worse than much more of what is far from it, and of a promise that is
// kept hardly anything counts.
double Fourth(double ratio) { return ratio * ratio * ratio * ratio; }
double Eighth(double ratio) { return Fourth(ratio) * Fourth(ratio); }

// A lap with a tick of prefill right after that of decoding, in which decoders have caught up with it at each of the
// later stages, where laps are of equal length. Where the next one followed at once a short lap would make a long one,
// as far above this as the short one was below.
double EvenLapUs(const PaceLoad & load, double quiet_us, double own_us, double step_us) {
  const double further = (load.n_stages - 2.0) * std::max(0.0, own_us - step_us) / 2;
  return std::max(quiet_us, quiet_us / 2 + own_us + further);
}

void Follow(double value, double weight, double * mean) {
  *mean = *mean == 0 ? value : *mean + (value - *mean) * weight;
}

}  // namespace

uint32_t PrefillPace::Rows(uint32_t decode_rows, const PaceLoad & load, uint32_t left) const {
  if (left == 0) return 0;
  if (decode_rows == 0) {
    const OwnTicks own = PlanOwn(load, left);
    return HasRoom(load, own) ? own.rows : 0;
  }
  const auto measured = steps_.find(decode_rows);
  if (measured == steps_.end() || n_ticks_ - measured->second.tick >= kBelievedTicks) return 0;
  return IsShared(load) ? SharedRows(decode_rows, Crowd(load), left) : 0;
}

uint32_t PrefillPace::OwnRowsDue(const PaceLoad & load, uint32_t left) const {
  if (left == 0 || IsShared(load)) return 0;
  const OwnTicks own = PlanOwn(load, left);
  return IsDue(load, own, own.idle ? 1 : own.n) ? own.rows : 0;
}

uint64_t PrefillPace::OwnFrom(const PaceLoad & load, uint32_t left) const {
  return left == 0 || IsShared(load) ? 0 : OwnFrom(PlanOwn(load, left));
}

uint64_t PrefillPace::OwnFrom(const OwnTicks & own) const { return prefill_start_us_ + own.every_us; }

bool PrefillPace::Holds(const PaceLoad & load, uint64_t rows) const {
  if (load.n_stages == 1 || rows == 0 || alone_row_us_ == 0) return false;
  if (held_us_ == 0 && (load.prompts <= load.lanes || laps_ < may_hold_laps_)) return false;
  return static_cast<double>(rows) * alone_row_us_ * Slowness(StepUs(0)) <= kHoldUs - held_us_;
}

void PrefillPace::Held(bool held, uint64_t took_us) {
  held_us_ = held ? held_us_ + static_cast<double>(took_us) * Slowness(StepUs(0)) : 0;
  if (held) may_hold_laps_ = laps_ + kHoldLaps;
}

// Whether a tick of prefill alone makes nobody wait for longer than was planned.
bool PrefillPace::HasRoom(const PaceLoad & load, const OwnTicks & own) const {
  if (!IsShared(load)) return IsDue(load, own, own.n);
  // One at each stage, and one that waits for the slowest.
  return load.n_stages == 1 || on_way_.size() < std::max<size_t>(MaxGroups(load.n_stages), load.n_stages + 1);
}

// Whether fewer than so many ticks of prefill alone were in the last lap, and the last one is long enough ago.
bool PrefillPace::IsDue(const PaceLoad & load, const OwnTicks & own, size_t n_lap) const {
  if (load.now_us < OwnFrom(own)) return false;
  return own_laps_.size() < n_lap || laps_ - own_laps_.end()[-static_cast<ptrdiff_t>(n_lap)] >= kLap;
}

// Those with which what is promised to decoders, to the prompt and to whoever cancels is kept best.
PrefillPace::OwnTicks PrefillPace::PlanOwn(const PaceLoad & load, uint32_t left) const {
  const uint32_t lanes = std::max(1U, load.lanes);
  const uint32_t cap = load.cap == 0 ? lanes : std::min(load.cap, lanes);
  const double step = StepUs(cap);
  if (own_.empty() || step == 0) return {.rows = std::min(left, own_.empty() ? kFirstRows : AloneRows())};
  const double slowness = Slowness(step);
  const uint32_t groups = (lanes + cap - 1) / cap;
  const double decode = slowness * groups * step;
  const double quiet = QuietUs(load, step, decode);
  const double alone = slowness * own_.Us(AloneRows()) / AloneRows();
  const uint32_t most = std::min({left, kMaxOwnRows, kGrowth * own_.LargestKnown()});
  const size_t most_n = load.n_stages == 1 ? 1 : MaxGroups(load.n_stages);
  OwnTicks best;
  double best_cost = 0;
  for (uint32_t rows = std::min(kKernelRows, most);; rows = std::min(rows + kKernelRows, most)) {
    const double us = own_.Us(rows);
    // Several small ones take longer than a larger one.
    for (size_t n = 1; n <= (rows < kAloneRows ? 1 : most_n); n++) {
      const double busy = decode + n * slowness * us;
      // A decoder comes back during one of several. One alone comes right after it.
      const double idle = n > 1 ? quiet + slowness * us / 2 : EvenLapUs(load, quiet, slowness * us, slowness * step);
      const bool spare = load.n_stages > 1 && busy < idle;
      const double lap = spare ? idle : busy;
      const double token = lap / quiet / kOwnTokenRatio;
      const double prompt = lap / (n * rows) / alone / kOwnPromptRatio;
      // Groups that change in size make stages wait for each other.
      const double change = rows == last_own_rows_ ? 1 : kChange;
      const double cost = change * (Eighth(token) + Fourth(Crowd(load)) * Eighth(prompt) + Fourth(TargetRatio(us)));
      if (best.rows != 0 && cost >= best_cost) continue;
      best = {.rows = rows, .n = n, .idle = spare};
      best_cost = cost;
    }
    if (rows == most) break;
  }
  if (load.n_stages > 1 && n_small_ >= kAloneTicks) best.rows = std::max(best.rows, std::min(most, AloneRows()));
  if (best.idle && best.n == 1) {
    const double every = EvenLapUs(load, quiet, slowness * own_.Us(best.rows), slowness * step);
    best.every_us = std::min(static_cast<uint64_t>(every), kLostUs);  // decoders may be lost, and tokens of no measure
  }
  return best;
}

// Rows of prefill in a tick with decoding.
uint32_t PrefillPace::SharedRows(uint32_t decode_rows, double crowd, uint32_t left) const {
  if (row_us_ == 0) return RoundedDown(decode_rows, std::min(left, kFirstRows));
  const double step = StepUs(decode_rows);
  const double fair = BudgetUs(step, crowd * kPrefillShare * step) / row_us_;
  const double least = RoundedUp(decode_rows, LeastRows(decode_rows, step));
  const auto rows = std::max(RoundedDown(decode_rows, static_cast<uint32_t>(std::clamp<double>(fair, 1, left))),
                             static_cast<uint32_t>(std::min<double>(least, left)));
  const double limit = step + BudgetUs(step, crowd * kCheapShare * step);
  return std::min(left, shared_.Largest(decode_rows + rows, limit) - decode_rows);
}

uint32_t PrefillPace::AloneRows() const {
  if (row_us_ == 0) return kAloneRows;
  constexpr double target = kAloneTargetUs;
  const double step = StepUs(0);
  const double rows = std::max({target - step, target / 2, step}) / row_us_;
  const auto whole = static_cast<uint32_t>(std::min<double>(rows, kMaxFrameTokens)) / kKernelRows * kKernelRows;
  return std::max(whole, kAloneRows);
}

// Rows beside a step of decoding with which a prompt takes no more than twice as long as alone.
double PrefillPace::LeastRows(uint32_t decode_rows, double step_us) const {
  const double least =
      step_us / row_us_;  // as long as the decoding takes: enough where a row costs the same everywhere
  if (alone_row_us_ == 0) return least;
  // Kernels may take as long for two rows as for ten. Each of a few rows then costs more than alone, and a budget of
  // time would make them fewer and still dearer.
  const double spare_us = 2 * alone_row_us_ - row_us_;
  const double even = spare_us > 0 ? step_us / spare_us : kFirstRows;
  return std::max(least, std::min<double>(even, shared_.Fewest(decode_rows, kMaxPromptRatio * alone_row_us_)));
}

void PrefillPace::Ran(uint32_t decode_rows, uint32_t prefill_rows, uint64_t took_us, uint32_t lanes) {
  n_ticks_++;
  took_us_ = took_us;
  const uint32_t before = std::exchange(lanes_, std::max(lanes, decode_rows));
  if (before != lanes_ || prefill_rows > 0) calm_since_us_ = 0;
  const auto took = static_cast<double>(took_us);
  if (decode_rows > 0) {
    last_decode_rows_ = decode_rows;
    laps_ += static_cast<double>(decode_rows) / lanes_;
  } else {
    const bool measures = n_small_ >= kAloneTicks;
    if (prefill_rows % kKernelRows == 0 && !measures) last_own_rows_ = prefill_rows;
    n_small_ = measures || prefill_rows >= AloneRows() ? 0 : n_small_ + 1;
    own_laps_.push_back(laps_);
    if (own_laps_.size() > kMaxPrefillGroups) own_laps_.pop_front();
  }
  if (prefill_rows == 0) {
    Step & step = steps_[decode_rows];
    Follow(took, kWeight, &step.us);
    step.tick = n_ticks_;
    return;
  }
  (decode_rows > 0 ? shared_ : own_).Ran(decode_rows + prefill_rows, took_us);
  if (decode_rows == 0 && prefill_rows >= kAloneRows) Follow(took / prefill_rows, kWeight, &alone_row_us_);
  // The weights are read once for all rows of a tick, so prefill costs what it adds to the tick of decoding.
  double row = std::max(0.0, took - StepUs(decode_rows)) / prefill_rows;
  if (row_us_ == 0) {
    row_us_ = std::max(row, took / prefill_rows / kMaxShared);
  } else {
    row = std::max(row, row_us_ / 2);
    Follow(row, row > row_us_ ? kRiseWeight : kWeight, &row_us_);
  }
}

void PrefillPace::Sent(uint64_t group, bool prefill, uint64_t now_us) {
  newest_ = group;
  if (!prefill) return TimeLaps(now_us);
  prefill_start_us_ = now_us - took_us_;
  on_way_.push_back({group, now_us + std::max(kLostUs, kLostTicks * took_us_)});
  if (on_way_.size() > kMaxPrefillGroups) on_way_.pop_front();
}

void PrefillPace::TimeLaps(uint64_t now_us) {
  const double laps = laps_ - calm_since_laps_;
  if (!on_way_.empty() || calm_since_us_ == 0) {
    calm_ = false;
  } else if (laps < (calm_ ? kQuietLaps : kCalmLaps) * kLap) {
    return;
  } else if (calm_) {
    // A lane that is late is no measure of what others have.
    const double most = kMaxLonger * (StepUs(0) + (away_us_ > 0 ? away_us_ : static_cast<double>(kLostUs)));
    Quiet & quiet = quiet_[lanes_];
    Follow(std::min(static_cast<double>(now_us - calm_since_us_) / laps, most), kWeight, &quiet.us);
    quiet.away_us = away_us_;
  } else {
    calm_ = true;
  }
  calm_since_us_ = on_way_.empty() ? now_us : 0;
  calm_since_laps_ = laps_;
}

void PrefillPace::Forget(uint64_t now_us) {
  if (on_way_.empty() || on_way_.front().until_us > now_us) return;
  while (!on_way_.empty() && on_way_.front().until_us <= now_us) on_way_.pop_front();
  if (on_way_.empty()) quiet_from_ = newest_ + 1;
  own_laps_.clear();
}

void PrefillPace::Returned(uint64_t group, uint64_t away_us, uint64_t slowest_us) {
  // With prefill on the way a trip takes longer. One that is short all the same says that the way has become shorter.
  const auto away = static_cast<double>(away_us);
  if (!on_way_.empty() && slowest_us > 0 && away < away_us_) Follow(away, kWeight, &away_us_);
  if (on_way_.empty()) {
    if (group < quiet_from_ || slowest_us == 0) return;
    // A lane that is late is no measure of the way that others have.
    const double most = away_us_ == 0 ? static_cast<double>(kLostUs) : kMaxLonger * away_us_;
    const double trip = std::min(away, most);
    Follow(trip, kWeight, &away_us_);
    // No other stage can have computed for longer than the group was away.
    Follow(std::min<double>(slowest_us, std::max(trip, StepUs(0))), kWeight, &slowest_us_);
    return;
  }
  while (!on_way_.empty() && on_way_.front().group <= group) on_way_.pop_front();
  if (on_way_.empty()) quiet_from_ = newest_ + 1;
}

uint64_t PrefillPace::LostAt(uint64_t sent_us) const {
  return sent_us + std::max(kLostUs, static_cast<uint64_t>(kLostTrips * away_us_));
}

// Without prefill. The nearest size that is known stands for one that is not; 0: none is known.
double PrefillPace::StepUs(uint32_t decode_rows) const {
  if (steps_.empty()) return 0;
  const auto above = steps_.lower_bound(decode_rows > 0 ? decode_rows : last_decode_rows_);
  if (above == steps_.end()) return std::prev(above)->second.us;
  return above->second.us;
}

// How many times as long as this one the slowest stage takes.
double PrefillPace::Slowness(double step_us) const { return step_us == 0 ? 1 : std::max(1.0, slowest_us_ / step_us); }

// How long a token takes undisturbed. Beside a prompt groups have other sizes than without one, so what follows from
// their ticks is wrong; but it tells when the way is quite another than at the time of measuring.
double PrefillPace::QuietUs(const PaceLoad & load, double step_us, double decode_us) const {
  const auto measured = quiet_.find(load.lanes);
  if (measured == quiet_.end()) {
    return std::max(decode_us, slowest_us_ == 0 ? load.n_stages * step_us : step_us + away_us_);
  }
  const auto & [us, away_us] = measured->second;
  const double longer = away_us_ - away_us;
  return std::max(decode_us, std::abs(longer) > kOtherWay * us ? us + longer : us);
}

// As many as keep the slowest stage busy for a trip round the ring: one there, one here, and what fits on the way.
size_t PrefillPace::MaxGroups(uint32_t n_stages) const {
  if (slowest_us_ == 0) return std::max(1U, n_stages);
  const double others = std::min<double>(away_us_ / slowest_us_ + kStageTolerance, kMaxPrefillGroups - 1);
  return 1 + static_cast<size_t>(others);
}

}  // namespace meshnet
