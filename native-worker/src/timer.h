// Timer: one thread that runs short tasks at or after a time, in order of time, ties in order of scheduling.
// Threads: every method from any thread. Tasks run on the timer's thread, one at a time, and must not block.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace meshnet {

class Timer {
 public:
  using Task = std::function<void()>;
  using Id = uint64_t;

  Timer();
  ~Timer() { Stop(); }
  Timer(const Timer &) = delete;
  Timer & operator=(const Timer &) = delete;

  // Tasks that have not begun are dropped, and so are those scheduled later. Waits for the one that runs.
  void Stop();

  Id After(uint32_t ms, Task task);
  // As soon as the thread is free; calls keep their order.
  void Post(Task task) { After(0, std::move(task)); }
  // A task that already runs, or has run, is left alone.
  void Cancel(Id id);

 private:
  using Key = std::pair<std::chrono::steady_clock::time_point, Id>;

  void Run();

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<Key, Task> tasks_;
  std::unordered_map<Id, std::chrono::steady_clock::time_point> times_;
  Id next_id_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace meshnet
