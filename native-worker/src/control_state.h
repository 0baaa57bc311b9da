// WorkerState: what the worker is doing: loading, its engine, its lanes and their seams, its counters.
// Threads: every method from any thread; Link and Probe wait, the others do not.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "certificate.h"
#include "control_watch.h"
#include "engine.h"
#include "seam.h"
#include "service_dial.h"
#include "status.h"
#include "tickets.h"
#include "timer.h"
#include "worker.pb.h"

namespace meshnet {

struct WorkerIdentity {
  Certificate certificate;
  std::string boot_id;                       // 16 bytes
  std::string model_digest;                  // 32 bytes, or empty: whatever admission says
  uint32_t layer_first = 0, layer_last = 0;  // as asked for, until the file has been read
  uint32_t n_threads = 1;
  bool direct = true;
};

class WorkerState final : public LaneHost {
 public:
  WorkerState(WorkerIdentity identity, Timer * timer, std::shared_ptr<PeerSet> direct_peers,
              std::shared_ptr<Traffic> traffic);

  Tickets * tickets() { return &tickets_; }
  Watchers * watchers() { return &watchers_; }
  EngineObserver Observer();
  void Refused(Code code);

  // The life of the process.
  void SetSeamPort(uint32_t port) { seam_port_ = port; }
  void Loading(float progress);
  void Ready(std::shared_ptr<Engine> engine);
  void Failed(const Status & why);
  // Releases every lane; true when none is left within the time.
  bool ReleaseAll(const Status & why, std::chrono::milliseconds within);
  // REQUIRES: no server runs and the timer is stopped.
  void DropEngine();

  // The control service.
  void Describe(meshnet::worker::v1::Description * out);
  Status Admit(const meshnet::worker::v1::AdmitRequest & request, meshnet::worker::v1::AdmitReply * reply);
  Status Link(const meshnet::worker::v1::LinkRequest & request, meshnet::worker::v1::LinkReply * reply);
  Status Extend(const meshnet::worker::v1::ExtendRequest & request);
  Status Release(const meshnet::worker::v1::ReleaseRequest & request);
  Status Probe(const meshnet::worker::v1::ProbeRequest & request, meshnet::worker::v1::ProbeReply * reply);
  uint32_t Drain();

  // LaneHost, for the seams.
  Status Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) override;
  Status Deliver(const LaneKey & key, Port from, Frame frame) override;
  void PortClosed(const LaneKey & key, Port port) override;
  void PortFailed(const LaneKey & key, Port port, const Status & why) override;
  void Wake() override;

 private:
  std::shared_ptr<Engine> engine() const;
  Status ReadyEngine(std::shared_ptr<Engine> * out) const;
  void FillBudget(const std::shared_ptr<Engine> & engine, meshnet::worker::v1::Budget * budget) const;
  void FillReport(meshnet::worker::v1::Report * report);
  Status MakeEnds(const meshnet::worker::v1::AdmitRequest & request, const LaneParams & lane, const Engine & engine,
                  std::vector<Tickets::End> * ends);
  void LaneEnded(const LaneKey & key, const Status & why);
  void Changed();

  const WorkerIdentity identity_;
  Timer * const timer_;
  const std::shared_ptr<Traffic> traffic_;
  Tickets tickets_;
  Dialler dialler_;
  Watchers watchers_;
  std::atomic<uint32_t> seam_port_{0};

  mutable std::mutex mu_;
  meshnet::worker::v1::State state_ = meshnet::worker::v1::STATE_LOADING;
  float progress_ = 0;
  std::chrono::steady_clock::time_point published_at_{};
  Status failure_;
  std::shared_ptr<Engine> engine_;
  std::map<Code, uint64_t> refusals_;
};

}  // namespace meshnet
