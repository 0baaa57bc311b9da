// CpuLimit: ends the process when one call computes for too long, because neither a template nor a grammar can be
// stopped from outside.
// Threads: Scopes may be made on any thread; each watches the thread that made it.
#pragma once

#include <time.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace meshnet {

class CpuLimit {
 public:
  // `exceeded` runs on a thread of this object, once. Processor time counts, so a loaded machine ends nobody.
  CpuLimit(std::chrono::milliseconds limit, std::function<void()> exceeded);
  ~CpuLimit();  // REQUIRES: no Scope is left
  CpuLimit(const CpuLimit &) = delete;
  CpuLimit & operator=(const CpuLimit &) = delete;

  // One call on the current thread.
  class Scope {
   public:
    explicit Scope(CpuLimit * owner);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope & operator=(const Scope &) = delete;

   private:
    friend class CpuLimit;
    CpuLimit * const owner_;
    clockid_t clock_;
    std::chrono::nanoseconds start_;
    std::list<const Scope *>::iterator place_;
  };

 private:
  void Watch();

  const std::chrono::nanoseconds limit_;
  const std::function<void()> exceeded_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<const Scope *> calls_;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace meshnet
