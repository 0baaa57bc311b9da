// AbortGuard: whose failed assertions are exceptions.
#include "engine_abort_guard.h"

#include <gtest/gtest.h>

#include <thread>

namespace meshnet {
namespace {

void Fail() { ggml_abort("there.c", 7, "an assertion"); }

TEST(AbortGuard, TurnsAssertionsOfItsThreadIntoExceptions) {
  const AbortGuard guard;
  {
    const AbortGuard inner;
    EXPECT_THROW(Fail(), std::runtime_error);
  }
  EXPECT_THROW(Fail(), std::runtime_error);
}

TEST(AbortGuard, LeavesThoseOfOtherThreadsAsTheyAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const AbortGuard guard;
        std::thread(Fail).join();
      },
      "there.c:7: an assertion");
}

}  // namespace
}  // namespace meshnet
