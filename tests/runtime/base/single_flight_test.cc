// SPDX-License-Identifier: MIT
#include "deep_jit/base/single_flight.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "tests/runtime/base/child_process.hpp"

namespace deep_jit {
namespace {

void fail_with(Flight<int>& flight, const auto& error) {
  try {
    throw error;
  } catch (...) {
    flight.fail();
  }
}

TEST(FlightTest, ResultReachesAThreadThatWaits) {
  Flight<int> flight;
  std::optional<std::shared_ptr<int>> seen;
  std::thread waiter([&] { seen = flight.wait(); });
  const auto value = std::make_shared<int>(42);
  flight.finish(value);
  waiter.join();
  EXPECT_EQ(seen, value);
}

TEST(FlightTest, ErrorReachesEveryWait) {
  Flight<int> flight;
  fail_with(flight, std::runtime_error("broken"));
  for (int i = 0; i < 2; ++i) {
    try {
      flight.wait();
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "broken");
    }
  }
}

TEST(FlightTest, CancellationOfTheWorkIsNotAnErrorOfTheWait) {
  Flight<int> flight;
  fail_with(flight, exception::Interrupted("f", 1, "stop"));
  EXPECT_EQ(flight.wait(), std::nullopt);
}

TEST(FlightTest, WaitingThreadCanBeCancelled) {
  Flight<int> flight;
  std::thread([&] {
    const InterruptScope scope([] { return true; });
    EXPECT_THROW(flight.wait(), exception::Interrupted);
  }).join();
  flight.finish(std::make_shared<int>(1));
  EXPECT_EQ(**flight.wait(), 1);
}

TEST(FlightTest, KnowsItsThreadAndProcess) {
  Flight<int> flight;
  EXPECT_TRUE(flight.is_own());
  EXPECT_TRUE(flight.is_running());
  std::thread([&] { EXPECT_FALSE(flight.is_own()); }).join();
  ChildProcess child([&] { return flight.is_running() ? 1 : 0; });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace deep_jit
