#include "engine_core.h"

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "bounds.h"

namespace meshnet {
namespace {

// The longest that a stage says it computed for the step; 0: none says.
uint64_t SlowestUs(const Frame & frame) {
  uint64_t slowest = 0;
  for (const auto & times : frame.times()) slowest = std::max<uint64_t>(slowest, times.compute_us());
  return slowest;
}

// A trace has the tokens of a tick with the tick, so they are not drawn apart.
std::unique_ptr<SamplingPool> PoolFor(const Shard & shard, const EngineParams & params, std::function<void()> drawn) {
  if (!shard.info().is_tail || params.trace_logits || params.sampling_threads == 0 || !drawn) return nullptr;
  return std::make_unique<SamplingPool>(params.sampling_threads, std::move(drawn));
}

}  // namespace

EngineCore::EngineCore(Shard * shard, EngineParams params, EngineObserver observer, Meter * meter, Freed freed,
                       std::function<void()> drawn)
    : shard_(shard),
      params_(params),
      observer_(std::move(observer)),
      meter_(meter),
      freed_(std::move(freed)),
      sequences_(shard, params.trace_logits),
      pieces_(shard->vocab()),
      pool_(PoolFor(*shard, params, std::move(drawn))),
      runner_(shard, &sequences_, meter, pool_.get(), params.trace_logits ? observer_.tick : nullptr),
      // Several heads may share a later stage: a random start keeps their groups apart there.
      next_group_((uint64_t{std::random_device{}()} << 16) + 1) {}

void EngineCore::Open(const LaneParams & params, uint64_t instance, int32_t seq) {
  const ShardInfo & info = shard_->info();
  LaneSpec spec{.params = params,
                .head = info.is_head,
                .tail = info.is_tail,
                .n_embd = static_cast<uint32_t>(info.n_embd),
                .n_vocab = info.n_vocab,
                .n_ubatch = info.n_ubatch,
                .seq = seq,
                .step_deadline_us = uint64_t{params_.step_deadline_ms} * 1000};
  lanes_[params.key] = std::make_unique<Entry>(instance, std::move(spec), this);
}

void EngineCore::Attach(const LaneKey & key, uint64_t instance, Port port, std::shared_ptr<FrameSink> sink) {
  if (Entry * entry = Find(key, instance)) {
    entry->lane.ports.Attach(port, std::move(sink));
    entry->lane.Unblock();
  }
}

void EngineCore::OnFrame(const LaneKey & key, uint64_t instance, Port from, Frame frame) {
  if (frame.has_error()) {
    if (Entry * entry = Find(key, instance)) End(*entry, StatusOf(frame.error()), from, &frame);
    return;
  }
  if (frame.has_close()) return OnClosed(key, instance, from);
  OnLane(key, instance, [&](Entry & entry) -> Status {
    const bool turn = frame.has_turn();
    const uint64_t stale = entry.lane.stale_frames();
    const uint64_t now = NowUs();
    const bool away = entry.lane.in_ring();
    const uint64_t slowest = away ? SlowestUs(frame) : 0;
    if (Status s = entry.lane.OnFrame(from, std::move(frame), now); !s.ok()) return s;
    if (away && !entry.lane.in_ring()) pace_.Returned(entry.lane.sent_group(), now - entry.lane.sent_us(), slowest);
    meter_->Stale(entry.lane.stale_frames() - stale);
    const LaneSpec & spec = entry.lane.spec();
    if (!turn || !spec.tail) return {};
    std::unique_ptr<Sampler> sampler;
    Status made = Sampler::Create(entry.lane.turn().announced(), spec.params.positions, &pieces_, &sampler);
    entry.sampler = std::move(sampler);
    return made;
  });
}

void EngineCore::OnClosed(const LaneKey & key, uint64_t instance, Port from) {
  OnLane(key, instance, [&](Entry & entry) { return entry.lane.OnClosed(from, NowUs()); });
}

void EngineCore::OnFailed(const LaneKey & key, uint64_t instance, Port from, const Status & why) {
  if (Entry * entry = Find(key, instance)) End(*entry, why, from);
}

void EngineCore::Extend(const LaneKey & key, uint64_t instance, uint32_t positions) {
  if (Entry * entry = Find(key, instance)) entry->lane.Extend(positions);
}

void EngineCore::Release(const LaneKey & key, uint64_t instance, const Status & why) {
  Entry * entry = Find(key, instance);
  if (entry == nullptr) return;
  const bool cut = why.ok() && entry->lane.busy();
  End(*entry, cut ? Status(Code::kCancelled, "the lane was released during a turn") : why, std::nullopt);
}

void EngineCore::EndAll(const Status & why) {
  while (!lanes_.empty()) End(*lanes_.begin()->second, why, std::nullopt);
}

void EngineCore::TakeDrawn() {
  if (!pool_) return;
  for (const DrawResult & result : pool_->Take()) {
    const auto it = lanes_.find(result.lane);
    if (it == lanes_.end() || it->second->draw != result.id) continue;
    Entry & entry = *it->second;
    entry.draw = 0;
    if (!result.status.ok()) {
      End(entry, result.status, std::nullopt);
      continue;
    }
    entry.lane.Accept(result.drawn, result.finish, NowUs());
    FreeIfDone(entry);
  }
}

void EngineCore::Recall(const LaneKey & key) {
  const auto it = lanes_.find(key);
  if (it == lanes_.end() || it->second->draw == 0) return;
  Entry & entry = *it->second;
  const auto result = pool_->Recall(std::exchange(entry.draw, 0));
  if (result && result->status.ok()) entry.lane.Accept(result->drawn, result->finish, NowUs());
}

void EngineCore::Unblock() {
  for (auto & [key, entry] : lanes_) entry->lane.Unblock();
}

EngineCore::Entry * EngineCore::Find(const LaneKey & key, uint64_t instance) {
  auto it = lanes_.find(key);
  return it == lanes_.end() || it->second->instance != instance ? nullptr : it->second.get();
}

template <typename Step>
void EngineCore::OnLane(const LaneKey & key, uint64_t instance, Step step) {
  Entry * entry = Find(key, instance);
  if (entry == nullptr) return;
  Status status;
  try {
    status = step(*entry);
  } catch (const std::exception & e) {
    status = {Code::kInternal, e.what()};
  }
  if (status.ok()) return FreeIfDone(*entry);
  End(*entry, status, std::nullopt);
}

void EngineCore::End(Entry & entry, const Status & why, std::optional<Port> except, const Frame * original) {
  const LaneKey key = entry.lane.spec().params.key;
  const uint64_t instance = entry.instance;
  entry.lane.Abandon();
  if (why.ok()) {
    entry.lane.ports.CloseAll();
  } else {
    entry.lane.ports.SendAll(original != nullptr ? *original : ErrorFrame(why, key.stage), except);
  }
  sequences_.Clear(entry.lane.spec().seq);
  lanes_.erase(key);
  freed_(key, instance);
  if (observer_.lane_ended) observer_.lane_ended(key, why);
}

void EngineCore::FreeIfDone(Entry & entry) {
  if (!entry.lane.turn().running()) entry.sampler.reset();
  if (entry.lane.wants_close()) End(entry, {}, std::nullopt);
}

void EngineCore::Expire(uint64_t now_us) {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    Entry & entry = *(it++)->second;
    if (entry.lane.deadline_us() > now_us) continue;
    End(entry, {Code::kSeamTimeout, "the next stage, or the one before, did not answer in time"}, std::nullopt);
  }
}

