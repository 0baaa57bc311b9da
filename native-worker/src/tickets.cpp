#include "tickets.h"

#include "bounds.h"
#include "certificate.h"

namespace meshnet {

Status Tickets::Add(const LaneKey & key, std::vector<End> ends, uint64_t * admission) {
  std::lock_guard lock(mu_);
  if (lanes_.contains(key)) return {Code::kLaneExists, "the lane is admitted already"};
  if (lanes_.size() >= kMaxLanes) return {Code::kResourceExhausted, "too many lanes"};
  *admission = next_admission_++;
  lanes_.emplace(key, Lane{*admission, false, std::move(ends)});
  return {};
}

Status Tickets::Find(const LaneKey & key, SeamRole end, Lane ** lane, End ** found) {
  const auto it = lanes_.find(key);
  if (it == lanes_.end()) {
    for (auto other = lanes_.lower_bound({key.session, 0, 0});
         other != lanes_.end() && other->first.session == key.session; ++other) {
      if (other->first.epoch > key.epoch) return {Code::kEpochStale, "the session has a newer epoch here"};
    }
    return {Code::kLaneNotOpen, "no such lane was admitted"};
  }
  for (End & candidate : it->second.ends) {
    if (candidate.seam->terms().end != end) continue;
    *lane = &it->second;
    *found = &candidate;
    return {};
  }
  return {Code::kRoleInvalid, "the lane has no such seam"};
}

Status Tickets::Expect(const LaneKey & key, SeamRole end, const std::string & peer_id,
                       const std::string & certificate_sha256, std::shared_ptr<Seam> * seam) {
  std::lock_guard lock(mu_);
  Lane * lane = nullptr;
  End * found = nullptr;
  if (Status s = Find(key, end, &lane, &found); !s.ok()) return s;
  if (!found->peer_id.empty() && !peer_id.empty() && found->peer_id != peer_id) {
    return {Code::kPeerMismatch, "admission named another peer for this seam"};
  }
  if (!peer_id.empty()) found->peer_id = peer_id;
  if (found->certificate_sha256 != certificate_sha256) {
    if (!found->certificate_sha256.empty()) direct_peers_->Remove(found->certificate_sha256);
    if (!certificate_sha256.empty()) direct_peers_->Add(certificate_sha256);
    found->certificate_sha256 = certificate_sha256;
  }
  lane->used = true;
  *seam = found->seam;
  return {};
}

Status Tickets::Open(const LaneKey & key, SeamRole end, std::string_view ticket, const PeerIdentity & peer,
                     std::shared_ptr<Seam> * seam) {
  std::lock_guard lock(mu_);
  Lane * lane = nullptr;
  End * found = nullptr;
  if (Status s = Find(key, end, &lane, &found); !s.ok()) return s;
  if (!EqualConstantTime(ticket, found->ticket))
    return {Code::kTicketInvalid, "the ticket is not the one of this seam"};
  const bool direct = !peer.certificate_sha256.empty();
  const std::string & is = direct ? peer.certificate_sha256 : peer.peer_id;
  const std::string & expected = direct ? found->certificate_sha256 : found->peer_id;
  if (is.empty() || is != expected) return {Code::kPeerMismatch, "another peer is expected at this seam"};
  lane->used = true;
  *seam = found->seam;
  return {};
}

bool Tickets::IsUnused(const LaneKey & key, uint64_t admission) const {
  std::lock_guard lock(mu_);
  const auto it = lanes_.find(key);
  return it != lanes_.end() && it->second.admission == admission && !it->second.used;
}

std::vector<std::shared_ptr<Seam>> Tickets::Remove(const LaneKey & key, uint64_t admission) {
  std::vector<std::shared_ptr<Seam>> seams;
  std::lock_guard lock(mu_);
  const auto it = lanes_.find(key);
  if (it == lanes_.end() || (admission != 0 && it->second.admission != admission)) return seams;
  for (End & end : it->second.ends) {
    if (!end.certificate_sha256.empty()) direct_peers_->Remove(end.certificate_sha256);
    seams.push_back(std::move(end.seam));
  }
  lanes_.erase(it);
  removed_.notify_all();
  return seams;
}

size_t Tickets::size() const {
  std::lock_guard lock(mu_);
  return lanes_.size();
}

std::vector<LaneKey> Tickets::keys() const {
  std::lock_guard lock(mu_);
  std::vector<LaneKey> keys;
  for (const auto & [key, lane] : lanes_) keys.push_back(key);
  return keys;
}

bool Tickets::WaitEmpty(std::chrono::steady_clock::time_point deadline) const {
  std::unique_lock lock(mu_);
  return removed_.wait_until(lock, deadline, [&] { return lanes_.empty(); });
}

}  // namespace meshnet
