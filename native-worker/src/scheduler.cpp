#include "scheduler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "prefill_pace.h"

namespace meshnet {
namespace {

// How long lanes wait for others, in ticks: the stage that holds those needs about one for each group. More would be
// long for them when somebody on their way is slow.
constexpr uint64_t kGrowTicks = 2;

struct GroupState {
  uint64_t first_us = UINT64_MAX;
  uint32_t present = 0;   // complete or blocked
  bool runnable = false;  // someone in it can run
};

// Groups of the candidates that `wanted` lets through.
template <typename Wanted>
std::map<GroupKey, GroupState> Groups(std::span<const Candidate> candidates, Wanted wanted) {
  std::map<GroupKey, GroupState> groups;
  for (const Candidate & c : candidates) {
    if (!c.complete || !wanted(c)) continue;
    GroupState & group = groups[c.group];
    group.present++;
    if (c.blocked) continue;
    group.first_us = std::min(group.first_us, c.since_us);
    group.runnable = true;
  }
  return groups;
}

// When the group may run: now if everybody is here.
uint64_t DueAt(const GroupKey & key, const GroupState & state, const GroupBook & book, uint64_t wait_us) {
  const bool whole = uint64_t{state.present} + book.settled(key) >= key.size;
  return whole ? 0 : state.first_us + wait_us;
}

// Every client's first lane, then every client's second, and so on. Among first ones the client comes first whose turn
// was longest ago, then the lane that waited longest. Nobody starves: the lane that waited longest of all is some
// client's first.
void OrderFairly(std::vector<const Candidate *> & lanes) {
  std::map<uint32_t, size_t> n_before;  // of the same client, by client
  std::vector<std::pair<std::pair<size_t, uint64_t>, const Candidate *>> ranked;
  for (const Candidate * c : lanes) ranked.push_back({{n_before[c->client]++, c->client_ran_us}, c});
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto & a, const auto & b) { return a.first < b.first; });
  std::transform(ranked.begin(), ranked.end(), lanes.begin(), [](const auto & item) { return item.second; });
}

// Prompts keep a stage busy, as a group of decoders does.
uint32_t IsPrompt(const RingLoad & load) { return load.prompts > 0 ? 1 : 0; }

void SortByLane(std::vector<Pick> & picks) {
  std::sort(picks.begin(), picks.end(), [](const Pick & a, const Pick & b) { return a.lane < b.lane; });
}

}  // namespace

void GroupBook::Settle(const GroupKey & group) {
  for (Entry & entry : entries_) {
    if (entry.group == group) {
      entry.n++;
      return;
    }
  }
  entries_.push_back({group, 1});
  if (entries_.size() > kMaxGroups) entries_.pop_front();
}

uint32_t GroupBook::settled(const GroupKey & group) const {
  for (const Entry & entry : entries_) {
    if (entry.group == group) return entry.n;
  }
  return 0;
}

void ClientBook::Ran(const std::string & client, uint64_t now_us) {
  ran_[client] = now_us;
  if (ran_.size() <= kMaxClients) return;
  const auto before = [](const auto & a, const auto & b) { return a.second < b.second; };
  ran_.erase(std::min_element(ran_.begin(), ran_.end(), before));
}

uint64_t ClientBook::ran_us(const std::string & client) const {
  const auto it = ran_.find(client);
  return it == ran_.end() ? 0 : it->second;
}

uint32_t DecodeCap(const RingLoad & load) {
  const auto cap = std::max(1U, static_cast<uint32_t>(std::ceil(load.shares - 1e-9)));
  if (load.n_stages <= 1) return std::max(cap, load.lanes);
  const uint32_t rounded = (cap + 3) / 4 * 4;
  const uint32_t groups = (load.lanes + rounded - 1) / rounded;
  return groups + IsPrompt(load) >= load.n_stages ? rounded : cap;
}

