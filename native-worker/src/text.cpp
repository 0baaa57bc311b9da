#include "text.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include "boot_token.h"
#include "cpu_limit.h"
#include "status_report.h"
#include "text_vocabulary.h"
#include "worker.grpc.pb.h"

namespace meshnet {
namespace {

namespace pb = meshnet::worker::v1;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitTimeLimit = 3;
// An honest template or schema needs milliseconds; the longest word that a request can hold, 12 s of a slow tokeniser.
constexpr int kDefaultTimeLimitMs = 30000;
constexpr int kMaxThreads = 12;
constexpr int kMaxConcurrentCalls = 64;
// Some tokenisers match with std::regex, which recurses once per character of a long word.
constexpr size_t kStackBytes = 256 << 20;
constexpr auto kStopGrace = std::chrono::seconds(1);

class TextService final : public pb::Text::Service {
 public:
  TextService(const TextVocabulary & vocabulary, std::string token, CpuLimit * limit)
      : vocabulary_(vocabulary), token_(std::move(token)), limit_(limit) {}

  grpc::Status Describe(grpc::ServerContext * context, const pb::TextDescribeRequest *,
                        pb::TextDescription * out) override {
    return Answer(context, [&] {
      const TextFacts & facts = vocabulary_.facts();
      out->set_n_vocab(facts.n_vocab);
      out->set_bos(facts.bos);
      out->set_eos(facts.eos);
      out->mutable_end_ids()->Assign(facts.end_ids.begin(), facts.end_ids.end());
      out->set_has_chat_template(facts.has_chat_template);
      out->set_n_ctx_train(facts.n_ctx_train);
      out->set_architecture(facts.architecture);
      out->set_pid(static_cast<uint32_t>(getpid()));
      return Status::Ok();
    });
  }

  grpc::Status Tokenize(grpc::ServerContext * context, const pb::TokenizeRequest * in, pb::Tokens * out) override {
    return Answer(context, [&] {
      std::vector<int32_t> ids;
      const Status status = vocabulary_.Tokenize(in->text(), in->add_special(), in->parse_special(), &ids);
      out->mutable_ids()->Assign(ids.begin(), ids.end());
      return status;
    });
  }

  grpc::Status Render(grpc::ServerContext * context, const pb::RenderRequest * in, pb::Rendered * out) override {
    return Answer(context, [&] {
      std::string prompt;
      std::vector<int32_t> ids;
      const Status status =
          vocabulary_.Render(in->messages_json(), in->tools_json(), in->add_generation_prompt(), &prompt, &ids);
      out->set_prompt(std::move(prompt));
      out->mutable_ids()->Assign(ids.begin(), ids.end());
      return status;
    });
  }

  grpc::Status Pieces(grpc::ServerContext * context, const pb::PiecesRequest * in, pb::PiecesReply * out) override {
    return Answer(context, [&] {
      std::vector<std::string> pieces;
      const Status status = vocabulary_.Pieces({in->ids().begin(), in->ids().end()}, in->special(), &pieces);
      for (std::string & piece : pieces) {
        out->add_pieces(std::move(piece));
      }
      return status;
    });
  }

  grpc::Status GrammarFromSchema(grpc::ServerContext * context, const pb::GrammarRequest * in,
                                 pb::GrammarReply * out) override {
    return Answer(context, [&] { return vocabulary_.GrammarFromSchema(in->json_schema(), out->mutable_grammar()); });
  }

 private:
  template <typename Call>
  grpc::Status Answer(grpc::ServerContext * context, Call call) {
    if (!HasBootToken(*context, token_)) {
      return BootTokenRefused();
    }
    const CpuLimit::Scope scope(limit_);
    try {
      return ToGrpc(call(), context);
    } catch (const std::exception & e) {
      return ToGrpc({Code::kInternal, e.what()}, context);
    }
  }

  const TextVocabulary & vocabulary_;
  const std::string token_;
  CpuLimit * const limit_;
};

struct Options {
  std::string model, control, token_file;
  int parent_pid = 0;
  int time_limit_ms = kDefaultTimeLimitMs;
};

bool ParsePositive(const std::string & text, int * out) {
  const char * const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && rest == end && *out > 0;
}

Status ParseOptions(int argc, char ** argv, Options * out) {
  const std::map<std::string, std::string *> texts = {
      {"--model", &out->model}, {"--control", &out->control}, {"--token-file", &out->token_file}};
  const std::map<std::string, int *> numbers = {{"--parent-pid", &out->parent_pid},
                                                {"--time-limit-ms", &out->time_limit_ms}};
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--text") {
      continue;
    }
    if (!texts.contains(flag) && !numbers.contains(flag)) {
      return {Code::kMalformed, "unknown flag " + flag};
    }
    if (++i == argc) {
      return {Code::kMalformed, flag + " needs a value"};
    }
    if (texts.contains(flag)) {
      *texts.at(flag) = argv[i];
    } else if (!ParsePositive(argv[i], numbers.at(flag))) {
      return {Code::kMalformed, flag + " needs a positive number, not " + argv[i]};
    }
  }
  if (out->model.empty() || out->control.empty() || out->token_file.empty()) {
    return {Code::kMalformed, "--text needs --model, --control and --token-file"};
  }
  if (out->control.size() >= sizeof(sockaddr_un::sun_path)) {
    return {Code::kMalformed, "--control: a socket path may have " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                  " bytes, this one has " + std::to_string(out->control.size())};
  }
  return Status::Ok();
}

int Fail(int exit_code, const Status & status) {
  PrintStatus(status);
  return exit_code;
}

// Returns at SIGTERM or SIGINT (blocked before), or when the parent is gone.
void WaitForTheEnd(int signals, int parent) {
  pollfd watched[] = {{signals, POLLIN, 0}, {parent, POLLIN, 0}};
  while (poll(watched, 2, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

int RunText(int argc, char ** argv) {
  Options options;
  if (const Status status = ParseOptions(argc, argv, &options); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  // Before any thread exists, so that all of them inherit it.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
  int parent = -1;
  if (options.parent_pid > 0) {
    // The C library's header of this call lacks its C linkage.
    parent = static_cast<int>(syscall(SYS_pidfd_open, options.parent_pid, 0));
    if (parent < 0) {
      return Fail(kExitFailed, {Code::kWorkerLost, "the parent is gone"});
    }
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);

  std::string token;
  if (const Status status = ReadBootToken(options.token_file, &token); !status.ok()) {
    return Fail(kExitFailed, status);
  }
  std::unique_ptr<TextVocabulary> vocabulary;
  if (const Status status = TextVocabulary::Load(options.model, &vocabulary); !status.ok()) {
    return Fail(kExitFailed, status);
  }
  CpuLimit limit(std::chrono::milliseconds(options.time_limit_ms), [&options] {
    PrintStatus(
        {Code::kDeadlineExceeded, "a call used " + std::to_string(options.time_limit_ms) + " ms of processor time"});
    _exit(kExitTimeLimit);
  });
  TextService service(*vocabulary, token, &limit);

  grpc::ResourceQuota quota("text");
  quota.SetMaxThreads(kMaxThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxPromptBytes + kMaxTextJsonBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentCalls);
  builder.AddListeningPort("unix:" + options.control, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const mode_t before = umask(0177);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(before);
  if (!server) {
    return Fail(kExitFailed, {Code::kInternal, "cannot listen on " + options.control});
  }
  WaitForTheEnd(signals, parent);
  server->Shutdown(std::chrono::system_clock::now() + kStopGrace);
  server->Wait();
  unlink(options.control.c_str());
  return 0;
}

}  // namespace meshnet
