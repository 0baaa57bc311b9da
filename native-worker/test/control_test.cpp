// Real workers, driven over their control sockets as a node does.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "bounds.h"
#include "session.h"
#include "worker_process.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;
namespace wk = worker::v1;

std::vector<int32_t> Prompt(int n, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(3 + (seed * 7919 + i * 104729) % 30000);
  return ids;
}

Code AdmitCode(WorkerProcess & worker, const wk::AdmitRequest & request) {
  const auto context = worker.Context();
  wk::AdmitReply reply;
  const auto status = worker.stub().Admit(context.get(), request, &reply);
  return WorkerProcess::CodeOf(status, *context);
}

TEST(Control, describes_itself_when_loaded) {
  WorkerProcess worker("0-2");
  const auto described = worker.WaitReady();
  EXPECT_EQ(described.state(), wk::STATE_READY);
  EXPECT_EQ(described.architecture(), "llama");
  EXPECT_EQ(described.layer_first(), 0u);
  EXPECT_EQ(described.layer_last(), 2u);
  EXPECT_EQ(described.n_layer(), 3u);
  EXPECT_EQ(described.boot_id().size(), 16u);
  EXPECT_GT(described.certificate().size(), 100u);
  EXPECT_LE(described.certificate().size(), kMaxCertificateBytes);
  EXPECT_NE(described.seam_port(), 0u);
  EXPECT_EQ(described.boundary_in_size(), 0);
  ASSERT_EQ(described.boundary_out_size(), 1);
  EXPECT_EQ(described.boundary_out(0).width(), described.n_embd());
  EXPECT_EQ(described.budget().cells_total(), 1024u);
  EXPECT_FALSE(described.engine_class().empty());
}

