#include "sessions_replay.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "trace.h"

namespace meshnet {
namespace {

std::string Name(const RanRow & row) {
  return "position " + std::to_string(row.pos) + " of turn " + std::to_string(row.turn) + ", session " +
         row.session.substr(row.session.size() - 2);
}

}  // namespace

Replay::Replay(const RingOptions & options, const std::vector<PlayedSession> & sessions, Findings * findings)
    : findings_(findings), sessions_(sessions), stages_(options.cuts.size() + 1) {
  for (size_t i = 0; i < stages_.size(); i++) {
    const Status status = Shard::Load(ParamsOf(options, static_cast<uint32_t>(i)), &stages_[i].shard);
    if (!status.ok()) throw std::runtime_error(status.message());
    // The last one is taken first: other ids than in the ring.
    for (uint32_t id = 0; id < options.n_seq_max; id++) stages_[i].free_ids.push_back(static_cast<int32_t>(id));
  }
  pieces_ = std::make_unique<TokenPieces>(stages_.back().shard->vocab());
  for (const PlayedSession & session : sessions) {
    for (const PlayedTurn & turn : session.turns) {
      asked_[{session.session, turn.turn.turn()}] = {.turn = &turn, .positions = session.positions};
    }
  }
}

void Replay::Run(const std::vector<std::vector<RanStep>> & compositions) {
  for (size_t i = 0; i < stages_.size(); i++) stages_[i].steps = &compositions[i];
  // Each stage goes on as far as what the others have computed carries it.
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < stages_.size(); i++) {
      Stage & stage = stages_[i];
      while (stage.next < stage.steps->size() && IsReady(i, (*stage.steps)[stage.next])) {
        if (!RunStep(i, (*stage.steps)[stage.next])) return;
        stage.next++;
        moved = true;
      }
    }
  }
  for (size_t i = 0; i < stages_.size(); i++) {
    const Stage & stage = stages_[i];
    if (stage.next == stage.steps->size()) continue;
    Add(i, "nothing computes the input of " + Name((*stage.steps)[stage.next].rows.front()));
  }
}

bool Replay::IsReady(size_t stage, const RanStep & step) const {
  return std::all_of(step.rows.begin(), step.rows.end(), [&](const RanRow & row) {
    if (stage == 0) return TokenOf(row).has_value();
    return stages_[stage - 1].output.contains({row.session, row.turn, row.pos});
  });
}

std::optional<int32_t> Replay::TokenOf(const RanRow & row) const {
  const auto asked = asked_.find({row.session, row.turn});
  if (asked == asked_.end()) return std::nullopt;
  const PlayedTurn & turn = *asked->second.turn;
  const int64_t index = int64_t{row.pos} - turn.turn.start();
  if (index < 0) return std::nullopt;
  if (index < static_cast<int64_t>(turn.ids.size())) return turn.ids[static_cast<size_t>(index)];
  const auto sampled = sampled_.find({row.session, row.turn, row.pos});
  return sampled == sampled_.end() ? std::nullopt : std::optional(sampled->second);
}

bool Replay::RunStep(size_t index, const RanStep & step) {
  if (step.left.empty()) return RunBatch(index, step);
  Stage & stage = stages_[index];
  const auto held = stage.held.extract(step.left);
  if (held.empty()) return true;
  stage.shard->Clear(held.mapped().seq);
  stage.free_ids.push_back(held.mapped().seq);
  return true;
}

Replay::Held * Replay::Place(Stage & stage, const RanRow & row) {
  auto it = stage.held.find(row.session);
  if (it == stage.held.end()) {
    if (stage.free_ids.empty()) return nullptr;
    it = stage.held.emplace(row.session, Held{.seq = stage.free_ids.back()}).first;
    stage.free_ids.pop_back();
  }
  Held & held = it->second;
  if (row.pos < held.n) {
    if (row.pos == 0) {
      stage.shard->Clear(held.seq);
    } else if (!stage.shard->Truncate(held.seq, row.pos).ok()) {
      return nullptr;
    }
  }
  held.n = row.pos + 1;
  return &held;
}

