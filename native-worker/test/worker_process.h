// WorkerProcess: a real worker beside the test, and the calls of its node.
// Threads: the test's thread.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "status.h"
#include "worker.grpc.pb.h"

namespace meshnet {

// Program and generated model, from the command line.
extern std::string g_worker_path;
extern std::string g_model_path;

class WorkerProcess {
 public:
  // `layers` in the notation of --layers. Fails the test when it cannot be started.
  WorkerProcess(const std::string & layers, const std::vector<std::string> & more = {});
  ~WorkerProcess();  // killed, if it still runs
  WorkerProcess(const WorkerProcess &) = delete;
  WorkerProcess & operator=(const WorkerProcess &) = delete;

  // Watches until it is ready or has failed; fails the test after 30 seconds.
  worker::v1::Description WaitReady();

  worker::v1::Worker::Stub & stub() { return *stub_; }
  // Context with the token, and a deadline of 20 seconds.
  std::unique_ptr<grpc::ClientContext> Context() const;
  // The typed error of a refused call; kOk when it was not refused.
  static Code CodeOf(const grpc::Status & status, const grpc::ClientContext & context);

  const std::string & token() const { return token_; }
  const std::string & socket_path() const { return socket_path_; }
  std::shared_ptr<grpc::Channel> channel() const { return channel_; }
  pid_t pid() const { return pid_; }

  void Signal(int number) const;
  void CloseStdin();
  // Exit code; 128 + signal when it was killed; -1 when it still runs after 20 seconds.
  int WaitExit();
  std::string Stderr() const;

 private:
  std::string folder_, token_, socket_path_;
  pid_t pid_ = -1;
  int stdin_ = -1;
  int exit_code_ = -1;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<worker::v1::Worker::Stub> stub_;
};

}  // namespace meshnet
