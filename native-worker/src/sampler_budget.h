// GrammarBudget: how long the grammar of one turn may keep a thread that draws from all other lanes.
// Threads: one at a time.
#pragma once

#include <cstdint>

namespace meshnet {

// Microseconds that the calling thread has computed: a busy machine costs no grammar its turn.
uint64_t ThreadCpuUs();

class GrammarBudget {
 public:
  using Clock = uint64_t (*)();  // microseconds

  // kGrammarBurstMs at first.
  explicit GrammarBudget(Clock clock);

  // Work begins, or goes on after a pause.
  void Begin() { since_us_ = clock_(); }
  // `n` steps of some nanoseconds each were done. The clock is looked at now and then only.
  void Spend(uint64_t n) {
    steps_ += n;
    if (steps_ >= kStepsPerLook) Look();
  }
  // Takes the time since Begin.
  void Look();
  // A token is done: kGrammarTokenMs more, up to what there was at first.
  void Refill();
  bool exhausted() const { return left_us_ < 0; }

 private:
  static constexpr uint64_t kStepsPerLook = 4096;  // a tenth of a millisecond or so; a look costs a system call

  Clock clock_;
  int64_t left_us_;
  uint64_t since_us_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace meshnet
