// What the engine's tests on rings share: their suite, and ids put together.
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace meshnet {

// Over rings of one, two and three stages; the parameter is where the layers are cut.
class EngineRing : public testing::TestWithParam<std::vector<int>> {};

inline std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t> & b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace meshnet
