// SPDX-License-Identifier: MIT
#include "deep_jit/cache/memory_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "tests/runtime/base/child_process.hpp"

namespace deep_jit {
namespace {

using ::testing::HasSubstr;
using Cache = MemoryCache<std::string, int>;

constexpr int kThreads = 16;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(MemoryCacheTest, MakesEachValueOnce) {
  Cache cache;
  int calls = 0;
  const auto make = [&] { return std::make_shared<int>(++calls); };
  EXPECT_EQ(cache.find("a"), nullptr);
  EXPECT_EQ(cache.size(), 0U);
  const std::shared_ptr<int> first = cache.get_or_create("a", make);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(cache.get_or_create("a", make), first);
  EXPECT_EQ(cache.find("a"), first);
  EXPECT_EQ(*cache.get_or_create("b", make), 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(cache.size(), 2U);
}

TEST(MemoryCacheTest, CachesAreIsolated) {
  Cache first;
  Cache second;
  const auto a = first.get_or_create("k", [] { return std::make_shared<int>(1); });
  const auto b = second.get_or_create("k", [] { return std::make_shared<int>(1); });
  EXPECT_NE(a, b);
}

TEST(MemoryCacheTest, FailureIsNotRemembered) {
  Cache cache;
  EXPECT_EQ(error_of([&] {
              cache.get_or_create(
                  "k", []() -> std::shared_ptr<int> { throw std::runtime_error("no luck"); });
            }),
            "no luck");
  EXPECT_EQ(cache.find("k"), nullptr);
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(*cache.get_or_create("k", [] { return std::make_shared<int>(5); }), 5);
}

TEST(MemoryCacheTest, NullIsAnErrorAndNotRemembered) {
  Cache cache;
  EXPECT_THAT(error_of([&] { cache.get_or_create("k", [] { return std::shared_ptr<int>(); }); }),
              HasSubstr("must not return nullptr"));
  EXPECT_EQ(*cache.get_or_create("k", [] { return std::make_shared<int>(5); }), 5);
}

TEST(MemoryCacheTest, FactoryMayUseOtherKeysButNotItsOwn) {
  Cache cache;
  const auto sum = cache.get_or_create("sum", [&] {
    return std::make_shared<int>(
        1 + *cache.get_or_create("part", [] { return std::make_shared<int>(41); }));
  });
  EXPECT_EQ(*sum, 42);
  EXPECT_THAT(error_of([&] {
                cache.get_or_create("loop", [&] {
                  return cache.get_or_create("loop", [] { return std::make_shared<int>(1); });
                });
              }),
              HasSubstr("must not ask for the key that it makes"));
  EXPECT_EQ(*cache.get_or_create("loop", [] { return std::make_shared<int>(2); }), 2);
}

TEST(MemoryCacheTest, SixteenThreadsOneCall) {
  Cache cache;
  std::atomic<int> calls = 0;
  std::latch all_started(kThreads);
  std::vector<std::shared_ptr<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      all_started.count_down();
      seen[i] = cache.get_or_create("k", [&] {
        all_started.wait();
        return std::make_shared<int>(++calls);
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(calls, 1);
  for (const auto& value : seen) {
    EXPECT_EQ(value, seen[0]);
  }
}

// Both factories must run at the same time to end at all.
TEST(MemoryCacheTest, DifferentKeysAreMadeAtTheSameTime) {
  Cache cache;
  std::latch both(2);
  const auto make = [&] {
    both.arrive_and_wait();
    return std::make_shared<int>(1);
  };
  std::thread other([&] { cache.get_or_create("a", make); });
  cache.get_or_create("b", make);
  other.join();
  EXPECT_EQ(cache.size(), 2U);
}

// The interrupt check of a waiting thread runs in the wait: that tells the factory that it waits.
TEST(MemoryCacheTest, FailureReachesEveryWaitingThreadAndALaterCallRetries) {
  Cache cache;
  std::atomic<int> calls = 0;
  std::latch all_wait(kThreads - 1);
  // Outlives the threads: ThreadSanitizer cannot see the reference count of exceptions (it is in
  // the C++ library), and would take the end of the last one for a race.
  const std::exception_ptr error = std::make_exception_ptr(std::runtime_error("first call fails"));
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      bool counted = false;
      const InterruptScope scope([&] {
        if (not std::exchange(counted, true)) {
          all_wait.count_down();
        }
        return false;
      });
      errors[i] = error_of([&] {
        cache.get_or_create("k", [&]() -> std::shared_ptr<int> {
          ++calls;
          all_wait.wait();
          std::rethrow_exception(error);
        });
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(errors, std::vector<std::string>(kThreads, "first call fails"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(*cache.get_or_create("k", [] { return std::make_shared<int>(7); }), 7);
}

TEST(MemoryCacheTest, WaitingThreadCanBeCancelledAndTheWorkGoesOn) {
  Cache cache;
  std::latch running(1);
  std::latch go_on(1);
  std::thread maker([&] {
    cache.get_or_create("k", [&] {
      running.count_down();
      go_on.wait();
      return std::make_shared<int>(3);
    });
  });
  running.wait();
  {
    const InterruptScope scope([] { return true; });
    EXPECT_THROW(cache.get_or_create("k", [] { return std::make_shared<int>(4); }),
                 exception::Interrupted);
  }
  EXPECT_EQ(cache.find("k"), nullptr);  // find does not wait
  go_on.count_down();
  maker.join();
  EXPECT_EQ(*cache.find("k"), 3);
}

TEST(MemoryCacheTest, CancelledWorkIsTakenOverByAWaitingThread) {
  Cache cache;
  std::latch running(1);
  std::latch other_waits(1);
  std::thread maker([&] {
    EXPECT_THROW(cache.get_or_create("k",
                                     [&]() -> std::shared_ptr<int> {
                                       running.count_down();
                                       other_waits.wait();
                                       throw exception::Interrupted("f", 1, "cancelled");
                                     }),
                 exception::Interrupted);
  });
  running.wait();
  bool counted = false;
  const InterruptScope scope([&] {
    if (not std::exchange(counted, true)) {
      other_waits.count_down();
    }
    return false;
  });
  EXPECT_EQ(*cache.get_or_create("k", [] { return std::make_shared<int>(8); }), 8);
  maker.join();
}

TEST(MemoryCacheTest, ForkedChildKeepsValuesAndMakesWhatWasInTheMaking) {
  Cache cache;
  cache.get_or_create("done", [] { return std::make_shared<int>(1); });
  std::latch running(1);
  std::latch go_on(1);
  std::thread maker([&] {
    cache.get_or_create("slow", [&] {
      running.count_down();
      go_on.wait();
      return std::make_shared<int>(2);
    });
  });
  running.wait();
  ChildProcess child([&] {
    const bool keeps = cache.find("done") != nullptr;
    const int made = *cache.get_or_create("slow", [] { return std::make_shared<int>(3); });
    return keeps and made == 3 and *cache.find("slow") == 3 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  go_on.count_down();
  maker.join();
  EXPECT_EQ(*cache.find("slow"), 2);
}

}  // namespace
}  // namespace deep_jit