std::map<std::string_view, uint32_t> EngineCore::Clients() const {
  std::map<std::string_view, uint32_t> clients;
  for (const auto & [key, entry] : lanes_) {
    clients.try_emplace(entry->lane.spec().params.client, static_cast<uint32_t>(clients.size()));
  }
  return clients;
}

std::vector<TickLane> EngineCore::Pick(uint64_t now_us) {
  const ShardInfo & info = shard_->info();
  const auto clients = info.is_head ? Clients() : std::map<std::string_view, uint32_t>();
  for (;;) {
    std::vector<Entry *> entries;
    std::vector<Candidate> candidates;
    RingLoad load{.step_us = decode_us_};
    std::set<uint64_t> away;
    uint64_t lost_us = UINT64_MAX;
    wake_us_ = UINT64_MAX;
    for (auto & [key, entry] : lanes_) {
      const Lane & lane = entry->lane;
      wake_us_ = std::min(wake_us_, lane.deadline_us());
      if (lane.generating()) {
        const uint32_t n_stages = std::max(1U, lane.spec().params.n_stages);
        load.lanes++;
        load.shares += 1.0 / n_stages;
        load.n_stages = std::max(load.n_stages, n_stages);
        const uint64_t lost = lane.in_ring() ? pace_.LostAt(lane.sent_us()) : UINT64_MAX;
        if (lost > now_us) {
          load.pace = &pace_;
          load.alive++;
          lost_us = std::min(lost_us, lost);
        }
        // Only one stage is head and tail. Drawing mostly takes less than a tick; for longer nobody is held up.
        if (info.is_tail && lane.in_ring()) load.back_us = std::max(load.back_us, lane.sent_us() + decode_us_);
      }
      if (lane.in_ring()) away.insert(lane.sent_group());
      auto candidate = lane.Ready();
      if (!candidate) continue;
      if (!candidate->decode && !candidate->blocked) load.prompts++;
      load.prompt_rows += candidate->waiting;
      if (info.is_head) {
        const std::string & client = lane.spec().params.client;
        candidate->client = clients.at(client);
        if (!candidate->decode) candidate->client_ran_us = clients_.ran_us(client);
      }
      candidate->lane = entries.size();
      entries.push_back(entry.get());
      candidates.push_back(*candidate);
    }
    n_ready_ = static_cast<uint32_t>(candidates.size());
    load.away = static_cast<uint32_t>(away.size());
    if (params_.lockstep) {
      const auto in_ring = [](const auto & item) { return item.second->lane.in_ring(); };
      if (std::any_of(lanes_.begin(), lanes_.end(), in_ring)) return {};
      load.n_stages = 1;
    } else {
      load.alone_rows = pace_.AloneRows();
      if (load.n_stages > 1) load.cap = batch_.Cap(DecodeCap(load));
    }
    load_ = load;
    const Schedule schedule = info.is_head
                                  ? ScheduleHead(candidates, load, book_, info.n_ubatch, now_us, params_.group_wait_us)
                                  : ScheduleLater(candidates, book_, info.n_ubatch, now_us, params_.group_wait_us);
    held_ = schedule.held;
    wake_us_ = std::min(wake_us_, schedule.wake_us);
    if (load.prompts > 0) wake_us_ = std::min({wake_us_, lost_us, pace_.ForgetAt()});
    if (schedule.picks.empty()) return {};

    std::vector<TickLane> lanes;
    for (const auto & pick : schedule.picks) {
      Entry & entry = *entries[pick.lane];
      const LaneRun run = entry.lane.Plan(pick.rows);
      if (entry.lane.Reserve(run, now_us)) lanes.push_back({&entry.lane, entry.sampler, run, {}});
    }
    if (!lanes.empty()) return lanes;
  }
}

