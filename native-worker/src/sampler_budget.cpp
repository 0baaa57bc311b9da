#include "sampler_budget.h"

#include <time.h>

#include <algorithm>

#include "bounds.h"

namespace meshnet {
namespace {

constexpr int64_t kBurstUs = int64_t{kGrammarBurstMs} * 1000;
constexpr int64_t kTokenUs = int64_t{kGrammarTokenMs} * 1000;

}  // namespace

uint64_t ThreadCpuUs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

GrammarBudget::GrammarBudget(Clock clock) : clock_(clock), left_us_(kBurstUs) {}

void GrammarBudget::Look() {
  const uint64_t now = clock_();
  left_us_ -= static_cast<int64_t>(now - since_us_);
  since_us_ = now;
  steps_ = 0;
}

void GrammarBudget::Refill() {
  if (!exhausted()) left_us_ = std::min(kBurstUs, left_us_ + kTokenUs);
}

}  // namespace meshnet
