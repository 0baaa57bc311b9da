#include "sessions_play.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::FINISH_CONTEXT_FULL;
using seam::v1::FINISH_MAX_TOKENS;
using seam::v1::FINISH_UNSPECIFIED;

constexpr int32_t kFirstMarker = 300;  // above control and byte tokens
constexpr int kWholeId = 470;          // of the session that fills every cell; its markers fit a vocabulary of 4096
constexpr uint32_t kMaxTokens = 16;    // of an answer
constexpr uint32_t kMaxTurns = 6;      // of a session

// What happens to a turn before it is over.
enum class Act {
  kNothing,
  kCancel,
  kClose,       // the gateway leaves in order
  kReleaseAll,  // the lease ends
  kReleaseOne,  // at one stage, which has to tell the others
};

bool Ends(Act act) { return act != Act::kNothing && act != Act::kCancel; }

std::string Name(const PlayedSession & session, const PlayedTurn & turn) {
  return "session " + std::to_string(session.id) + ", turn " + std::to_string(turn.turn.turn());
}

seam::v1::Turn MarkedTurn(int id, uint32_t number, uint32_t start, size_t n_tokens, uint32_t max_tokens) {
  constexpr float kCertain = 100;
  seam::v1::Turn turn = MakeTurn(number, start, n_tokens, max_tokens);
  for (int32_t i = 0; i < kMarkers; i++) {
    auto * bias = turn.mutable_sampling()->add_logit_bias();
    bias->set_token(FirstMarker(id) + i);
    bias->set_bias(kCertain);
  }
  return turn;
}

void CheckFinish(const PlayedSession & session, const PlayedTurn & turn, bool cancelled, Findings * findings) {
  const uint32_t end = turn.turn.start() + turn.turn.n_tokens();
  const auto n = static_cast<uint32_t>(turn.tokens.size());
  const bool whole = turn.finish == FINISH_MAX_TOKENS && n == turn.turn.max_tokens();
  const bool full = turn.finish == FINISH_CONTEXT_FULL && turn.pos == session.positions;
  if (!whole && !full && !(cancelled && turn.finish == FINISH_CANCELLED)) {
    findings->Add(Name(session, turn) + " ended by " + std::to_string(turn.finish) + " after " + std::to_string(n) +
                  " tokens");
  }
  // The last token was not run.
  const bool right = n > 0 ? turn.pos == end + n - 1 : turn.pos >= turn.turn.start() && turn.pos < end;
  if (!right) findings->Add(Name(session, turn) + " ended at " + std::to_string(turn.pos));
}

// Takes the answer until its finish; `on_progress` is told before each frame how many tokens have come. False: an error
// came instead.
bool Await(Gateway & gateway, const PlayedSession & session, PlayedTurn * turn, Findings * findings,
           const std::function<void(size_t)> & on_progress, std::string * error) {
  for (;;) {
    on_progress(turn->tokens.size());
    const Frame frame = gateway.Next();
    if (frame.has_error()) {
      *error = frame.error().message();
      return false;
    }
    for (const int32_t token : frame.tokens()) {
      if (token < FirstMarker(session.id) || token >= FirstMarker(session.id) + kMarkers) {
        findings->Add(Name(session, *turn) + " got " + std::to_string(token) + ", which is no marker of its own");
      }
      turn->tokens.push_back(token);
    }
    if (frame.finish() == FINISH_UNSPECIFIED) continue;
    turn->finish = frame.finish();
    turn->pos = frame.pos();
    return true;
  }
}

void WaitEndedEverywhere(Ring * ring, const PlayedSession & session, bool in_order, Findings * findings) {
  for (uint32_t stage = 0; stage < ring->n_stages(); stage++) {
    const Code code = ring->WaitEnded(session.id, stage);
    if (!in_order || code == Code::kOk) continue;
    findings->Add("session " + std::to_string(session.id) + " left in order and ended at stage " +
                  std::to_string(stage) + " with code " + std::to_string(static_cast<int>(code)));
  }
}

class Seat {
 public:
  Seat(Ring * ring, const PlayParams & params, uint32_t number, Findings * findings)
      : ring_(ring), params_(params), number_(number), findings_(findings), random_(params.seed * 1000 + number) {}

  void Run() {
    uint32_t left = params_.turns / params_.seats + (number_ < params_.turns % params_.seats ? 1 : 0);
    for (uint32_t life = 0; left > 0; life++) {
      const uint32_t n = std::min(left, 1 + Below(kMaxTurns));
      sessions_.push_back(Live(static_cast<int>(number_ + life * params_.seats), n));
      left -= static_cast<uint32_t>(sessions_.back().turns.size());
    }
  }
  std::vector<PlayedSession> TakeSessions() { return std::move(sessions_); }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  PlayedSession Live(int id, uint32_t n_turns) {
    PlayedSession session{.id = id, .session = ring_->Key(id, 0).session, .positions = params_.positions};
    const auto gateway = ring_->Open(id, params_.positions);
    bool open = true;
    for (uint32_t i = 0; i < n_turns && open; i++) open = PlayTurn(*gateway, &session);
    const bool in_order = open && Below(2) == 0;
    if (open) Do(in_order ? Act::kClose : Act::kReleaseAll, session);
    WaitEndedEverywhere(ring_, session, in_order, findings_);
    return session;
  }