void EngineCore::Learn(std::span<const TickLane> lanes, uint64_t start_us, uint64_t took_us) {
  uint32_t decode = 0;
  uint32_t prefill = 0;
  for (const TickLane & lane : lanes) {
    (lane.run.phase == seam::v1::PHASE_DECODE ? decode : prefill) += lane.run.rows;
  }
  if (prefill == 0) decode_us_ = took_us;
  if (!shard_->info().is_head) return;
  pace_.Ran(decode, prefill, took_us, load_.alive);
  if (load_.n_stages > 1) {
    batch_.Ran({.start_us = start_us,
                .rows = decode,
                .prefill = prefill > 0 || load_.prompts > 0,
                .lanes = load_.lanes,
                .most = DecodeCap(load_),
                .took_us = took_us});
  }
  if (!shard_->info().is_tail) pace_.Sent(lanes.front().run.group.number, prefill > 0, start_us + took_us);
}

bool EngineCore::Tick() {
  const uint64_t now = NowUs();
  Expire(now);
  pace_.Forget(now);
  std::vector<TickLane> lanes = Pick(now);
  if (lanes.empty()) return false;
  if (shard_->info().is_head) {
    const GroupKey group{next_group_++, static_cast<uint32_t>(lanes.size())};
    for (TickLane & lane : lanes) lane.run.group = group;
  }
  try {
    runner_.Run(lanes);
  } catch (const std::exception & e) {
    for (TickLane & lane : lanes) lane.status = {Code::kInternal, e.what()};
  }
  const auto ran = [](const TickLane & lane) { return lane.status.ok(); };
  const uint64_t took_us = NowUs() - now;
  if (std::all_of(lanes.begin(), lanes.end(), ran)) Learn(lanes, now, took_us);
  pace_.Held(held_, took_us);
  for (TickLane & lane : lanes) {
    if (shard_->info().is_head && lane.run.phase == seam::v1::PHASE_PREFILL) {
      clients_.Ran(lane.lane->spec().params.client, now);
    }
    Entry & entry = *lanes_.at(lane.lane->spec().params.key);
    entry.draw = lane.draw;
    if (!lane.status.ok()) {
      End(entry, lane.status, std::nullopt);
    } else {
      FreeIfDone(entry);
    }
  }
  return true;
}

}  // namespace meshnet
