#include "cpu_limit.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace meshnet {
namespace {

std::chrono::nanoseconds Used(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace

CpuLimit::CpuLimit(std::chrono::milliseconds limit, std::function<void()> exceeded)
    : limit_(limit), exceeded_(std::move(exceeded)), watcher_([this] { Watch(); }) {}

CpuLimit::~CpuLimit() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

CpuLimit::Scope::Scope(CpuLimit * owner) : owner_(owner) {
  pthread_getcpuclockid(pthread_self(), &clock_);
  start_ = Used(clock_);
  {
    const std::lock_guard lock(owner_->mutex_);
    place_ = owner_->calls_.insert(owner_->calls_.end(), this);
  }
  owner_->changed_.notify_all();
}

CpuLimit::Scope::~Scope() {
  const std::lock_guard lock(owner_->mutex_);
  owner_->calls_.erase(place_);
}

void CpuLimit::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    std::chrono::nanoseconds left = limit_;
    for (const Scope * call : calls_) {
      left = std::min(left, limit_ - (Used(call->clock_) - call->start_));
    }
    if (left <= std::chrono::nanoseconds::zero() && !stopping_) {
      lock.unlock();
      exceeded_();
      return;
    }
    // A thread cannot use more than one second of processor in one second, so nothing is due before that.
    changed_.wait_for(lock, left, [this] { return stopping_; });
  }
}

}  // namespace meshnet
