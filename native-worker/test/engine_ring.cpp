#include "engine_ring.h"

#include <chrono>
#include <functional>
#include <random>

#include "lane_ports.h"

namespace meshnet {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr int kMaxIds = 1024;  // sessions that a test may open

}  // namespace

// One direction between two lanes of a session, with the credit of its receiver.
class Ring::Wire final : public FrameSink {
 public:
  Wire(Ring * ring, LaneKey from, Port at_from, LaneKey to, Port at_to)
      : ring_(ring), from_(std::move(from)), to_(std::move(to)), at_from_(at_from), at_to_(at_to) {
    credit_ = static_cast<int64_t>(Receiver().initial_credit());
  }
  void Join(std::shared_ptr<Wire> reverse) { reverse_ = reverse; }

  void Send(Frame frame) override {
    Tamper tamper;
    {
      const std::lock_guard lock(ring_->mutex_);
      tamper = ring_->tamper_;
    }
    if (tamper && !tamper(to_.stage, frame)) return;
    const Status status = Receiver().Deliver(to_, at_to_, std::move(frame));
    if (!status.ok()) ring_->engine(from_.stage).PortFailed(from_, at_from_, status);
  }
  bool ReserveCredit(uint64_t bytes) override {
    if (credit_ < static_cast<int64_t>(bytes)) return false;
    credit_ -= static_cast<int64_t>(bytes);
    return true;
  }
  void Consumed(uint64_t bytes) override {
    const auto reverse = reverse_.lock();
    if (!reverse) return;  // the other side is gone
    reverse->credit_ += static_cast<int64_t>(bytes);
    Receiver().Wake();
  }
  void SendClose() override { Receiver().PortClosed(to_, at_to_); }

 private:
  Engine & Receiver() { return ring_->engine(to_.stage); }

  Ring * ring_;
  LaneKey from_, to_;
  Port at_from_, at_to_;
  std::atomic<int64_t> credit_;
  std::weak_ptr<Wire> reverse_;
};

void Gateway::Send(Frame frame) {
  const std::lock_guard lock(mutex_);
  frames_.push_back(std::move(frame));
  news_.notify_all();
}

void Gateway::SendClose() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  news_.notify_all();
}

Frame Gateway::Next() {
  std::unique_lock lock(mutex_);
  if (!news_.wait_for(lock, kPatience, [this] { return !frames_.empty(); })) {
    ADD_FAILURE() << "no frame came";
    return ErrorFrame({Code::kDeadlineExceeded, "no frame came"}, 0);
  }
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

Gateway::Answer Gateway::Finish() {
  Answer answer;
  for (;;) {
    const Frame frame = Next();
    if (frame.has_error()) {
      answer.error = StatusOf(frame.error()).code();
      return answer;
    }
    answer.pos = frame.pos();
    for (const int32_t token : frame.tokens()) answer.tokens.push_back(token);
    for (const auto & logprobs : frame.logprobs()) answer.logprobs.push_back(logprobs);
    if (frame.finish() != seam::v1::FINISH_UNSPECIFIED) {
      answer.finish = frame.finish();
      return answer;
    }
  }
}

bool Gateway::WaitClosed() {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, kPatience, [this] { return closed_; });
}

size_t Gateway::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return frames_.size();
}

ShardParams ParamsOf(const RingOptions & options, uint32_t stage) {
  ShardParams params;
  params.model_path = g_model_path;
  params.layer_first = stage == 0 ? 0 : options.cuts[stage - 1];
  params.layer_last = stage == options.cuts.size() ? -1 : options.cuts[stage];
  params.n_ctx = options.n_ctx;
  params.n_seq_max = options.n_seq_max;
  params.n_ubatch = options.n_ubatch;
  return params;
}

void Gate::Pass() {
  std::unique_lock lock(mutex_);
  reached_ = true;
  news_.notify_all();
  EXPECT_TRUE(news_.wait_for(lock, kPatience, [this] { return open_; })) << "nobody opened the gate";
}

void Gate::WaitForOne() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(news_.wait_for(lock, kPatience, [this] { return reached_; })) << "nobody came to the gate";
}

void Gate::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  news_.notify_all();
}

Ring::Ring(RingOptions options) : options_(std::move(options)) {
  ticks_.resize(options_.cuts.size() + 1);
  for (uint32_t i = 0; i < ticks_.size(); i++) {
    ShardParams params = ParamsOf(options_, i);
    if (options_.give_up) {
      params.give_up = [this, i](std::span<const Row> rows) { return options_.give_up(i, rows); };
    }
    std::unique_ptr<Shard> shard;
    const Status status = Shard::Load(params, &shard);
    if (!status.ok()) throw std::runtime_error(status.message());
    if (options_.wrap) shard = options_.wrap(i, std::move(*shard));
    EngineObserver observer;
    observer.lane_ended = [this](const LaneKey & key, const Status & why) {
      const std::lock_guard lock(mutex_);
      ended_.push_back({key, why.code()});
      news_.notify_all();
    };
    observer.tick = [this, i](const TickTrace & tick) {
      const std::lock_guard lock(mutex_);
      ticks_[i].push_back(tick);
    };
    engines_.push_back(std::make_unique<Engine>(std::move(shard), options_.params, observer));
  }
}