TEST(Control, refuses_calls_without_the_token) {
  WorkerProcess worker("0-3");
  worker.WaitReady();
  grpc::ClientContext none, wrong;
  wrong.AddMetadata("meshnet-token-bin", std::string(kTokenBytes, 'x'));
  wk::Description described;
  EXPECT_EQ(worker.stub().Describe(&none, {}, &described).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(worker.stub().Describe(&wrong, {}, &described).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext watch;
  const auto events = worker.stub().Watch(&watch, wk::WatchRequest());
  wk::Event event;
  EXPECT_FALSE(events->Read(&event));
  EXPECT_EQ(events->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(Control, answers_the_same_tokens_with_one_two_and_three_stages) {
  WorkerProcess whole("0-3"), head("0-1"), rest("1-3"), middle("1-2"), tail("2-3");
  for (auto * worker : {&whole, &head, &rest, &middle, &tail}) ASSERT_EQ(worker->WaitReady().state(), wk::STATE_READY);
  const auto prompt = Prompt(90, 1), more = Prompt(9, 2);
  TestSession one({&whole}, 'a'), two({&head, &rest}, 'b'), three({&head, &middle, &tail}, 'c');
  const auto first = one.Run(prompt, 12);
  EXPECT_EQ(first.size(), 12u);
  EXPECT_EQ(two.Run(prompt, 12), first);
  EXPECT_EQ(three.Run(prompt, 12), first);
  // A second turn goes on where the first ended.
  const auto second = one.Run(more, 8);
  EXPECT_EQ(second.size(), 8u);
  EXPECT_EQ(two.Run(more, 8), second);
  EXPECT_EQ(three.Run(more, 8), second);
}

TEST(Control, answers_the_same_tokens_over_a_bridge) {
  WorkerProcess whole("0-3"), head("0-1", {"--no-direct"}), tail("1-3", {"--no-direct"});
  for (auto * worker : {&whole, &head, &tail}) ASSERT_EQ(worker->WaitReady().state(), wk::STATE_READY);
  const auto prompt = Prompt(90, 8);
  TestSession one({&whole}, 'm'), two({&head, &tail}, 'n', 128, TestSession::Path::kBridge);
  EXPECT_EQ(two.Run(prompt, 12), one.Run(prompt, 12));
  two.entry().SendClose();
  EXPECT_TRUE(two.entry().NextOf(FrameKind::kClose));
}

TEST(Control, hears_bridged_streams_from_its_node_and_the_named_peer_only) {
  WorkerProcess whole("0-3");
  ASSERT_EQ(whole.WaitReady().state(), wk::STATE_READY);
  TestSession session({&whole}, 'o');
  const std::string ticket = session.ticket(0, wk::SEAM_ROLE_ENTRY);
  const auto open = [&](const SeamClient::Metadata & metadata) {
    auto client = std::make_unique<SeamClient>(whole.channel(), metadata);
    client->set_lane(session.key(0));
    client->SendFrame(EntryOpen(2, 128));
    return client;
  };
  EXPECT_EQ(open({{"meshnet-ticket-bin", ticket}, {"meshnet-peer", "gateway"}})->WaitEnd().error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(open({{"meshnet-ticket-bin", ticket},
                  {"meshnet-token-bin", std::string(kTokenBytes, 'x')},
                  {"meshnet-peer", "gateway"}})
                ->WaitEnd()
                .error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(open({{"meshnet-ticket-bin", ticket}, {"meshnet-token-bin", whole.token()}, {"meshnet-peer", "other"}})
                ->NextError(),
            Code::kPeerMismatch);
  EXPECT_EQ(open({{"meshnet-ticket-bin", std::string(kTicketBytes, 'x')},
                  {"meshnet-token-bin", whole.token()},
                  {"meshnet-peer", "gateway"}})
                ->NextError(),
            Code::kTicketInvalid);
  // The seam that was open has not noticed.
  EXPECT_EQ(session.Run(Prompt(5, 9), 3).size(), 3u);
}

TEST(Control, answers_a_frozen_stage_within_its_deadline) {
  WorkerProcess head("0-1"), tail("1-3");
  for (auto * worker : {&head, &tail}) ASSERT_EQ(worker->WaitReady().state(), wk::STATE_READY);
  TestSession session({&head, &tail}, 'p', 512);
  session.SendTurn(Prompt(5, 10), 400);
  ASSERT_TRUE(session.entry().NextOf(FrameKind::kRun));
  tail.Signal(SIGSTOP);
  // Keepalive: ten seconds to ask, five to answer.
  EXPECT_EQ(session.entry().NextError(std::chrono::seconds(25)), Code::kStreamEnded);
  tail.Signal(SIGCONT);
}

TEST(Control, closes_in_order_with_matching_digests) {
  WorkerProcess head("0-1"), tail("1-3");
  for (auto * worker : {&head, &tail}) ASSERT_EQ(worker->WaitReady().state(), wk::STATE_READY);
  const auto watch_head = head.Context(), watch_tail = tail.Context();
  const auto head_events = head.stub().Watch(watch_head.get(), wk::WatchRequest());
  const auto tail_events = tail.stub().Watch(watch_tail.get(), wk::WatchRequest());
  TestSession session({&head, &tail}, 'd');
  session.Run(Prompt(5, 3), 4);
  session.entry().SendClose();
  const auto close = session.entry().NextOf(FrameKind::kClose);
  ASSERT_TRUE(close);
  EXPECT_EQ(close->close().n_frames(), session.entry().n_received());
  EXPECT_EQ(close->close().digest(), session.entry().received_digest());
  EXPECT_TRUE(session.entry().WaitEnd().ok());
  for (auto * events : {head_events.get(), tail_events.get()}) {
    wk::Event event;
    while (events->Read(&event) && !event.has_lane_ended()) {
    }
    ASSERT_TRUE(event.has_lane_ended());
    EXPECT_FALSE(event.lane_ended().has_error()) << event.ShortDebugString();
  }
  watch_head->TryCancel();
  watch_tail->TryCancel();
}

TEST(Control, tells_the_gateway_when_a_later_stage_is_killed) {
  WorkerProcess head("0-1"), tail("1-3");
  for (auto * worker : {&head, &tail}) ASSERT_EQ(worker->WaitReady().state(), wk::STATE_READY);
  TestSession session({&head, &tail}, 'e', 512);
  session.SendTurn(Prompt(5, 4), 400);
  ASSERT_TRUE(session.entry().NextOf(FrameKind::kRun));
  tail.Signal(SIGKILL);
  EXPECT_EQ(session.entry().NextError(), Code::kStreamEnded);
  // The node goes on.
  wk::Description described;
  const auto context = head.Context();
  EXPECT_TRUE(head.stub().Describe(context.get(), {}, &described).ok());
  EXPECT_EQ(described.state(), wk::STATE_READY);
}

TEST(Control, frees_a_lane_that_is_released) {
  WorkerProcess whole("0-3");
  ASSERT_EQ(whole.WaitReady().state(), wk::STATE_READY);
  const auto watching = whole.Context();
  const auto events = whole.stub().Watch(watching.get(), wk::WatchRequest());
  TestSession session({&whole}, 'f', 900);
  session.Run(Prompt(5, 5), 4);
  EXPECT_EQ(AdmitCode(whole, TestSession::MakeAdmit(std::string(16, 'g'), 0, 1, 900)), Code::kNoCapacity);
  session.Release(0);
  session.Release(0);
  wk::Event event;
  while (events->Read(&event) && !event.has_lane_ended()) {
  }
  ASSERT_TRUE(event.has_lane_ended());
  EXPECT_EQ(event.lane_ended().lane().session(), std::string(16, 'f'));
  EXPECT_EQ(AdmitCode(whole, TestSession::MakeAdmit(std::string(16, 'g'), 0, 1, 900)), Code::kOk);
  watching->TryCancel();
}

TEST(Control, gives_a_lane_more_positions_while_there_are_some) {
  WorkerProcess whole("0-3");
  ASSERT_EQ(whole.WaitReady().state(), wk::STATE_READY);
  TestSession session({&whole}, 'k', 64);
  session.Run(Prompt(40, 6), 8);
  const auto extend = [&](uint32_t stage, uint32_t positions) {
    wk::ExtendRequest request;
    *request.mutable_lane() = session.lane(stage);
    request.set_positions(positions);
    wk::ExtendReply reply;
    const auto context = whole.Context();
    return WorkerProcess::CodeOf(whole.stub().Extend(context.get(), request, &reply), *context);
  };
  EXPECT_EQ(extend(0, 0), Code::kLimitExceeded);
  EXPECT_EQ(extend(1, 128), Code::kLaneNotOpen);
  EXPECT_EQ(extend(0, 100000), Code::kNoCapacity);
  EXPECT_EQ(extend(0, 128), Code::kOk);
  // Longer than the session was at first.
  EXPECT_EQ(session.Run(Prompt(40, 7), 8).size(), 8u);
}

TEST(Control, releases_what_nobody_links) {
  WorkerProcess head("0-1");
  ASSERT_EQ(head.WaitReady().state(), wk::STATE_READY);
  const auto watching = head.Context();
  const auto events = head.stub().Watch(watching.get(), wk::WatchRequest());
  auto request = TestSession::MakeAdmit(std::string(16, 'h'), 0, 2, 100);
  request.set_hold_ms(50);
  ASSERT_EQ(AdmitCode(head, request), Code::kOk);
  wk::Event event;
  while (events->Read(&event) && !event.has_lane_ended()) {
  }
  EXPECT_EQ(event.lane_ended().error().code(), pb::ERROR_CODE_LEASE_EXPIRED);
  watching->TryCancel();
}

TEST(Control, refuses_admissions_that_do_not_fit) {
  WorkerProcess head("0-1", {"--model-digest", std::string(64, '6')});
  ASSERT_EQ(head.WaitReady().state(), wk::STATE_READY);
  const auto good = [] {
    auto request = TestSession::MakeAdmit(std::string(16, 'i'), 0, 2, 100);
    request.set_model_digest(std::string(kDigestBytes, 0x66));
    return request;
  };
  auto request = good();
  request.set_model_digest(TestModelDigest());
  EXPECT_EQ(AdmitCode(head, request), Code::kModelMismatch);
  request = good();
  request.mutable_lane()->set_stage(1);
  EXPECT_EQ(AdmitCode(head, request), Code::kRangeMismatch);
  request = good();
  request.set_n_stages(1);
  EXPECT_EQ(AdmitCode(head, request), Code::kRangeMismatch);
  request = good();
  request.mutable_seams(0)->set_role(wk::SEAM_ROLE_TO_PREVIOUS);
  EXPECT_EQ(AdmitCode(head, request), Code::kRoleInvalid);
  request = good();
  request.mutable_lane()->set_session("short");
  EXPECT_EQ(AdmitCode(head, request), Code::kMalformed);
  request = good();
  request.set_positions(5000);
  EXPECT_EQ(AdmitCode(head, request), Code::kNoCapacity);
  ASSERT_EQ(AdmitCode(head, good()), Code::kOk);
  EXPECT_EQ(AdmitCode(head, good()), Code::kLaneExists);
  const auto context = head.Context();
  wk::DrainReply drained;
  ASSERT_TRUE(head.stub().Drain(context.get(), {}, &drained).ok());
  EXPECT_EQ(drained.lanes(), 1u);
  request = good();
  request.mutable_lane()->set_session(std::string(16, 'j'));
  EXPECT_EQ(AdmitCode(head, request), Code::kDraining);
}

TEST(Control, probes_the_shard) {
  WorkerProcess middle("1-2");
  ASSERT_EQ(middle.WaitReady().state(), wk::STATE_READY);
  wk::ProbeRequest request;
  request.set_n_tokens(16);
  wk::ProbeReply first, second;
  const auto once = middle.Context(), again = middle.Context();
  ASSERT_TRUE(middle.stub().Probe(once.get(), request, &first).ok());
  ASSERT_TRUE(middle.stub().Probe(again.get(), request, &second).ok());
  EXPECT_EQ(first.output_digest().size(), kDigestBytes);
  EXPECT_EQ(first.output_digest(), second.output_digest());
}

TEST(Control, traces_logits_only_when_started_for_it) {
  WorkerProcess traced("0-3", {"--trace-logits"});
  ASSERT_EQ(traced.WaitReady().state(), wk::STATE_READY);
  const auto watching = traced.Context();
  const auto events = traced.stub().Watch(watching.get(), wk::WatchRequest());
  TestSession session({&traced}, 'k');
  const auto tokens = session.Run(Prompt(5, 6), 3);
  std::vector<int32_t> sampled;
  wk::Event event;
  while (sampled.size() < tokens.size() && events->Read(&event)) {
    for (const auto & row : event.logits_trace().rows()) {
      if (row.logits_sha256().empty()) continue;
      EXPECT_EQ(row.logits_sha256().size(), kDigestBytes);
      sampled.push_back(row.sampled());
    }
  }
  EXPECT_EQ(sampled, tokens);
  watching->TryCancel();
}

TEST(Control, reports_at_the_interval) {
  WorkerProcess whole("0-3");
  ASSERT_EQ(whole.WaitReady().state(), wk::STATE_READY);
  const auto watching = whole.Context();
  wk::WatchRequest request;
  request.set_report_interval_ms(50);
  const auto events = whole.stub().Watch(watching.get(), request);
  TestSession session({&whole}, 'l');
  session.Run(Prompt(5, 7), 3);
  wk::Event event;
  while (events->Read(&event) && event.report().tokens_decoded() == 0) {
  }
  EXPECT_GE(event.report().tokens_prefilled(), 5u);
  EXPECT_GT(event.report().bytes_in(), 0u);
  EXPECT_GT(event.report().bytes_out(), 0u);
  EXPECT_EQ(event.report().lanes(), 1u);
  watching->TryCancel();
}

TEST(Control, ends_with_its_node) {
  WorkerProcess asked("0-1"), orphan("0-1");
  ASSERT_EQ(asked.WaitReady().state(), wk::STATE_READY);
  ASSERT_EQ(orphan.WaitReady().state(), wk::STATE_READY);
  asked.Signal(SIGTERM);
  orphan.CloseStdin();
  EXPECT_EQ(asked.WaitExit(), 0) << asked.Stderr();
  EXPECT_EQ(orphan.WaitExit(), 0) << orphan.Stderr();
}

TEST(Control, names_the_reason_when_it_cannot_run) {
  WorkerProcess range("2-9"), usage("2-1"), unknown("0-1", {"--cells", "many"});
  EXPECT_EQ(range.WaitExit(), 65);
  EXPECT_NE(range.Stderr().find("\"code\":\"RANGE_INVALID\""), std::string::npos) << range.Stderr();
  EXPECT_EQ(usage.WaitExit(), 2);
  EXPECT_EQ(unknown.WaitExit(), 2);
  EXPECT_NE(unknown.Stderr().find("--cells"), std::string::npos);
}

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--worker") == 0) meshnet::g_worker_path = argv[i + 1];
    if (std::strcmp(argv[i], "--model") == 0) meshnet::g_model_path = argv[i + 1];
  }
  signal(SIGPIPE, SIG_IGN);
  return RUN_ALL_TESTS();
}
