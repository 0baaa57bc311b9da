#include "ledger.h"

#include <algorithm>

namespace meshnet {
namespace {

uint64_t CellsFor(uint32_t positions) { return (uint64_t{positions} + kCellBlock - 1) / kCellBlock * kCellBlock; }

Status NoCells(uint64_t required, uint32_t available) {
  return {Code::kNoCapacity,
          "cells: required " + std::to_string(required) + ", available " + std::to_string(available)};
}

}  // namespace

Ledger::Ledger(uint32_t cells, uint32_t sequences)
    : cells_total_(cells), cells_free_(cells), sequences_total_(sequences) {
  for (uint32_t i = 0; i < sequences; i++) free_seqs_.insert(static_cast<int32_t>(i));
}

Status Ledger::Admit(const LaneKey & key, uint32_t positions, Lease * out) {
  if (leases_.contains(key)) return {Code::kLaneExists, "this lane is open already"};
  if (IsStale(key)) return {Code::kEpochStale, "a higher epoch of this session is known"};
  if (positions == 0) return {Code::kLimitExceeded, "a lane needs one position at least"};
  const uint64_t cells = CellsFor(positions);
  if (cells > cells_free_) return NoCells(cells, cells_free_);
  if (free_seqs_.empty()) return {Code::kNoCapacity, "sequence ids: required 1, available 0"};

  Lease lease{next_instance_++, *free_seqs_.begin(), static_cast<uint32_t>(cells), 0};
  free_seqs_.erase(free_seqs_.begin());
  cells_free_ -= lease.cells;
  leases_.emplace(key, lease);
  Remember(key);
  *out = lease;
  return {};
}

Status Ledger::Extend(const LaneKey & key, uint32_t positions) {
  Lease * lease = Find(key);
  if (lease == nullptr) return {Code::kLaneNotOpen, "no such lane"};
  const uint64_t cells = CellsFor(positions);
  if (cells <= lease->cells) return {};
  const uint64_t more = cells - lease->cells;
  if (more > cells_free_) return NoCells(more, cells_free_);
  cells_free_ -= static_cast<uint32_t>(more);
  lease->cells = static_cast<uint32_t>(cells);
  return {};
}

Ledger::Lease * Ledger::Find(const LaneKey & key) {
  auto it = leases_.find(key);
  return it == leases_.end() ? nullptr : &it->second;
}

bool Ledger::Free(const LaneKey & key, uint64_t instance) {
  auto it = leases_.find(key);
  if (it == leases_.end() || it->second.instance != instance) return false;
  cells_free_ += it->second.cells;
  free_seqs_.insert(it->second.seq);
  leases_.erase(it);
  return true;
}

bool Ledger::IsStale(const LaneKey & key) const {
  auto it = epochs_.find(key.session);
  return it != epochs_.end() && it->second.highest > key.epoch;
}

void Ledger::Remember(const LaneKey & key) {
  auto it = epochs_.find(key.session);
  if (it != epochs_.end()) {
    ages_.splice(ages_.end(), ages_, it->second.age);
    it->second.highest = std::max(it->second.highest, key.epoch);
    return;
  }
  ages_.push_back(key.session);
  epochs_.emplace(key.session, Epoch{key.epoch, std::prev(ages_.end())});
  if (epochs_.size() > kMaxRememberedEpochs) {
    epochs_.erase(ages_.front());
    ages_.pop_front();
  }
}

}  // namespace meshnet