Ring::~Ring() {
  for (uint32_t stage = 0; stage < n_stages(); stage++) {
    for (int id = 0; id < kMaxIds; id++) engines_[stage]->Release(Key(id, stage), {});
  }
  // A probe waits behind the releases: after it nobody sends to an engine that is gone.
  for (const auto & engine : engines_) {
    Engine::ProbeResult result;
    EXPECT_TRUE(engine->Probe(1, 10000, &result).ok());
  }
}

LaneKey Ring::Key(int id, uint32_t stage) const {
  const char digits[] = {static_cast<char>('A' + id / 32), static_cast<char>('A' + id % 32)};
  return {std::string(14, 's') + std::string(digits, 2), 1, stage};
}

std::shared_ptr<Gateway> Ring::Open(int id, uint32_t positions) {
  const uint32_t n = n_stages();
  for (uint32_t i = 0; i < n; i++) {
    const Status status = engines_[i]->Admit({Key(id, i), n, positions, options_.dtype, options_.dtype});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  const auto join = [&](uint32_t a, Port at_a, uint32_t b, Port at_b) {
    auto forth = std::make_shared<Wire>(this, Key(id, a), at_a, Key(id, b), at_b);
    auto back = std::make_shared<Wire>(this, Key(id, b), at_b, Key(id, a), at_a);
    forth->Join(back);
    back->Join(forth);
    EXPECT_TRUE(engines_[a]->Attach(Key(id, a), at_a, forth).ok());
    EXPECT_TRUE(engines_[b]->Attach(Key(id, b), at_b, back).ok());
  };
  for (uint32_t i = 0; i + 1 < n; i++) join(i, Port::kDown, i + 1, Port::kUp);
  if (n > 2) join(n - 1, Port::kLoop, 0, Port::kLoop);
  auto gateway = std::make_shared<Gateway>();
  EXPECT_TRUE(engines_[0]->Attach(Key(id, 0), Port::kUp, gateway).ok());
  return gateway;
}

void Ring::Turn(int id, const seam::v1::Turn & turn, const std::vector<int32_t> & ids) {
  Frame frame;
  *frame.mutable_turn() = turn;
  EXPECT_TRUE(engines_[0]->Deliver(Key(id, 0), Port::kUp, frame).ok());
  // Two pieces where there can be two.
  const size_t cut = ids.size() / 2;
  for (const auto & [from, to] : {std::pair<size_t, size_t>{0, cut}, {cut, ids.size()}}) {
    if (from == to) continue;
    Frame piece;
    auto * tokens = piece.mutable_turn_tokens();
    tokens->set_turn(turn.turn());
    for (size_t i = from; i < to; i++) tokens->add_ids(ids[i]);
    tokens->set_last(to == ids.size());
    (void)engines_[0]->Deliver(Key(id, 0), Port::kUp, piece).ok();  // the lane may have died of the Turn
  }
}

void Ring::Cancel(int id, uint32_t turn) {
  Frame frame;
  frame.mutable_cancel()->set_turn(turn);
  EXPECT_TRUE(engines_[0]->Deliver(Key(id, 0), Port::kUp, frame).ok());
}

void Ring::CancelIfOpen(int id, uint32_t turn) {
  Frame frame;
  frame.mutable_cancel()->set_turn(turn);
  (void)engines_[0]->Deliver(Key(id, 0), Port::kUp, frame).ok();
}

Code Ring::WaitEnded(int id, uint32_t stage) {
  std::unique_lock lock(mutex_);
  Code code = Code::kInternal;
  const auto over = [&] {
    for (const Ended & ended : ended_) {
      if (ended.key != Key(id, stage)) continue;
      code = ended.code;
      return true;
    }
    return false;
  };
  EXPECT_TRUE(news_.wait_for(lock, kPatience, over)) << "the lane at stage " << stage << " did not end";
  return code;
}

std::vector<TickTrace> Ring::Ticks(uint32_t stage) {
  const std::lock_guard lock(mutex_);
  return ticks_[stage];
}

void Ring::SetTamper(Tamper tamper) {
  const std::lock_guard lock(mutex_);
  tamper_ = std::move(tamper);
}

seam::v1::Turn MakeTurn(uint32_t number, uint32_t start, size_t n_tokens, uint32_t max_tokens) {
  seam::v1::Turn turn;
  turn.set_turn(number);
  turn.set_start(start);
  turn.set_n_tokens(static_cast<uint32_t>(n_tokens));
  turn.set_max_tokens(max_tokens);
  turn.set_logprobs(-1);
  turn.set_ignore_end(true);
  return turn;
}

std::vector<int32_t> Prompt(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t & id : ids) id = static_cast<int32_t>(random() % 30000);
  return ids;
}

}  // namespace meshnet