  // False: the session is over.
  bool PlayTurn(Gateway & gateway, PlayedSession * session) {
    PlayedTurn turn = NextTurn(*session);
    const Act act = PickAct();
    const uint32_t after = Below(turn.turn.max_tokens());
    bool acted = false;
    const auto on_progress = [&](size_t n_tokens) {
      if (act == Act::kNothing || acted || n_tokens < after) return;
      acted = true;
      Do(act, *session);
    };
    session->turns.push_back(turn);
    ring_->Turn(session->id, turn.turn, turn.ids);
    std::string error;
    const bool finished = Await(gateway, *session, &turn, findings_, on_progress, &error);
    session->turns.back() = turn;
    const bool ended = acted && Ends(act);
    if (finished) {
      CheckFinish(*session, turn, acted, findings_);
    } else if (!ended) {
      findings_->Add(Name(*session, turn) + " failed: " + error);
    }
    return finished && !ended;
  }

  PlayedTurn NextTurn(const PlayedSession & session) {
    const uint32_t next = session.turns.empty() ? 0 : session.turns.back().pos;
    const uint32_t n = 1 + Below(Below(8) == 0 ? params_.max_long : params_.max_prompt);
    const uint32_t whence = Below(10);
    uint32_t start = next;                             // goes on
    if (whence >= 6 && next > 0) start = Below(next);  // goes back
    if (whence == 9 || start + n > session.positions) start = 0;
    const auto number = static_cast<uint32_t>(session.turns.size() + 1);
    PlayedTurn turn{.turn = MarkedTurn(session.id, number, start, n, 1 + Below(kMaxTokens)), .ids = {}};
    const auto marker = [&] { return FirstMarker(session.id) + static_cast<int32_t>(Below(uint32_t{kMarkers})); };
    std::generate_n(std::back_inserter(turn.ids), n, marker);
    if (Below(2) == 0) {
      auto * sampling = turn.turn.mutable_sampling();
      sampling->set_temperature(0.9f);
      sampling->set_presence_penalty(0.5f);
      sampling->set_seed(random_());
    }
    return turn;
  }

  Act PickAct() {
    const uint32_t n = Below(100);
    if (n < 60) return Act::kNothing;
    if (n < 80) return Act::kCancel;
    if (n < 86) return Act::kClose;
    return n < 93 ? Act::kReleaseAll : Act::kReleaseOne;
  }

  void Do(Act act, const PlayedSession & session) {
    const uint32_t n = ring_->n_stages();
    const uint32_t first = Below(n);
    const auto release = [&](uint32_t stage) { ring_->engine(stage).Release(ring_->Key(session.id, stage), {}); };
    switch (act) {
      case Act::kNothing:
        break;
      case Act::kCancel:
        ring_->CancelIfOpen(session.id, static_cast<uint32_t>(session.turns.size()));
        break;
      case Act::kClose:
        ring_->Close(session.id);
        break;
      case Act::kReleaseAll:
        for (uint32_t i = 0; i < n; i++) release((first + i) % n);
        break;
      case Act::kReleaseOne:
        release(first);
        break;
    }
  }

  Ring * ring_;
  const PlayParams & params_;
  uint32_t number_;
  Findings * findings_;
  std::mt19937 random_;  // its output is fixed by the standard
  std::vector<PlayedSession> sessions_;
};

}  // namespace

int32_t FirstMarker(int id) { return kFirstMarker + kMarkers * id; }

std::vector<PlayedSession> Play(Ring * ring, const PlayParams & params, Findings * findings) {
  std::vector<Seat> seats;
  for (uint32_t i = 0; i < params.seats; i++) seats.emplace_back(ring, params, i, findings);
  std::vector<std::thread> threads;
  for (Seat & seat : seats) threads.emplace_back([&seat] { seat.Run(); });
  for (std::thread & thread : threads) thread.join();
  std::vector<PlayedSession> sessions;
  for (Seat & seat : seats) {
    for (PlayedSession & session : seat.TakeSessions()) sessions.push_back(std::move(session));
  }
  return sessions;
}

void CheckAllFree(Ring * ring, Findings * findings) {
  for (uint32_t stage = 0; stage < ring->n_stages(); stage++) {
    const EngineStats stats = ring->engine(stage).Stats();
    if (stats.lanes == 0 && stats.cells_free == stats.cells_total && stats.sequences_free == stats.sequences_total) {
      continue;
    }
    findings->Add("stage " + std::to_string(stage) + " still holds " + std::to_string(stats.lanes) + " lanes, " +
                  std::to_string(stats.cells_total - stats.cells_free) + " cells, " +
                  std::to_string(stats.sequences_total - stats.sequences_free) + " ids");
  }
}

PlayedSession FillEveryCell(Ring * ring, Findings * findings) {
  const uint32_t cells = ring->engine(0).Stats().cells_total;
  PlayedSession session{.id = kWholeId, .session = ring->Key(kWholeId, 0).session, .positions = cells};
  PlayedTurn turn{.turn = MarkedTurn(kWholeId, 1, 0, cells, 1), .ids = {}};
  for (uint32_t i = 0; i < cells; i++) {
    turn.ids.push_back(FirstMarker(kWholeId) + static_cast<int32_t>(i % uint32_t{kMarkers}));
  }
  const auto gateway = ring->Open(kWholeId, cells);
  ring->Turn(kWholeId, turn.turn, turn.ids);
  std::string error;
  const bool finished = Await(*gateway, session, &turn, findings, [](size_t) {}, &error);
  if (finished) {
    CheckFinish(session, turn, false, findings);
    ring->Close(kWholeId);
  } else {
    findings->Add("a session that needs every cell failed: " + error);
  }
  session.turns.push_back(turn);
  WaitEndedEverywhere(ring, session, finished, findings);
  return session;
}

}  // namespace meshnet
