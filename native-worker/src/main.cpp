// meshnet-worker: one shard of a model in one process, or with --text a vocabulary. See Usage() in args.cpp.
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "args.h"
#include "boot_token.h"
#include "bounds.h"
#include "control_server.h"
#include "control_state.h"
#include "parent_watch.h"
#include "status_report.h"
#include "text.h"

namespace {

using namespace meshnet;

enum Exit { kOrderly = 0, kUsage = 2, kBadModel = 65, kInternalFault = 70 };

int ExitCode(const Status & status) {
  switch (status.code()) {
    case Code::kOk:
      return kOrderly;
    case Code::kMalformed:
      return kUsage;
    case Code::kModelCorrupt:
    case Code::kRangeInvalid:
    case Code::kNotCertified:
      return kBadModel;
    default:
      return kInternalFault;
  }
}

// Freed pages of a frame would go back to the kernel and be faulted in again for the next one: 29 ms for 1 MB.
void KeepFreedMemory() {
  constexpr int kKeepBytes = 256 << 20, kMapFromBytes = 64 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeepBytes);
  mallopt(M_MMAP_THRESHOLD, kMapFromBytes);
}

// gRPC writes a line for every stranger that knocks, protobuf one for every string that is not UTF-8. Whoever debugs
// asks for them.
void QuietLibraries() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args *) {});
  google::protobuf::SetLogHandler(nullptr);
}

// 8 bytes of Unix milliseconds, then 8 random ones, big endian.
Status MakeBootId(std::string * out) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  auto ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  std::string random;
  if (!RandomBytes(8, &random)) return {Code::kInternal, "the system gives no random bytes"};
  out->assign(8, '\0');
  for (size_t i = 8; i-- > 0; ms >>= 8) (*out)[i] = static_cast<char>(ms & 0xff);
  *out += random;
  return {};
}

// Loads in a thread of its own, so that the control socket answers meanwhile.
class Loader {
 public:
  Loader(const WorkerArgs & args, WorkerState * state, ParentWatch * watch)
      : thread_([this, args, state, watch] {
          result_ = Load(args, state);
          if (result_.ok()) return;
          state->Failed(result_);
          watch->Ask();
        }) {}
  ~Loader() { Stop(); }

  // Breaks off a load that runs.
  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // REQUIRES: stopped.
  const Status & result() const { return result_; }

 private:
  Status Load(WorkerArgs args, WorkerState * state) {
    try {
      args.shard.on_progress = [this, state](float progress) {
        state->Loading(progress);
        return !stopping_;
      };
      std::unique_ptr<Shard> shard;
      if (Status s = Shard::Load(args.shard, &shard); !s.ok()) return s;
      state->Ready(std::make_shared<Engine>(std::move(shard), args.engine, state->Observer()));
      return {};
    } catch (const std::exception & error) {
      return {Code::kInternal, error.what()};
    }
  }

  std::atomic<bool> stopping_{false};
  Status result_;
  std::thread thread_;
};

// Owns everything, so that the order of the end is the reverse of the start.
Status Serve(const WorkerArgs & args, ParentWatch * watch) {
  std::string token;
  if (Status s = ReadBootToken(args.token_file, &token); !s.ok()) return s;
  WorkerIdentity identity;
  identity.model_digest = args.model_digest;
  identity.layer_first = static_cast<uint32_t>(args.shard.layer_first);
  identity.layer_last = static_cast<uint32_t>(args.shard.layer_last);
  identity.n_threads = static_cast<uint32_t>(args.shard.n_threads);
  identity.direct = args.direct;
  if (Status s = MakeCertificate(&identity.certificate); !s.ok()) return s;
  if (Status s = MakeBootId(&identity.boot_id); !s.ok()) return s;

  const auto peers = std::make_shared<PeerSet>();
  const auto traffic = std::make_shared<Traffic>();
  const Certificate certificate = identity.certificate;
  Timer timer;
  WorkerState state(std::move(identity), &timer, peers, traffic);
  WorkerServers servers(&state, {state.tickets(), &timer, traffic, [&state](Code code) { state.Refused(code); }},
                        token);
  if (args.direct) {
    uint32_t port = 0;
    if (Status s = servers.ListenSeams(args.listen, certificate, peers, &port); !s.ok()) return s;
    state.SetSeamPort(port);
  }
  if (Status s = servers.ListenControl(args.control); !s.ok()) return s;

  Loader loader(args, &state, watch);
  const auto reason = watch->WaitForStop();
  loader.Stop();
  state.Drain();
  state.ReleaseAll({Code::kWorkerLost, "the worker stops"}, std::chrono::milliseconds(kStopMs / 2));
  state.watchers()->Close();
  servers.Stop(std::chrono::milliseconds(kStopMs / 2));
  const Status result = reason == ParentWatch::Reason::kAsked ? loader.result() : Status();
  if (!traffic->WaitNoDialled(std::chrono::steady_clock::now() + std::chrono::milliseconds(kStopMs / 2))) {
    // A call on a dead link: nothing that it holds needs to be put away.
    if (!result.ok()) PrintStatus(result);
    _exit(ExitCode(result));
  }
  timer.Stop();
  state.DropEngine();
  return result;
}

int RunWorker(int argc, char ** argv) {
  WorkerArgs args;
  if (Status s = ParseArgs(argc, argv, &args); !s.ok()) {
    PrintStatus(s);
    std::fputs(Usage(), stderr);
    return kUsage;
  }
  if (args.help) {
    std::fputs(Usage(), stdout);
    return kOrderly;
  }
  KeepFreedMemory();
  QuietLibraries();
  ParentWatch watch;
  Status status = watch.Prepare(args.parent_pid);
  try {
    if (status.ok()) status = Serve(args, &watch);
  } catch (const std::exception & error) {
    status = Status(Code::kInternal, error.what());
  }
  if (!status.ok()) PrintStatus(status);
  return ExitCode(status);
}

}  // namespace

int main(int argc, char ** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--text") == 0) return RunText(argc, argv);
  }
  return RunWorker(argc, argv);
}
