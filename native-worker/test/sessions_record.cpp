#include "sessions_record.h"

#include <map>
#include <utility>

#include "trace.h"

namespace meshnet {

void Recording::Add(Step step) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
}

void Recording::Refuse(std::string why) {
  const std::lock_guard lock(mutex_);
  refusals_.push_back(std::move(why));
}

std::vector<Recording::Step> Recording::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

std::vector<std::string> Recording::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

WatchedShard::WatchedShard(Shard && loaded, Recording * recording, Mistake mistake, std::atomic<int> * n_mistakes)
    : Shard(std::move(loaded)), recording_(recording), mistake_(mistake), n_mistakes_(n_mistakes) {}

Status WatchedShard::Decode(std::span<const Row> rows, const float * boundary_in) {
  std::vector<Row> taken(rows.begin(), rows.end());
  if (mistake_ == Mistake::kSwapIds) SwapIds(&taken);
  for (const Row & row : taken) {
    holding_.insert(row.seq);
    // What a row that nobody looks at was computed from shows nowhere.
    if (row.seq == skipped_ && (row.want_logits || !info().is_tail)) {
      skipped_.reset();
      (*n_mistakes_)++;
    }
  }
  if (Status s = Shard::Decode(taken, boundary_in); !s.ok()) {
    recording_->Refuse(s.message());
    return s;
  }
  Recording::Step step{.n_rows = rows.size()};
  if (const float * output = boundary_out()) {
    const auto width = static_cast<size_t>(info().n_embd);
    for (size_t i = 0; i < rows.size(); i++) step.residuals.push_back(Sha256({output + i * width, width}));
  }
  recording_->Add(std::move(step));
  return {};
}

void WatchedShard::SwapIds(std::vector<Row> * rows) {
  std::map<int32_t, int> n_rows;
  for (const Row & row : *rows) n_rows[row.seq]++;
  std::map<int32_t, Row *> alone;  // rows that are all there is of their sequence, by position
  for (Row & row : *rows) {
    if (row.pos == 0 || n_rows[row.seq] != 1) continue;
    const auto [other, is_new] = alone.emplace(row.pos, &row);
    if (is_new) continue;
    std::swap(row.seq, other->second->seq);
    mistake_ = Mistake::kNone;
    (*n_mistakes_)++;
    return;
  }
}

void WatchedShard::Clear(int32_t seq) {
  recording_->Add({.cleared = seq});
  const bool held = holding_.erase(seq) > 0;
  if (held && mistake_ == Mistake::kSkipClear) {
    mistake_ = Mistake::kNone;
    skipped_ = seq;
    return;
  }
  Shard::Clear(seq);
  if (seq != skipped_) return;
  skipped_.reset();
  mistake_ = Mistake::kSkipClear;
}

std::vector<RanStep> Compose(const std::vector<TickTrace> & ticks, const Recording & recording, Findings * findings) {
  for (const std::string & why : recording.refusals()) findings->Add("a decode was refused: " + why);
  std::vector<RanStep> composition;
  std::map<int32_t, std::string> holders;  // sessions, by sequence id
  auto tick = ticks.begin();
  for (const Recording::Step & step : recording.steps()) {
    if (step.cleared) {
      const auto holder = holders.extract(*step.cleared);
      if (!holder.empty()) composition.push_back({.left = holder.mapped()});
      continue;
    }
    if (tick == ticks.end() || tick->rows.size() != step.n_rows) {
      findings->Add("a decode of " + std::to_string(step.n_rows) + " rows was not traced");
      return composition;
    }
    RanStep ran;
    for (size_t i = 0; i < step.n_rows; i++) {
      const TraceRow & row = tick->rows[i];
      std::string & holder = holders[row.seq];
      if (holder != row.key.session && !holder.empty()) {
        findings->Add("sequence " + std::to_string(row.seq) + " went to another session before it was forgotten");
      }
      holder = row.key.session;
      ran.rows.push_back({.session = row.key.session,
                          .turn = row.turn,
                          .pos = row.pos,
                          .wants_logits = !row.logits_sha256.empty(),
                          .sampled = row.sampled,
                          .digest = step.residuals.empty() ? row.logits_sha256 : step.residuals[i]});
    }
    composition.push_back(std::move(ran));
    tick++;
  }
  if (tick != ticks.end()) findings->Add("a tick was traced that the shard never ran");
  return composition;
}

}  // namespace meshnet
