#include "seam_route.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bounds.h"
#include "frame.h"
#include "seam.h"
#include "service.h"
#include "service_dial.h"
#include "service_limits.h"
#include "tickets.h"
#include "timer.h"
#include "tls.h"

namespace meshnet::bench {
namespace {

namespace pb = meshnet::seam::v1;
namespace wk = meshnet::worker::v1;

constexpr uint32_t kStages = 3;
constexpr uint32_t kPositions = 1u << 30;  // one per frame, more than any run sends
constexpr uint32_t kMaxChunkTokens = 256;
constexpr uint64_t kCreditBytes = 1 << 20;
constexpr uint32_t kVocabulary = 32000;
constexpr uint32_t kDialMs = 10'000;
constexpr auto kAnswerWithin = std::chrono::seconds(10);
constexpr char kEchoPeer[] = "echo", kPingPeer[] = "ping";

void Check(const Status & status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

Certificate NewCertificate() {
  Certificate certificate;
  Check(MakeCertificate(&certificate));
  return certificate;
}

std::string Random(size_t n) {
  std::string bytes;
  if (!RandomBytes(n, &bytes)) throw std::runtime_error("the system gives no random bytes");
  return bytes;
}

// Stage i of three layers, one a stage.
SeamTerms Terms(const RouteSpec & spec, uint32_t stage, wk::SeamRole end) {
  SeamTerms terms;
  terms.lane = {spec.session, 1, stage};
  terms.end = end;
  terms.n_stages = kStages;
  terms.model_digest = std::string(kDigestBytes, 'm');
  terms.layer_first = stage;
  terms.layer_last = stage + 1;
  terms.n_layer = kStages;
  terms.n_embd = spec.width;
  terms.n_vocab = kVocabulary;
  terms.max_chunk_tokens = kMaxChunkTokens;
  terms.positions = kPositions;
  terms.credit_bytes = kCreditBytes;
  Check(CheckTerms(terms));
  return terms;
}

struct Heard {
  enum class Kind { kFrame, kClosed, kFailed } kind = Kind::kFrame;
  LaneKey key;
  Port from = Port::kUp;
  Frame frame;
  Status why;
};

// What the engine is to its seams: an inbox with a lock and a condition, read by one thread.
class Inbox : public LaneHost {
 public:
  Status Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink) override {
    std::lock_guard lock(mu_);
    sinks_[{key, port}] = std::move(sink);
    return {};
  }
  Status Deliver(const LaneKey & key, Port from, Frame frame) override {
    Push({Heard::Kind::kFrame, key, from, std::move(frame), {}});
    return {};
  }
  void PortClosed(const LaneKey & key, Port port) override { Push({Heard::Kind::kClosed, key, port, {}, {}}); }
  void PortFailed(const LaneKey & key, Port port, const Status & why) override {
    Push({Heard::Kind::kFailed, key, port, {}, why});
  }
  void Wake() override {}

  // Nothing when it was stopped or `until` has passed.
  std::optional<Heard> Next(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mu_);
    if (!news_.wait_until(lock, until, [this] { return stopped_ || !heard_.empty(); }) || stopped_) return {};
    Heard heard = std::move(heard_.front());
    heard_.pop_front();
    return heard;
  }
  std::shared_ptr<FrameSink> sink(const LaneKey & key, Port port) const {
    std::lock_guard lock(mu_);
    const auto it = sinks_.find({key, port});
    return it == sinks_.end() ? nullptr : it->second;
  }
  void Stop() {
    std::lock_guard lock(mu_);
    stopped_ = true;
    news_.notify_all();
  }

 private:
  void Push(Heard heard) {
    std::lock_guard lock(mu_);
    heard_.push_back(std::move(heard));
    news_.notify_one();
  }

  mutable std::mutex mu_;
  std::condition_variable news_;
  std::deque<Heard> heard_;
  std::map<std::pair<LaneKey, Port>, std::shared_ptr<FrameSink>> sinks_;
  bool stopped_ = false;
};

void Ignore(Code) {}

}  // namespace

std::string NewSession() { return Random(kSessionBytes); }
std::string NewTicket() { return Random(kTicketBytes); }

struct EchoNode::Impl {
  Certificate own = NewCertificate();
  std::string peer_sha256;
  std::shared_ptr<PeerSet> peers = std::make_shared<PeerSet>();
  Timer timer;
  Tickets tickets{peers};
  SeamService service{{&tickets, &timer, std::make_shared<Traffic>(), Ignore}, ""};
  Inbox inbox;
  std::unique_ptr<grpc::Server> server;
  std::thread echo{[this] { Echo(); }};

  ~Impl() {
    if (server) server->Shutdown(std::chrono::system_clock::now());
    server.reset();
    timer.Stop();
    inbox.Stop();
    echo.join();
  }

  void Echo() {
    constexpr auto kLongWait = std::chrono::hours(1);
    while (auto heard = inbox.Next(std::chrono::steady_clock::now() + kLongWait)) {
      const bool from_up = heard->from == Port::kUp;
      const auto sink = inbox.sink(heard->key, from_up && heard->kind == Heard::Kind::kFrame ? Port::kDown : heard->from);
      if (!sink) continue;
      if (heard->kind == Heard::Kind::kFrame) sink->Send(std::move(heard->frame));
      if (heard->kind == Heard::Kind::kClosed) sink->SendClose();
    }
  }
};

