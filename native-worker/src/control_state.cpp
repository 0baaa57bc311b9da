#include "control_state.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "bounds.h"
#include "status_report.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;
namespace wk = meshnet::worker::v1;

constexpr auto kProgressEvery = std::chrono::milliseconds(100);

void FillLane(const LaneKey & key, pb::Lane * lane) {
  lane->set_session(key.session);
  lane->set_epoch(key.epoch);
  lane->set_stage(key.stage);
}

void FillBoundary(uint32_t width, google::protobuf::RepeatedPtrField<pb::BoundaryTensor> * boundary) {
  auto * tensor = boundary->Add();
  tensor->set_name(kBoundaryTensor);
  tensor->set_width(width);
  tensor->set_prefill_dtype(pb::DTYPE_F32);
  tensor->set_decode_dtype(pb::DTYPE_F32);
}

}  // namespace

WorkerState::WorkerState(WorkerIdentity identity, Timer * timer, std::shared_ptr<PeerSet> direct_peers,
                         std::shared_ptr<Traffic> traffic)
    : identity_(std::move(identity)),
      timer_(timer),
      traffic_(traffic),
      tickets_(std::move(direct_peers)),
      dialler_(identity_.certificate, std::move(traffic), identity_.direct),
      watchers_(timer, [this](wk::Report * report) { FillReport(report); }) {}

// Both callbacks come from the engine's thread: the work is done on the timer's, in the same order.
EngineObserver WorkerState::Observer() {
  EngineObserver observer;
  observer.lane_ended = [this](const LaneKey & key, const Status & why) {
    timer_->Post([this, key, why] { LaneEnded(key, why); });
  };
  observer.tick = [this](const TickTrace & trace) {
    timer_->Post([this, trace] {
      wk::Event event;
      auto * out = event.mutable_logits_trace();
      out->set_tick(trace.tick);
      for (const TraceRow & row : trace.rows) {
        auto * traced = out->add_rows();
        FillLane(row.key, traced->mutable_lane());
        traced->set_sequence(static_cast<uint32_t>(row.seq));
        traced->set_pos(static_cast<uint32_t>(row.pos));
        traced->set_logits_sha256(row.logits_sha256);
        traced->set_sampled(row.sampled);
      }
      for (const TraceOp & operation : trace.operations) {
        auto * traced = out->add_operations();
        traced->set_sequence(static_cast<uint32_t>(operation.seq));
        traced->set_keep(static_cast<uint32_t>(operation.keep));
      }
      watchers_.Publish(event);
    });
  };
  return observer;
}

void WorkerState::Refused(Code code) {
  std::lock_guard lock(mu_);
  ++refusals_[code];
}

void WorkerState::Loading(float progress) {
  {
    std::lock_guard lock(mu_);
    progress_ = std::max(progress_, progress);
    const auto now = std::chrono::steady_clock::now();
    if (now - published_at_ < kProgressEvery) return;
    published_at_ = now;
  }
  Changed();
}

void WorkerState::Ready(std::shared_ptr<Engine> engine) {
  {
    std::lock_guard lock(mu_);
    engine_ = std::move(engine);
    progress_ = 1;
    if (state_ == wk::STATE_LOADING) state_ = wk::STATE_READY;
  }
  Changed();
}

void WorkerState::Failed(const Status & why) {
  {
    std::lock_guard lock(mu_);
    state_ = wk::STATE_FAILED;
    failure_ = why;
  }
  Changed();
}

bool WorkerState::ReleaseAll(const Status & why, std::chrono::milliseconds within) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  const auto engine = this->engine();
  for (const LaneKey & key : tickets_.keys()) {
    if (engine) engine->Release(key, why);
  }
  return tickets_.WaitEmpty(deadline);
}

void WorkerState::DropEngine() {
  std::shared_ptr<Engine> last;
  std::lock_guard lock(mu_);
  last = std::move(engine_);
}

std::shared_ptr<Engine> WorkerState::engine() const {
  std::lock_guard lock(mu_);
  return engine_;
}

Status WorkerState::ReadyEngine(std::shared_ptr<Engine> * out) const {
  std::lock_guard lock(mu_);
  if (!failure_.ok()) return failure_;
  if (!engine_) return {Code::kNotServing, "the model is being loaded"};
  *out = engine_;
  return {};
}

void WorkerState::FillBudget(const std::shared_ptr<Engine> & engine, wk::Budget * budget) const {
  if (!engine) return;
  const ShardInfo & info = engine->shard_info();
  const EngineStats stats = engine->Stats();
  budget->set_weight_bytes(info.weight_bytes);
  budget->set_kv_bytes(info.kv_bytes);
  budget->set_scratch_bytes(info.scratch_bytes);
  budget->set_cells_total(stats.cells_total);
  budget->set_cells_free(stats.cells_free);
  budget->set_sequences_total(stats.sequences_total);
  budget->set_sequences_free(stats.sequences_free);
}

