// Scheduler: which lanes share the next tick, and how many rows each of them gets.
// Threads: pure rules and two small books; the engine thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace meshnet {

class PrefillPace;

// The head tick that a unit belongs to, as its frames say. A hint: it decides how long to wait, never how much to take.
struct GroupKey {
  uint64_t number = 0;
  uint32_t size = 0;
  auto operator<=>(const GroupKey &) const = default;
};

// Lanes that a group need not be waited for: they have run, or will not come. Remembers the newest groups only.
class GroupBook {
 public:
  void Settle(const GroupKey & group);
  uint32_t settled(const GroupKey & group) const;

 private:
  struct Entry {
    GroupKey group;
    uint32_t n = 0;
  };
  static constexpr size_t kMaxGroups = 256;  // as many as lanes can be in different groups
  std::deque<Entry> entries_;
};

// When each client's prompts last had rows, whether or not the lane lives that had them. Forgets the clients for whom
// it is the longest ago.
class ClientBook {
 public:
  void Ran(const std::string & client, uint64_t now_us);
  // 0: never, as far as it remembers.
  uint64_t ran_us(const std::string & client) const;

 private:
  static constexpr size_t kMaxClients = 1024;
  std::map<std::string, uint64_t> ran_;
};

// A lane that could run now. Candidates come in the order of their lane keys, each lane once.
struct Candidate {
  size_t lane = 0;       // the caller's index
  bool decode = false;   // one row, next to a running generation; otherwise prefill
  uint32_t rows = 0;     // that it could use
  uint32_t waiting = 0;  // prefill: rows of its prompt, those that it could not use yet too
  bool complete = true;  // its unit is whole; a unit that is not never runs
  bool blocked = false;  // waits for credit: nobody waits for it
  GroupKey group{};
  uint64_t since_us = 0;       // when it became ready
  uint32_t client = 0;         // whose session it is: equal numbers, one client
  uint64_t client_ran_us = 0;  // prefill: when a prompt of that client last had rows
};

struct Pick {
  size_t lane = 0;
  uint32_t rows = 0;
};

struct Schedule {
  std::vector<Pick> picks;        // in the order of the candidates; empty: nothing can run yet
  uint64_t wake_us = UINT64_MAX;  // when to ask again if nothing else happens
  bool held = false;              // decoders, here or about to be, wait until a crowd of prompts is through
};

// What a head's ring has on it: decoding lanes, ready or on their way round, and prompts.
struct RingLoad {
  uint32_t lanes = 0;
  double shares = 0;      // sum of 1 / n_stages
  uint32_t n_stages = 1;  // of the longest ring
  uint32_t away = 0;      // groups on their way round
  uint64_t step_us = 0;   // how long a tick of decoding took last
  // Of prefill, while somebody waits for tokens; nullptr: nobody does.
  const PrefillPace * pace = nullptr;
  uint32_t alone_rows = UINT32_MAX;  // of prefill, while nobody does
  uint64_t back_us = 0;              // by then lanes should be back whose tokens are drawn beside this only stage
  uint32_t cap = 0;                  // lanes of a tick, from what was measured; 0, or above it: DecodeCap
  uint32_t prompts = 0;              // lanes that are ready with rows of prefill
  uint64_t prompt_rows = 0;          // of all prompts that are here, those that wait for credit too
  uint32_t alive = 0;                // of lanes, those that are not away for so long that nobody waits for them
};

// How many lanes a head decodes in one tick: an equal share for every stage, so that all of them work at once; rounded
// up to the four rows that the kernels like where that leaves a group for every stage; prompts that wait are one.
uint32_t DecodeCap(const RingLoad & load);

// A head's tick: one token for each of the lanes that waited longest, then prefill up to max_rows or the pace; or
// prefill alone, when the pace says that its turn has come, or that a crowd goes first. Where not all fit, every client
// has one lane in it before anybody has a second. Lanes that went round as one group are waited for, wait_us at most.
// Groups that have come apart grow together again: while every stage has one to work on, fewer lanes than the cap wait
// for others that come back, two ticks at most.
Schedule ScheduleHead(std::span<const Candidate> candidates, const RingLoad & load, const GroupBook & book,
                      uint32_t max_rows, uint64_t now_us, uint64_t wait_us);

// A later stage's tick: one group of a head, whole, or what has come of it wait_us after its first unit.
Schedule ScheduleLater(std::span<const Candidate> candidates, const GroupBook & book, uint32_t max_rows,
                       uint64_t now_us, uint64_t wait_us);

}  // namespace meshnet