bool Replay::RunBatch(size_t index, const RanStep & step) {
  Stage & stage = stages_[index];
  std::vector<Row> rows;
  std::vector<float> input;
  for (const RanRow & ran : step.rows) {
    const Held * held = Place(stage, ran);
    if (held == nullptr) {
      Add(index, "no place for " + Name(ran));
      return false;
    }
    Row row{.pos = ran.pos, .seq = held->seq, .want_logits = ran.wants_logits};
    if (index == 0) {
      row.token = *TokenOf(ran);
    } else {
      const auto from = stages_[index - 1].output.extract({ran.session, ran.turn, ran.pos});
      if (from.empty()) {
        Add(index, Name(ran) + " ran twice");
        return false;
      }
      input.insert(input.end(), from.mapped().begin(), from.mapped().end());
    }
    rows.push_back(row);
  }
  if (Status s = stage.shard->Decode(rows, input.empty() ? nullptr : input.data()); !s.ok()) {
    Add(index, "the batch with " + Name(step.rows.front()) + " was refused: " + s.message());
    return false;
  }
  Compare(index, step);
  return true;
}

void Replay::Compare(size_t index, const RanStep & step) {
  Stage & stage = stages_[index];
  const auto width = static_cast<size_t>(stage.shard->info().n_embd);
  const auto n_vocab = static_cast<size_t>(stage.shard->info().n_vocab);
  const float * output = stage.shard->boundary_out();
  for (size_t i = 0; i < step.rows.size(); i++) {
    const RanRow & row = step.rows[i];
    if (output == nullptr && !row.wants_logits) continue;
    const float * values = output != nullptr ? output + i * width : stage.shard->logits(i);
    const std::span<const float> result(values, output != nullptr ? width : n_vocab);
    n_compared_++;
    if (Sha256(result) != row.digest) Add(index, "other bits at " + Name(row));
    if (output == nullptr) {
      Sample(row, values);
    } else {
      stage.output[{row.session, row.turn, row.pos}].assign(result.begin(), result.end());
    }
  }
}

void Replay::Sample(const RanRow & row, const float * logits) {
  const size_t tail = stages_.size() - 1;
  Asked & asked = asked_[{row.session, row.turn}];
  if (asked.turn == nullptr) return Add(tail, "nobody asked for " + Name(row));
  const auto n_vocab = static_cast<size_t>(stages_.back().shard->info().n_vocab);
  Status status;
  if (!asked.sampler) status = Sampler::Create(asked.turn->turn, asked.positions, pieces_.get(), &asked.sampler);
  Drawn drawn;
  const int32_t pos = row.pos + 1;  // at which the token runs
  if (status.ok()) status = asked.sampler->Draw({logits, n_vocab}, static_cast<uint32_t>(pos), &drawn);
  if (!status.ok()) return Add(tail, "no token after " + Name(row) + ": " + status.message());
  if (drawn.token != row.sampled) Add(tail, "another token after " + Name(row));
  sampled_[{row.session, row.turn, pos}] = drawn.token;
  draws_[{row.session, row.turn}].push_back({drawn.token, {logits, logits + n_vocab}});
}

void Replay::CheckAnswers() const {
  for (const PlayedSession & session : sessions_) {
    for (const PlayedTurn & turn : session.turns) {
      std::vector<int32_t> tokens;
      if (const auto draws = draws_.find({session.session, turn.turn.turn()}); draws != draws_.end()) {
        for (const DrawnRow & draw : draws->second) tokens.push_back(draw.token);
      }
      // A session that was ended under way has not got all that was drawn.
      const bool ended = turn.finish == seam::v1::FINISH_UNSPECIFIED;
      if (ended && tokens.size() > turn.tokens.size()) tokens.resize(turn.tokens.size());
      if (tokens == turn.tokens) continue;
      findings_->Add("session " + std::to_string(session.id) + ", turn " + std::to_string(turn.turn.turn()) +
                     ": the answer is another one than the replay's");
    }
  }
}

void Replay::Add(size_t stage, const std::string & what) {
  findings_->Add("replay of stage " + std::to_string(stage) + ": " + what);
}

}  // namespace meshnet