void WorkerState::FillReport(wk::Report * report) {
  if (const auto engine = this->engine()) {
    const EngineStats stats = engine->Stats();
    FillBudget(engine, report->mutable_budget());
    report->set_lanes(stats.lanes);
    report->set_queue_depth(stats.queue_depth);
    report->set_ticks(stats.ticks);
    report->set_decode_tick_us(stats.decode_tick_us);
    report->set_prefill_tick_us(stats.prefill_tick_us);
    report->set_batch_size(stats.batch_size);
    report->set_tokens_decoded(stats.tokens_decoded);
    report->set_tokens_prefilled(stats.tokens_prefilled);
  }
  report->set_bytes_in(traffic_->bytes_in);
  report->set_bytes_out(traffic_->bytes_out);
  report->set_packets_in(traffic_->packets_in);
  report->set_packets_out(traffic_->packets_out);
  std::lock_guard lock(mu_);
  for (const auto & [code, count] : refusals_) {
    auto * refusals = report->add_refusals();
    refusals->set_code(static_cast<pb::ErrorCode>(code));
    refusals->set_count(count);
  }
}

void WorkerState::Describe(wk::Description * out) {
  std::shared_ptr<Engine> engine;
  {
    std::lock_guard lock(mu_);
    engine = engine_;
    out->set_state(state_);
    out->set_progress(progress_);
    if (!failure_.ok()) *out->mutable_failure() = ToError(failure_, 0);
  }
  out->set_certificate(identity_.certificate.der);
  out->set_seam_port(seam_port_);
  out->set_boot_id(identity_.boot_id);
  out->set_n_threads(identity_.n_threads);
  out->set_pid(static_cast<uint32_t>(getpid()));
  out->set_layer_first(identity_.layer_first);
  out->set_layer_last(identity_.layer_last);
  if (!engine) return;
  const ShardInfo & info = engine->shard_info();
  out->set_engine_class(info.engine_class);
  out->set_architecture(info.architecture);
  out->set_layer_first(static_cast<uint32_t>(info.layer_first));
  out->set_layer_last(static_cast<uint32_t>(info.layer_last));
  out->set_n_layer(static_cast<uint32_t>(info.n_layer));
  out->set_n_embd(static_cast<uint32_t>(info.n_embd));
  out->set_n_vocab(static_cast<uint32_t>(info.n_vocab));
  out->set_n_ctx_train(static_cast<uint32_t>(info.n_ctx_train));
  out->set_max_chunk_tokens(info.n_ubatch);
  if (!info.is_head) FillBoundary(static_cast<uint32_t>(info.n_embd), out->mutable_boundary_in());
  if (!info.is_tail) FillBoundary(static_cast<uint32_t>(info.n_embd), out->mutable_boundary_out());
  FillBudget(engine, out->mutable_budget());
}

void WorkerState::Changed() {
  wk::Event event;
  Describe(event.mutable_state_changed());
  watchers_.Publish(event);
}

Status WorkerState::Probe(const wk::ProbeRequest & request, wk::ProbeReply * reply) {
  std::shared_ptr<Engine> engine;
  if (Status s = ReadyEngine(&engine); !s.ok()) return s;
  if (request.n_tokens() == 0 || request.n_tokens() > kMaxProbeTokens) {
    return {Code::kLimitExceeded, "1 to " + std::to_string(kMaxProbeTokens) + " tokens"};
  }
  Engine::ProbeResult result;
  if (Status s = engine->Probe(request.n_tokens(), kProbeMs, &result); !s.ok()) return s;
  reply->set_prefill_us(result.prefill_us);
  reply->set_decode_us(result.decode_us);
  reply->set_output_digest(result.output_digest);
  return {};
}

uint32_t WorkerState::Drain() {
  std::shared_ptr<Engine> engine;
  {
    std::lock_guard lock(mu_);
    engine = engine_;
    if (state_ != wk::STATE_FAILED) state_ = wk::STATE_DRAINING;
  }
  if (engine) engine->Drain();
  Changed();
  return static_cast<uint32_t>(tickets_.size());
}

void WorkerState::LaneEnded(const LaneKey & key, const Status & why) {
  for (const auto & seam : tickets_.Remove(key)) seam->Shut(why);
  wk::Event event;
  auto * ended = event.mutable_lane_ended();
  FillLane(key, ended->mutable_lane());
  if (!why.ok()) *ended->mutable_error() = ToError(why, key.stage);
  watchers_.Publish(event);
}

Status WorkerState::Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) {
  const auto engine = this->engine();
  return engine ? engine->Attach(key, port, std::move(sink)) : Status(Code::kNotServing, "no engine runs");
}

Status WorkerState::Deliver(const LaneKey & key, Port from, Frame frame) {
  const auto engine = this->engine();
  return engine ? engine->Deliver(key, from, std::move(frame)) : Status(Code::kNotServing, "no engine runs");
}

void WorkerState::PortClosed(const LaneKey & key, Port port) {
  if (const auto engine = this->engine()) engine->PortClosed(key, port);
}

void WorkerState::PortFailed(const LaneKey & key, Port port, const Status & why) {
  if (const auto engine = this->engine()) engine->PortFailed(key, port, why);
}

void WorkerState::Wake() {
  if (const auto engine = this->engine()) engine->Wake();
}

}  // namespace meshnet
