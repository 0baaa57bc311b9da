#include "timer.h"

namespace meshnet {

Timer::Timer() : thread_([this] { Run(); }) {}

void Timer::Stop() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Timer::Id Timer::After(uint32_t ms, Task task) {
  const auto at = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  Id id;
  {
    std::lock_guard lock(mu_);
    if (stopping_) return 0;
    id = next_id_++;
    tasks_.emplace(Key{at, id}, std::move(task));
    times_.emplace(id, at);
  }
  changed_.notify_all();
  return id;
}

void Timer::Cancel(Id id) {
  Task dropped;  // destroyed outside the lock: it may own the last reference to something
  std::lock_guard lock(mu_);
  const auto time = times_.find(id);
  if (time == times_.end()) return;
  const auto task = tasks_.find(Key{time->second, id});
  dropped = std::move(task->second);
  tasks_.erase(task);
  times_.erase(time);
}

void Timer::Run() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Key key = tasks_.begin()->first;
    if (std::chrono::steady_clock::now() < key.first) {
      changed_.wait_until(lock, key.first);
      continue;
    }
    Task task = std::move(tasks_.begin()->second);
    tasks_.erase(tasks_.begin());
    times_.erase(key.second);
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace meshnet
