#include "sessions_solo.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace meshnet {
namespace {

class Soloist {
 public:
  Soloist(const RingOptions & options, Findings * findings) : findings_(findings) {
    RingOptions whole = options;
    whole.cuts.clear();
    if (Status s = Shard::Load(ParamsOf(whole, 0), &shard_); !s.ok()) throw std::runtime_error(s.message());
  }

  void Begin() {
    shard_->Clear(0);
    held_ = 0;
  }

  void Play(const PlayedSession & session, const PlayedTurn & turn, const std::vector<DrawnRow> & draws) {
    const std::string name = "session " + std::to_string(session.id) + ", turn " + std::to_string(turn.turn.turn());
    const auto start = static_cast<int32_t>(turn.turn.start());
    Status status = start < held_ ? shard_->Truncate(0, start) : Status::Ok();
    held_ = start;
    if (status.ok()) status = Run(turn.ids);
    for (size_t i = 0; status.ok() && i < draws.size(); i++) {
      Compare(session, turn, draws[i], name + ", token " + std::to_string(i));
      if (i + 1 < draws.size()) status = Run({draws[i].token});
    }
    if (!status.ok()) findings_->Add(name + " cannot run alone: " + status.message());
  }

  const SoloResult & result() const { return result_; }

 private:
  // The next positions; logits of the last one are kept.
  Status Run(const std::vector<int32_t> & ids) {
    for (size_t done = 0; done < ids.size();) {
      std::vector<Row> rows;
      const size_t end = std::min(ids.size(), done + shard_->info().n_ubatch);
      for (; done < end; done++) rows.push_back({ids[done], held_++, 0, done + 1 == ids.size()});
      if (Status s = shard_->Decode(rows, nullptr); !s.ok()) return s;
      logits_ = shard_->logits(rows.size() - 1);
    }
    return {};
  }

  void Compare(const PlayedSession & session, const PlayedTurn & turn, const DrawnRow & draw,
               const std::string & name) {
    const double n = static_cast<double>(draw.logits.size());
    double sum = 0, squares = 0, moved = 0;
    float farthest = 0;
    for (size_t v = 0; v < draw.logits.size(); v++) {
      const float difference = draw.logits[v] - logits_[v];
      farthest = std::max(farthest, std::fabs(difference));
      moved += static_cast<double>(difference) * difference;
      sum += logits_[v];
      squares += static_cast<double>(logits_[v]) * logits_[v];
    }
    const double difference = std::sqrt(moved / (squares - sum * sum / n));
    result_.n_rows++;
    result_.max_difference = std::max(result_.max_difference, difference);
    if (!(difference <= kSoloTolerance)) {
      findings_->Add(name + ": a row is " + std::to_string(difference) + " from what it is alone");
    }
    // The answer itself: alone the session would say the same, unless two tokens are nearer than what moved.
    if (turn.turn.sampling().temperature() != 0) return;
    const float * markers = logits_ + FirstMarker(session.id);
    const float best = *std::max_element(markers, markers + kMarkers);
    if (logits_[draw.token] < best - 2 * farthest) findings_->Add(name + ": alone it would be another one");
  }

  Findings * findings_;
  std::unique_ptr<Shard> shard_;
  int32_t held_ = 0;  // positions
  const float * logits_ = nullptr;
  SoloResult result_;
};

}  // namespace

SoloResult CheckSolo(const RingOptions & options, const std::vector<PlayedSession> & sessions, const Draws & draws,
                     Findings * findings) {
  Soloist soloist(options, findings);
  const std::vector<DrawnRow> none;
  for (const PlayedSession & session : sessions) {
    soloist.Begin();
    for (const PlayedTurn & turn : session.turns) {
      const auto drawn = draws.find({session.session, turn.turn.turn()});
      soloist.Play(session, turn, drawn == draws.end() ? none : drawn->second);
    }
  }
  return soloist.result();
}

}  // namespace meshnet
