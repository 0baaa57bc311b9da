// Watchers: the node's Watch calls, and what each has not read yet.
// Threads: every method from any thread, never blocking.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "timer.h"
#include "worker.pb.h"

namespace meshnet {

class Watchers {
 public:
  using Event = meshnet::worker::v1::Event;
  using MakeReport = std::function<void(meshnet::worker::v1::Report *)>;

  // The timer outlives the server that runs the calls.
  Watchers(Timer * timer, MakeReport make_report) : timer_(timer), make_report_(std::move(make_report)) {}

  // A call that gets `first`, then what is published and a report every interval (0: none).
  grpc::ServerWriteReactor<Event> * Open(uint32_t report_interval_ms, const Event & first);
  void Publish(const Event & event);
  // Ends every call after what it has not read yet.
  void Close();

 private:
  class Call;

  void Report(const std::shared_ptr<Call> & call, uint32_t interval_ms);

  Timer * const timer_;
  const MakeReport make_report_;
  std::mutex mu_;
  std::set<std::shared_ptr<Call>> calls_;
  bool closed_ = false;
};

}  // namespace meshnet