EchoNode::EchoNode() : impl_(std::make_unique<Impl>()) {}
EchoNode::~EchoNode() = default;

const Certificate & EchoNode::certificate() const { return impl_->own; }

uint16_t EchoNode::Listen(const std::string & peer_sha256) {
  impl_->peer_sha256 = peer_sha256;
  grpc::ServerBuilder builder;
  LimitServer(&builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", SeamServerCredentials(impl_->own, impl_->peers), &port);
  builder.RegisterCallbackGenericService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  if (!impl_->server || port <= 0) throw std::runtime_error("cannot listen");
  return static_cast<uint16_t>(port);
}

void EchoNode::Add(const RouteSpec & spec) {
  const LaneKey lane{spec.session, 1, 1};
  std::vector<Tickets::End> ends;
  for (const auto & [end, ticket] : {std::pair{wk::SEAM_ROLE_TO_PREVIOUS, spec.up_ticket},
                                     std::pair{wk::SEAM_ROLE_TO_NEXT, spec.down_ticket}}) {
    ends.push_back({std::make_shared<Seam>(Terms(spec, 1, end), &impl_->inbox, &impl_->timer, Ignore), ticket, kPingPeer, {}});
  }
  uint64_t admission = 0;
  Check(impl_->tickets.Add(lane, std::move(ends), &admission));
  for (const auto end : {wk::SEAM_ROLE_TO_PREVIOUS, wk::SEAM_ROLE_TO_NEXT}) {
    std::shared_ptr<Seam> seam;
    Check(impl_->tickets.Expect(lane, end, kPingPeer, impl_->peer_sha256, &seam));
  }
}

struct PingNode::Impl {
  Certificate own = NewCertificate();
  Timer timer;
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  Dialler dialler{own, traffic, true};
  Inbox inbox;
  std::vector<std::shared_ptr<Seam>> seams;
  uint32_t pos = 0;

  ~Impl() {
    timer.Stop();
    inbox.Stop();
  }

  void Dial(const SeamTerms & terms, wk::LinkRequest request, const std::string & ticket) {
    auto seam = std::make_shared<Seam>(terms, &inbox, &timer, Ignore);
    request.set_ticket(ticket);
    wk::LinkReply reply;
    Check(dialler.Dial(seam, request, &reply));
    seams.push_back(std::move(seam));
  }

  Heard Await() {
    auto heard = inbox.Next(std::chrono::steady_clock::now() + kAnswerWithin);
    if (!heard) throw std::runtime_error("no answer came");
    if (heard->kind == Heard::Kind::kFailed) throw std::runtime_error(heard->why.message());
    return std::move(*heard);
  }
};

PingNode::PingNode() : impl_(std::make_unique<Impl>()) {}
PingNode::~PingNode() = default;

const Certificate & PingNode::certificate() const { return impl_->own; }

void PingNode::Connect(const RouteSpec & spec, const std::string & endpoint, const std::string & peer_certificate) {
  wk::LinkRequest request;
  request.set_peer_id(kEchoPeer);
  request.set_peer_certificate_sha256(Sha256(peer_certificate));
  request.set_attempt(1);
  request.set_timeout_ms(kDialMs);
  request.mutable_direct()->add_endpoints(endpoint);
  request.mutable_direct()->set_certificate(peer_certificate);
  impl_->Dial(Terms(spec, 0, wk::SEAM_ROLE_TO_NEXT), request, spec.up_ticket);
  impl_->Dial(Terms(spec, 2, wk::SEAM_ROLE_TO_PREVIOUS), request, spec.down_ticket);
}

Frame PingNode::RoundTrip(const RouteSpec & spec, const std::string & payload) {
  Frame frame;
  frame.set_phase(pb::PHASE_DECODE);
  frame.set_branch(1);
  frame.set_group(impl_->pos);
  frame.set_group_size(1);
  frame.set_pos(impl_->pos++);
  frame.set_n_tokens(1);
  frame.set_chunk_end(true);
  auto * tensor = frame.add_tensors();
  tensor->set_name(kBoundaryTensor);
  tensor->set_dtype(pb::DTYPE_F32);
  tensor->add_shape(1);
  tensor->add_shape(spec.width);
  tensor->set_data(payload);
  impl_->inbox.sink({spec.session, 1, 0}, Port::kDown)->Send(std::move(frame));
  Heard heard = impl_->Await();
  if (heard.kind != Heard::Kind::kFrame || heard.key.stage != 2) throw std::runtime_error("something else came back");
  return std::move(heard.frame);
}

void PingNode::Close(const RouteSpec & spec) {
  impl_->inbox.sink({spec.session, 1, 0}, Port::kDown)->SendClose();
  impl_->inbox.sink({spec.session, 1, 2}, Port::kUp)->SendClose();
  for (int closed = 0; closed < 2; ++closed) {
    if (impl_->Await().kind != Heard::Kind::kClosed) throw std::runtime_error("a frame came late");
  }
}

void PingNode::WaitEnded() {
  if (!impl_->traffic->WaitNoDialled(std::chrono::steady_clock::now() + kAnswerWithin)) {
    throw std::runtime_error("a stream did not end");
  }
}

}  // namespace meshnet::bench
