// TestSession: what a gateway and the nodes do for one session, against real workers.
// Threads: the test's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bridge.h"
#include "seam_client.h"
#include "worker_process.h"

namespace meshnet {

class TestSession {
 public:
  enum class Path { kDirect, kBridge };

  // Admits to every worker in order, links neighbours, opens the entry seam. Fails the test on a refusal.
  TestSession(std::vector<WorkerProcess *> stages, char id, uint32_t positions = 128, Path path = Path::kDirect);

  SeamClient & entry() { return *entry_; }
  LaneKey key(uint32_t stage) const { return {session_, 1, stage}; }
  seam::v1::Lane lane(uint32_t stage) const;
  // The ticket that a stage issued for one of its ends.
  std::string ticket(uint32_t stage, worker::v1::SeamRole end) const;
  // A greedy turn; fails the test when it does not finish.
  std::vector<int32_t> Run(const std::vector<int32_t> & prompt, uint32_t max_tokens);
  void SendTurn(const std::vector<int32_t> & prompt, uint32_t max_tokens);
  void Release(uint32_t stage, seam::v1::ErrorCode reason = seam::v1::ERROR_CODE_UNSPECIFIED);

  // A request as Admit sends it for that stage.
  static worker::v1::AdmitRequest MakeAdmit(const std::string & session, uint32_t stage, uint32_t n_stages,
                                            uint32_t positions);

 private:
  void Link(uint32_t listener, worker::v1::SeamRole listening, uint32_t dialler, worker::v1::SeamRole dialling);
  void OpenEntry(uint32_t positions);

  // How the dialler reaches the listener.
  void Aim(uint32_t listener, worker::v1::SeamRole listening, uint32_t dialler, worker::v1::LinkRequest * link);

  std::vector<WorkerProcess *> stages_;
  Path path_;
  std::vector<std::unique_ptr<Bridge>> bridges_;
  std::string session_;
  std::vector<worker::v1::AdmitReply> admitted_;
  std::vector<worker::v1::Description> described_;
  std::unique_ptr<SeamClient> entry_;
  uint32_t next_position_ = 0;
  uint32_t turn_ = 0;
};

// 32 bytes that stand for the model.
std::string TestModelDigest();
// The gateway's Open of an entry seam.
Frame EntryOpen(uint32_t attempt, uint32_t positions);

}  // namespace meshnet
