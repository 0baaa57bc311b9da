#include "engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "lane_bundle.h"
#include "engine_core.h"
#include "inbox.h"
#include "ledger.h"
#include "meter.h"

namespace meshnet {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// No deadline is further away than an hour; a wait that is cut short only looks again.
constexpr uint64_t kMaxWaitUs = 3'600'000'000;

// The key under which a probe holds its sequence; no session id is empty.
const LaneKey kProbeKey;

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Prefill payload is bounded by credit; everything else by a count.
bool IsCounted(const Frame & frame) {
  return frame.phase() != seam::v1::PHASE_PREFILL || frame.tensors_size() == 0 || frame.tensors(0).data().empty();
}

}  // namespace

struct Engine::Impl {
  Impl(std::unique_ptr<Shard> s, EngineParams p, EngineObserver o)
      : shard(std::move(s)),
        params(p),
        ledger(shard->info().n_ctx, shard->info().n_seq_max),
        core(
            shard.get(), p, std::move(o), &meter,
            [this](const LaneKey & key, uint64_t instance) {
              const std::lock_guard lock(mutex);
              ledger.Free(key, instance);
            },
            [this] {
              const std::lock_guard lock(mutex);
              drawn = true;
              news.notify_one();
            }) {}

  // Queues for a lane that lives. REQUIRES the mutex.
  template <typename What>
  void Push(const LaneKey & key, uint64_t instance, What what) {
    inbox.push_back({key, instance, std::move(what)});
    news.notify_one();
  }

  template <typename What>
  Status PushIfOpen(const LaneKey & key, What what) {
    const std::lock_guard lock(mutex);
    const auto * lease = ledger.Find(key);
    if (lease == nullptr) return {Code::kLaneNotOpen, "no such lane"};
    Push(key, lease->instance, std::move(what));
    return {};
  }

  void Loop() {
    for (bool idle = false;;) {
      std::vector<Command> commands;
      bool credit = false;
      {
        std::unique_lock lock(mutex);
        if (idle) WaitForNews(lock);
        if (stopping) break;
        commands.swap(inbox);
        credit = std::exchange(woken, false);
        drawn = false;
        for (const Command & command : commands) Uncount(command);
      }
      core.TakeDrawn();  // after the inbox was emptied, so nothing in it answers a token that is not taken
      if (credit) core.Unblock();
      for (Command & command : commands) Do(command);
      idle = !core.Tick();
      n_ready = core.n_ready();
    }
    core.EndAll({Code::kWorkerLost, "the worker is stopping"});
  }

  void WaitForNews(std::unique_lock<std::mutex> & lock) {
    const auto ready = [this] { return stopping || woken || drawn || !inbox.empty(); };
    const uint64_t now = NowUs();
    const uint64_t wake = core.WakeUs();
    news.wait_for(lock, microseconds(wake > now ? std::min(wake - now, kMaxWaitUs) : 0), ready);
  }

  // REQUIRES the mutex.
  void Uncount(const Command & command) {
    const auto * deliver = std::get_if<DeliverFrame>(&command.what);
    if (deliver == nullptr || !IsCounted(deliver->frame)) return;
    auto * lease = ledger.Find(command.key);
    if (lease != nullptr && lease->instance == command.instance) lease->queued--;
  }

  void Do(Command & command) {
    const LaneKey & key = command.key;
    const uint64_t id = command.instance;
    std::visit(Overloaded{
                   [&](OpenLane & c) { core.Open(c.params, id, c.seq); },
                   [&](AttachPort & c) { core.Attach(key, id, c.port, std::move(c.sink)); },
                   [&](DeliverFrame & c) { core.OnFrame(key, id, c.from, std::move(c.frame)); },
                   [&](ClosePort & c) { core.OnClosed(key, id, c.from); },
                   [&](FailPort & c) { core.OnFailed(key, id, c.from, c.why); },
                   [&](ExtendLane & c) { core.Extend(key, id, c.positions); },
                   [&](ReleaseLane & c) { Release(key, id, c.why); },
                   [&](RunProbe & c) { Probe(key, id, c); },
               },
               command.what);
  }

  void Release(const LaneKey & key, uint64_t instance, const Status & why) {
    core.Release(key, instance, why);
    const std::lock_guard lock(mutex);
    leaving.erase(leaving.find(key));
  }

  void Probe(const LaneKey & key, uint64_t instance, RunProbe & probe) {
    RunProbe::Answer answer;
    try {
      answer.status = core.Probe(probe.n_tokens, probe.seq, &answer.result);
    } catch (const std::exception & e) {
      answer.status = {Code::kInternal, e.what()};
    }
    {
      const std::lock_guard lock(mutex);
      ledger.Free(key, instance);
    }
    probe.answer.set_value(std::move(answer));
  }

  const std::unique_ptr<Shard> shard;
  const EngineParams params;
  Meter meter;

  mutable std::mutex mutex;  // guards the ledger, the inbox and the flags; never held across a decode
  std::condition_variable news;
  Ledger ledger;
  std::vector<Command> inbox;
  std::multiset<LaneKey> leaving;  // released, and their peers are about to be told why
  bool woken = false;
  bool drawn = false;  // by the sampling pool
  bool stopping = false;
  bool draining = false;
  std::atomic<uint32_t> n_ready = 0;

  EngineCore core;  // the engine thread's
  std::thread thread;
};

