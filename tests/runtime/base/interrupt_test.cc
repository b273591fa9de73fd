// SPDX-License-Identifier: MIT
#include "deep_jit/base/interrupt.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "deep_jit/base/exception.hpp"

namespace deep_jit {
namespace {

TEST(InterruptTest, NoScopeIsNeverInterrupted) {
  EXPECT_FALSE(is_interrupted());
  EXPECT_NO_THROW(throw_if_interrupted());
}

TEST(InterruptTest, AsksEachTime) {
  int asked = 0;
  const InterruptScope scope([&] { return ++asked >= 3; });
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(is_interrupted());
  EXPECT_NO_THROW(throw_if_interrupted());
  EXPECT_THROW(throw_if_interrupted(), exception::Interrupted);
  EXPECT_EQ(asked, 3);
}

TEST(InterruptTest, InnermostScopeDecidesAndEndsWithItsBlock) {
  const InterruptScope outer([] { return true; });
  EXPECT_TRUE(is_interrupted());
  {
    const InterruptScope inner([] { return false; });
    EXPECT_FALSE(is_interrupted());
  }
  EXPECT_TRUE(is_interrupted());
}

TEST(InterruptTest, NullCheckIsNever) {
  const InterruptScope scope(nullptr);
  EXPECT_FALSE(is_interrupted());
}

TEST(InterruptTest, ScopesBelongToTheirThread) {
  const InterruptScope scope([] { return true; });
  bool seen_elsewhere = true;
  std::thread([&] { seen_elsewhere = is_interrupted(); }).join();
  EXPECT_FALSE(seen_elsewhere);
}

TEST(InterruptTest, ExceptionOfTheCheckPassesAndTheScopeStillEnds) {
  try {
    const InterruptScope scope([]() -> bool { throw std::runtime_error("from the check"); });
    throw_if_interrupted();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "from the check");
  }
  EXPECT_FALSE(is_interrupted());
}

}  // namespace
}  // namespace deep_jit
