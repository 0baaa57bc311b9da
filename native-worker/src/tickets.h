// Tickets: the seams of the lanes that live here, and who may open each.
// Threads: every method from any thread.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "port.h"
#include "seam.h"
#include "status.h"
#include "tls.h"
#include "worker.pb.h"

namespace meshnet {

// Who is at the other end of a stream, as the transport knows it: one of the two.
struct PeerIdentity {
  std::string certificate_sha256;  // direct
  std::string peer_id;             // bridged, by the node that authenticated it
};

class Tickets {
 public:
  using SeamRole = meshnet::worker::v1::SeamRole;

  struct End {
    std::shared_ptr<Seam> seam;
    std::string ticket;
    std::string peer_id;             // named at admission
    std::string certificate_sha256;  // named by Link; empty until then
  };

  // `direct_peers` gets every certificate that a living lane expects.
  explicit Tickets(std::shared_ptr<PeerSet> direct_peers) : direct_peers_(std::move(direct_peers)) {}

  // *admission tells this lane from an earlier one of the same key. kLaneExists, kEpochStale, kResourceExhausted.
  Status Add(const LaneKey & key, std::vector<End> ends, uint64_t * admission);
  // From now on that peer may open this end. kLaneNotOpen, kRoleInvalid, kPeerMismatch.
  Status Expect(const LaneKey & key, SeamRole end, const std::string & peer_id, const std::string & certificate_sha256,
                std::shared_ptr<Seam> * seam);
  // The seam that a stream may open. kLaneNotOpen, kEpochStale, kRoleInvalid, kTicketInvalid, kPeerMismatch.
  Status Open(const LaneKey & key, SeamRole end, std::string_view ticket, const PeerIdentity & peer,
              std::shared_ptr<Seam> * seam);
  // Whether the lane of this admission lives and nobody has linked or opened any of its seams.
  bool IsUnused(const LaneKey & key, uint64_t admission) const;

  // Takes the lane's tickets back; `admission` 0 means whichever.
  std::vector<std::shared_ptr<Seam>> Remove(const LaneKey & key, uint64_t admission = 0);
  size_t size() const;
  std::vector<LaneKey> keys() const;
  // False when lanes are left at the deadline.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline) const;

 private:
  struct Lane {
    uint64_t admission = 0;
    bool used = false;
    std::vector<End> ends;
  };

  Status Find(const LaneKey & key, SeamRole end, Lane ** lane, End ** found);

  const std::shared_ptr<PeerSet> direct_peers_;
  mutable std::mutex mu_;
  mutable std::condition_variable removed_;
  std::map<LaneKey, Lane> lanes_;
  uint64_t next_admission_ = 1;
};

}  // namespace meshnet
