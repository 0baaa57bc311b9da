#include "parity_script.h"

#include <algorithm>
#include <deque>
#include <random>

namespace meshnet {
namespace {

// One sequence of the scenario: tokens still to be prefilled, then one token a tick.
struct Sequence {
  bool alive = false;
  int32_t pos = 0;
  std::deque<int32_t> pending;  // prompt tokens not yet decoded; with one left it is a decode step
};

class Recorder {
 public:
  Recorder(Shard & whole, const ScriptParams & params, Script * script)
      : whole_(whole), p_(params), script_(*script), random_(params.seed), sequences_(params.n_seq) {}

  Status Run() {
    Join(0);
    while (static_cast<int32_t>(script_.greedy.size()) < p_.n_greedy) {
      if (Status s = Disturb(); !s.ok()) return s;
      if (Status s = Tick(); !s.ok()) return s;
    }
    return Status::Ok();
  }

 private:
  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  int32_t AnyToken() { return 3 + Below(whole_.info().n_vocab - 3); }

  void Join(int32_t seq) {
    Sequence & s = sequences_[seq];
    whole_.Clear(seq);
    script_.ops.push_back(ClearOp{seq});
    s.alive = true;
    s.pos = 0;
    s.pending.clear();
    for (int32_t n = 3 + Below(p_.max_prompt - 2); n > 0; n--) s.pending.push_back(AnyToken());
    script_.n_joins++;
  }

  // Now and then another sequence joins, leaves or goes back and takes another turn.
  Status Disturb() {
    const int32_t seq = 1 + Below(p_.n_seq - 1);
    Sequence & s = sequences_[seq];
    if (!s.alive) {
      Join(seq);
      return Status::Ok();
    }
    const int32_t what = Below(8);
    if (what == 0) {
      whole_.Clear(seq);
      script_.ops.push_back(ClearOp{seq});
      s = Sequence();
      script_.n_leaves++;
    } else if (what <= 2 && s.pos > 2) {
      const int32_t pos = 1 + Below(s.pos - 1);
      if (Status status = whole_.Truncate(seq, pos); !status.ok()) return status;
      script_.ops.push_back(TruncateOp{seq, pos});
      s.pos = pos;
      s.pending.clear();
      for (int32_t n = 1 + Below(p_.chunk); n > 0; n--) s.pending.push_back(AnyToken());
      script_.n_rewinds++;
    }
    return Status::Ok();
  }

  // Every decoding sequence gives one row; what is left of the tick is prefilled, the first sequence first.
  Status Tick() {
    DecodeOp op;
    int32_t room = p_.chunk;
    int32_t n_decoding = 0;
    for (int32_t seq = 0; seq < p_.n_seq; seq++) {
      if (sequences_[seq].alive && sequences_[seq].pending.size() == 1) {
        Take(seq, &op);
        n_decoding++;
      }
    }
    for (int32_t seq = 0; seq < p_.n_seq; seq++) {
      if (!sequences_[seq].alive || sequences_[seq].pending.size() < 2) continue;
      if (n_decoding > 0 && room > 0) script_.n_mixed++;
      while (room > 0 && !sequences_[seq].pending.empty()) {
        Take(seq, &op);
        room--;
      }
    }
    if (Status s = whole_.Decode(op.rows, nullptr); !s.ok()) return s;
    for (size_t i = 0; i < op.rows.size(); i++) {
      if (!op.rows[i].want_logits) continue;
      const float * row = whole_.logits(i);
      op.logits.emplace_back(row, row + whole_.info().n_vocab);
      const int32_t token = Argmax(row, whole_.info().n_vocab);
      sequences_[op.rows[i].seq].pending.push_back(token);
      if (op.rows[i].seq == 0) script_.greedy.push_back(token);
      script_.n_logits++;
    }
    script_.n_rows += static_cast<int64_t>(op.rows.size());
    script_.ops.emplace_back(std::move(op));
    return Status::Ok();
  }

  void Take(int32_t seq, DecodeOp * op) {
    Sequence & s = sequences_[seq];
    const int32_t token = s.pending.front();
    s.pending.pop_front();
    op->rows.push_back({token, s.pos++, seq, s.pending.empty()});
  }

  Shard & whole_;
  const ScriptParams & p_;
  Script & script_;
  std::mt19937 random_;  // its output is fixed by the standard
  std::vector<Sequence> sequences_;
};

}  // namespace

int32_t Argmax(const float * logits, int32_t n) { return static_cast<int32_t>(std::max_element(logits, logits + n) - logits); }

Status Record(Shard & whole, const ScriptParams & params, Script * out) { return Recorder(whole, params, out).Run(); }

}  // namespace meshnet
