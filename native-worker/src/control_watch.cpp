#include "control_watch.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "bounds.h"

namespace meshnet {

// One write at a time; the end when wanted and nothing is being written.
class Watchers::Call final : public grpc::ServerWriteReactor<Event>, public std::enable_shared_from_this<Call> {
 public:
  explicit Call(Watchers * owner) : owner_(owner) {}

  void Keep() { self_ = shared_from_this(); }

  void Push(const Event & event) {
    {
      std::lock_guard lock(mu_);
      if (ending_) return;
      queue_.push_back(event);
      if (queue_.size() > kMaxWatchEvents) {
        // Better an end that is seen than a lane's end that is not.
        queue_.clear();
        End({grpc::StatusCode::RESOURCE_EXHAUSTED, "the watcher does not read"});
      }
    }
    Pump();
  }

  void Stop(const grpc::Status & status) {
    {
      std::lock_guard lock(mu_);
      if (ending_) return;
      End(status);
    }
    Pump();
  }

  bool ended() const {
    std::lock_guard lock(mu_);
    return ending_;
  }

 private:
  void End(const grpc::Status & status) {
    ending_ = true;
    status_ = status;
  }

  void Pump() {
    bool finish = false;
    {
      std::lock_guard lock(mu_);
      if (writing_ || finished_) return;
      if (!queue_.empty()) {
        writing_ = true;
        current_ = std::move(queue_.front());
        queue_.pop_front();
      } else if (ending_) {
        finished_ = finish = true;
      } else {
        return;
      }
    }
    if (finish) {
      Finish(status_);
    } else {
      StartWrite(&current_);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mu_);
      writing_ = false;
      if (!ok) queue_.clear();
    }
    Pump();
  }
  void OnCancel() override {
    {
      std::lock_guard lock(mu_);
      queue_.clear();
      if (!ending_) End({grpc::StatusCode::CANCELLED, "the watcher has gone"});
    }
    Pump();
  }
  void OnDone() override {
    std::shared_ptr<Call> last;
    {
      std::lock_guard lock(owner_->mu_);
      owner_->calls_.erase(self_);
      last = std::move(self_);
    }
  }

  Watchers * const owner_;
  std::shared_ptr<Call> self_;  // until OnDone: gRPC refers to the object
  mutable std::mutex mu_;
  std::deque<Event> queue_;
  Event current_;
  grpc::Status status_;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
};

grpc::ServerWriteReactor<Watchers::Event> * Watchers::Open(uint32_t report_interval_ms, const Event & first) {
  auto call = std::make_shared<Call>(this);
  call->Keep();
  bool full = false;
  {
    std::lock_guard lock(mu_);
    full = closed_ || calls_.size() >= kMaxWatchers;
    if (!full) calls_.insert(call);
  }
  if (full) {
    call->Stop({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watchers"});
    return call.get();
  }
  call->Push(first);
  if (report_interval_ms > 0) Report(call, std::max(report_interval_ms, kMinReportMs));
  return call.get();
}

void Watchers::Report(const std::shared_ptr<Call> & call, uint32_t interval_ms) {
  Event event;
  make_report_(event.mutable_report());
  call->Push(event);
  timer_->After(interval_ms, [this, weak = std::weak_ptr(call), interval_ms] {
    const auto again = weak.lock();
    if (again && !again->ended()) Report(again, interval_ms);
  });
}

void Watchers::Publish(const Event & event) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mu_);
    calls.assign(calls_.begin(), calls_.end());
  }
  for (const auto & call : calls) call->Push(event);
}

void Watchers::Close() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mu_);
    closed_ = true;
    calls.assign(calls_.begin(), calls_.end());
  }
  for (const auto & call : calls) call->Stop(grpc::Status::OK);
}

}  // namespace meshnet
