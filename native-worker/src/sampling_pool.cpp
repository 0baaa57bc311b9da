#include "sampling_pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tick.h"

namespace meshnet {

SamplingPool::SamplingPool(uint32_t n_threads, std::function<void()> news) : news_(std::move(news)) {
  for (uint32_t i = 0; i < n_threads; i++) threads_.emplace_back([this] { Work(); });
}

SamplingPool::~SamplingPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread & thread : threads_) thread.join();
}

void SamplingPool::Submit(std::vector<Draw> draws) {
  if (draws.empty()) return;
  Tick tick;
  tick.n_left = draws.size();
  for (Draw & draw : draws) {
    DrawResult result{.id = draw.id, .lane = draw.lane, .drawn = {}, .status = {}};
    tick.items.push_back({.draw = std::move(draw), .result = std::move(result)});
  }
  {
    const std::lock_guard lock(mutex_);
    ticks_.push_back(std::move(tick));
  }
  work_.notify_all();
}

std::vector<DrawResult> SamplingPool::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

std::optional<DrawResult> SamplingPool::Recall(uint64_t id) {
  Draw dropped;  // freed when the lock is
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(done_.begin(), done_.end(), [id](const DrawResult & r) { return r.id == id; });
  if (found != done_.end()) {
    DrawResult result = std::move(*found);
    done_.erase(found);
    return result;
  }
  for (Tick & tick : ticks_) {
    for (size_t i = 0; i < tick.items.size(); i++) {
      Item & item = tick.items[i];
      if (item.recalled || item.draw.id != id) continue;
      item.recalled = true;
      // Its turn may be far off, and its lane may submit others meanwhile.
      if (i >= tick.n_begun) dropped = std::move(item.draw);
    }
  }
  return std::nullopt;
}

void SamplingPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || NextTick() != ticks_.end(); });
    if (stopping_) return;
    const auto tick = NextTick();
    Item & item = tick->items[tick->n_begun++];
    if (!item.recalled) {
      lock.unlock();
      try {
        item.result.status = item.draw.sampler->Draw(item.draw.logits, item.draw.pos, &item.result.drawn);
      } catch (const std::exception & e) {
        item.result.status = {Code::kInternal, e.what()};
      }
      lock.lock();
      if (stopping_) return;
    }
    if (--tick->n_left > 0) continue;
    Publish(*tick);
    ticks_.erase(tick);
    lock.unlock();
    news_();
    lock.lock();
  }
}

SamplingPool::Ticks::iterator SamplingPool::NextTick() {
  return std::find_if(ticks_.begin(), ticks_.end(), [](const Tick & t) { return t.n_begun < t.items.size(); });
}

void SamplingPool::Publish(Tick & tick) {
  const auto leaves = [](const Item & item) { return !item.recalled && item.result.status.ok(); };
  const auto n_drawn = static_cast<uint32_t>(std::count_if(tick.items.begin(), tick.items.end(), leaves));
  for (Item & item : tick.items) {
    if (item.recalled) continue;
    if (leaves(item)) {
      try {
        item.result.finish = Complete(item.result.drawn, n_drawn, NowUs(), &item.draw.emission);
        item.draw.emission.sink->Send(std::move(item.draw.emission.frame));
      } catch (const std::exception & e) {
        item.result.status = {Code::kInternal, e.what()};
      }
    }
    done_.push_back(std::move(item.result));
  }
}

}  // namespace meshnet
