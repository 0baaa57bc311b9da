#include "worker_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "certificate.h"
#include "status_report.h"

namespace meshnet {
namespace {

constexpr auto kReadyWithin = std::chrono::seconds(30);
constexpr auto kCallWithin = std::chrono::seconds(20);
constexpr int kExitWithinMs = 20000;

}  // namespace

std::string g_worker_path;
std::string g_model_path;

WorkerProcess::WorkerProcess(const std::string & layers, const std::vector<std::string> & more) {
  std::string pattern = (std::filesystem::temp_directory_path() / "meshnet-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  socket_path_ = folder_ + "/s";
  EXPECT_TRUE(RandomBytes(32, &token_));
  std::ofstream(folder_ + "/token", std::ios::binary) << token_;

  std::vector<std::string> words{g_worker_path, "--model",    g_model_path,   "--layers",         layers,
                                 "--control",   socket_path_, "--token-file", folder_ + "/token", "--listen",
                                 "127.0.0.1:0", "--cells",    "1024",         "--ubatch",         "64"};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--parent-pid", std::to_string(getpid())});
  std::vector<char *> argv;
  for (auto & word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  stdin_ = ends[1];
  const std::string errors = folder_ + "/stderr";
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[0], STDIN_FILENO);
    dup2(open(errors.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[0]);
  EXPECT_GT(pid_, 0);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  channel_ = grpc::CreateCustomChannel("unix:" + socket_path_, grpc::InsecureChannelCredentials(), arguments);
  stub_ = worker::v1::Worker::NewStub(channel_);
}

WorkerProcess::~WorkerProcess() {
  CloseStdin();
  if (exit_code_ < 0) {
    Signal(SIGKILL);
    WaitExit();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

worker::v1::Description WorkerProcess::WaitReady() {
  worker::v1::Description last;
  if (!channel_->WaitForConnected(std::chrono::system_clock::now() + kReadyWithin)) {
    ADD_FAILURE() << "no control socket: " << Stderr();
    return last;
  }
  const auto context = Context();
  context->set_deadline(std::chrono::system_clock::now() + kReadyWithin);
  const auto events = stub_->Watch(context.get(), worker::v1::WatchRequest());
  worker::v1::Event event;
  while (events->Read(&event)) {
    if (!event.has_state_changed()) continue;
    last = event.state_changed();
    if (last.state() != worker::v1::STATE_LOADING) break;
  }
  context->TryCancel();
  events->Finish().ok();
  EXPECT_NE(last.state(), worker::v1::STATE_UNSPECIFIED) << Stderr();
  return last;
}

std::unique_ptr<grpc::ClientContext> WorkerProcess::Context() const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata("meshnet-token-bin", token_);
  context->set_deadline(std::chrono::system_clock::now() + kCallWithin);
  return context;
}

Code WorkerProcess::CodeOf(const grpc::Status & status, const grpc::ClientContext & context) {
  if (status.ok()) return Code::kOk;
  const auto & trailing = context.GetServerTrailingMetadata();
  const auto found = trailing.find("meshnet-error-bin");
  seam::v1::Error error;
  if (found == trailing.end() || !error.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    ADD_FAILURE() << "no typed error: " << status.error_message();
    return Code::kInternal;
  }
  return CodeFrom(error.code());
}

void WorkerProcess::Signal(int number) const {
  if (pid_ > 0 && exit_code_ < 0) kill(pid_, number);
}

void WorkerProcess::CloseStdin() {
  if (stdin_ >= 0) close(stdin_);
  stdin_ = -1;
}

int WorkerProcess::WaitExit() {
  if (exit_code_ >= 0) return exit_code_;
  pollfd watched{static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)), POLLIN, 0};
  const int ready = poll(&watched, 1, kExitWithinMs);
  close(watched.fd);
  int status = 0;
  if (ready != 1 || waitpid(pid_, &status, 0) != pid_) return -1;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

std::string WorkerProcess::Stderr() const {
  std::ifstream in(folder_ + "/stderr", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace meshnet