Engine::Engine(std::unique_ptr<Shard> shard, EngineParams params, EngineObserver observer)
    : impl_(std::make_unique<Impl>(std::move(shard), params, std::move(observer))) {
  impl_->thread = std::thread([this] { impl_->Loop(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->news.notify_one();
  impl_->thread.join();
}

const ShardInfo & Engine::shard_info() const { return impl_->shard->info(); }

uint64_t Engine::initial_credit() const {
  if (impl_->params.credit_bytes != 0) return impl_->params.credit_bytes;
  const ShardInfo & info = shard_info();
  return 2 * uint64_t{info.n_ubatch} * static_cast<uint64_t>(info.n_embd) * sizeof(float);
}

EngineStats Engine::Stats() const {
  EngineStats stats;
  impl_->meter.Read(&stats);
  const std::lock_guard lock(impl_->mutex);
  const Ledger & ledger = impl_->ledger;
  stats.cells_total = ledger.cells_total();
  stats.cells_free = ledger.cells_free();
  stats.sequences_total = ledger.sequences_total();
  stats.sequences_free = ledger.sequences_free();
  stats.lanes = ledger.lanes();
  stats.queue_depth = impl_->n_ready + static_cast<uint32_t>(impl_->inbox.size());
  return stats;
}

Status Engine::Admit(const LaneParams & params) {
  const ShardInfo & info = shard_info();
  const bool first = params.key.stage == 0;
  const bool last = params.key.stage + 1 == params.n_stages;
  if (params.n_stages == 0 || params.key.stage >= params.n_stages || first != info.is_head || last != info.is_tail) {
    return {Code::kRangeMismatch, "this shard cannot be stage " + std::to_string(params.key.stage) + " of " +
                                      std::to_string(params.n_stages)};
  }
  const auto width = static_cast<uint32_t>(info.n_embd);
  if (RowBytes(params.prefill_dtype, width) == 0 || RowBytes(params.decode_dtype, width) == 0) {
    return {Code::kDtypeInvalid, "the boundary cannot be carried in this dtype"};
  }
  const std::lock_guard lock(impl_->mutex);
  if (impl_->draining || impl_->stopping) return {Code::kDraining, "this worker takes no new lanes"};
  Ledger::Lease lease;
  if (Status s = impl_->ledger.Admit(params.key, params.positions, &lease); !s.ok()) return s;
  impl_->Push(params.key, lease.instance, OpenLane{params, lease.seq});
  return {};
}

Status Engine::Extend(const LaneKey & key, uint32_t positions) {
  const std::lock_guard lock(impl_->mutex);
  if (Status s = impl_->ledger.Extend(key, positions); !s.ok()) return s;
  impl_->Push(key, impl_->ledger.Find(key)->instance, ExtendLane{positions});
  return {};
}

void Engine::Release(const LaneKey & key, const Status & why) {
  const std::lock_guard lock(impl_->mutex);
  const auto * lease = impl_->ledger.Find(key);
  if (lease == nullptr) return;
  // Free for others at once: the engine clears the sequence before it reads anything that a later lane may send.
  const uint64_t instance = lease->instance;
  impl_->Push(key, instance, ReleaseLane{why});
  impl_->leaving.insert(key);
  impl_->ledger.Free(key, instance);
}

Status Engine::Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) {
  return impl_->PushIfOpen(key, AttachPort{port, std::move(sink)});
}

Status Engine::Deliver(const LaneKey & key, Port from, Frame frame) {
  const std::lock_guard lock(impl_->mutex);
  auto * lease = impl_->ledger.Find(key);
  if (lease == nullptr) {
    // A refusal now would reach the peer before the reason for the end, and stand for it.
    if (impl_->leaving.contains(key)) return {};
    if (impl_->ledger.IsStale(key)) return {Code::kEpochStale, "a higher epoch of this session is known"};
    return {Code::kLaneNotOpen, "no such lane"};
  }
  if (IsCounted(frame)) {
    if (lease->queued >= impl_->params.max_queued_frames) {
      return {Code::kResourceExhausted, "too many frames wait for the engine"};
    }
    lease->queued++;
  }
  impl_->Push(key, lease->instance, DeliverFrame{from, std::move(frame)});
  return {};
}

void Engine::PortClosed(const LaneKey & key, Port port) { (void)impl_->PushIfOpen(key, ClosePort{port}).ok(); }

void Engine::PortFailed(const LaneKey & key, Port port, const Status & why) {
  (void)impl_->PushIfOpen(key, FailPort{port, why}).ok();
}

void Engine::Wake() {
  const std::lock_guard lock(impl_->mutex);
  impl_->woken = true;
  impl_->news.notify_one();
}

Status Engine::Probe(uint32_t n_tokens, uint32_t deadline_ms, ProbeResult * out) {
  if (n_tokens == 0 || n_tokens > shard_info().n_ubatch) {
    return {Code::kLimitExceeded, "a probe has 1 to " + std::to_string(shard_info().n_ubatch) + " tokens"};
  }
  std::future<RunProbe::Answer> answer;
  {
    const std::lock_guard lock(impl_->mutex);
    Ledger::Lease lease;
    if (Status s = impl_->ledger.Admit(kProbeKey, n_tokens + 1, &lease); !s.ok()) return s;
    RunProbe probe{.n_tokens = n_tokens, .seq = lease.seq, .answer = {}};
    answer = probe.answer.get_future();
    impl_->Push(kProbeKey, lease.instance, std::move(probe));
  }
  if (answer.wait_for(milliseconds(deadline_ms)) != std::future_status::ready) {
    return {Code::kDeadlineExceeded, "the engine had no time for the probe"};
  }
  RunProbe::Answer got = answer.get();
  *out = got.result;
  return got.status;
}

void Engine::Drain() {
  const std::lock_guard lock(impl_->mutex);
  impl_->draining = true;
}

}  // namespace meshnet