Schedule ScheduleHead(std::span<const Candidate> candidates, const RingLoad & load, const GroupBook & book,
                      uint32_t max_rows, uint64_t now_us, uint64_t wait_us) {
  Schedule schedule;
  const auto groups = Groups(candidates, [](const Candidate & c) { return c.decode; });
  std::vector<const Candidate *> decode;
  std::vector<const Candidate *> prefill;
  bool gathering = false;
  for (const Candidate & c : candidates) {
    if (!c.complete || c.blocked) continue;
    if (!c.decode) {
      prefill.push_back(&c);
      continue;
    }
    const uint64_t due = DueAt(c.group, groups.at(c.group), book, wait_us);
    if (due <= now_us) {
      decode.push_back(&c);
    } else {
      schedule.wake_us = std::min(schedule.wake_us, due);
      gathering = true;
    }
  }

  const auto older = [](const Candidate * a, const Candidate * b) { return a->since_us < b->since_us; };
  std::stable_sort(decode.begin(), decode.end(), older);
  std::stable_sort(prefill.begin(), prefill.end(), older);
  const uint32_t most = DecodeCap(load);
  const uint32_t cap = load.cap == 0 ? most : std::min(load.cap, most);
  if (!decode.empty() && decode.size() < std::min(cap, load.lanes) && load.away + IsPrompt(load) >= load.n_stages) {
    const uint64_t due = decode.front()->since_us + kGrowTicks * load.step_us;
    if (due > now_us) {
      schedule.wake_us = std::min(schedule.wake_us, due);
      decode.clear();
    }
  }
  OrderFairly(decode);
  OrderFairly(prefill);
  const PaceLoad pace_load{
      .n_stages = load.n_stages, .lanes = load.alive, .cap = cap, .prompts = load.prompts, .now_us = now_us};
  const PrefillPace * pace = prefill.empty() ? nullptr : load.pace;
  schedule.held = pace != nullptr && pace->Holds(pace_load, load.prompt_rows);
  uint32_t left = max_rows;
  const uint32_t own = pace != nullptr && !schedule.held ? pace->OwnRowsDue(pace_load, left) : 0;
  // Decoders that would fill tick after tick leave something to prompts.
  const uint32_t room = prefill.empty() ? left : left - std::min(left / 2, kKernelRows);
  const size_t n_decode = own > 0 || schedule.held ? 0 : std::min<size_t>({decode.size(), cap, room});
  for (size_t i = 0; i < n_decode; i++) schedule.picks.push_back({decode[i]->lane, 1});
  left -= static_cast<uint32_t>(n_decode);
  if (load.pace != nullptr && !schedule.held) {
    // One that is not due would make those late that are about to be here: a group that is nearly whole, and where one
    // stage is all, whoever is away: their ticks have prefill in them.
    const bool back_soon = load.back_us > now_us;
    if (back_soon) schedule.wake_us = std::min(schedule.wake_us, load.back_us);
    const bool awaited = n_decode == 0 && (gathering || back_soon);
    if (own > 0) {
      left = own;
    } else {
      left = awaited ? 0 : load.pace->Rows(static_cast<uint32_t>(n_decode), pace_load, left);
    }
  } else {
    left = std::min(left, load.alone_rows);
  }
  for (const Candidate * c : prefill) {
    if (left == 0) break;
    const uint32_t rows = std::min(left, c->rows);
    schedule.picks.push_back({c->lane, rows});
    left -= rows;
  }
  if (schedule.picks.empty() && pace != nullptr) {
    const uint64_t from = pace->OwnFrom(pace_load, max_rows);
    if (from > now_us) schedule.wake_us = std::min(schedule.wake_us, from);
  }
  SortByLane(schedule.picks);
  return schedule;
}

Schedule ScheduleLater(std::span<const Candidate> candidates, const GroupBook & book, uint32_t max_rows,
                       uint64_t now_us, uint64_t wait_us) {
  Schedule schedule;
  const auto groups = Groups(candidates, [](const Candidate &) { return true; });
  const GroupKey * chosen = nullptr;
  uint64_t oldest = UINT64_MAX;
  for (const auto & [key, state] : groups) {
    if (!state.runnable) continue;
    const uint64_t due = DueAt(key, state, book, wait_us);
    if (due > now_us) {
      schedule.wake_us = std::min(schedule.wake_us, due);
    } else if (state.first_us < oldest) {
      oldest = state.first_us;
      chosen = &key;
    }
  }
  if (chosen == nullptr) return schedule;

  uint32_t left = max_rows;
  for (const Candidate & c : candidates) {
    if (left == 0) break;
    if (!c.complete || c.blocked || c.group != *chosen) continue;
    const uint32_t rows = std::min(left, c.rows);
    schedule.picks.push_back({c.lane, rows});
    left -= rows;
  }
  return schedule;
}

}  // namespace meshnet
