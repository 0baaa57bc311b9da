// Findings: what a long test found wrong, so that a test of the test can ask whether it would have seen a mistake.
// Threads: any.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace meshnet {

class Findings {
 public:
  void Add(std::string what) {
    const std::lock_guard lock(mutex_);
    n_++;
    if (first_.size() < kKept) first_.push_back(std::move(what));
  }
  size_t n() const {
    const std::lock_guard lock(mutex_);
    return n_;
  }
  // The first ones, a line each.
  std::string Text() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const std::string & what : first_) text += what + "\n";
    return text;
  }

 private:
  static constexpr size_t kKept = 12;

  mutable std::mutex mutex_;
  size_t n_ = 0;
  std::vector<std::string> first_;
};

}  // namespace meshnet
