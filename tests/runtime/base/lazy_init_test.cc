// SPDX-License-Identifier: MIT
#include "deep_jit/base/lazy_init.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
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

constexpr int kThreads = 16;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

struct Object {
  int value = 0;
};

TEST(LazyInitTest, FactoryRunsOnceAndNotBeforeUse) {
  int calls = 0;
  LazyInit<Object> lazy([&] { return std::make_shared<Object>(Object{.value = ++calls}); });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(lazy->value, 1);
  EXPECT_EQ(lazy.get()->value, 1);
  EXPECT_EQ(lazy.get().get(), lazy.get().get());
  EXPECT_EQ(calls, 1);
}

TEST(LazyInitTest, WithoutFactoryEveryUseFails) {
  LazyInit<Object> lazy(nullptr);
  EXPECT_THAT(error_of([&] { lazy.get(); }),
              HasSubstr("lazy object must be initialized before use"));
  EXPECT_THAT(error_of([&] { (void)lazy->value; }),
              HasSubstr("lazy object must be initialized before use"));
  lazy = LazyInit<Object>([] { return std::make_shared<Object>(Object{.value = 5}); });
  EXPECT_EQ(lazy->value, 5);
}

TEST(LazyInitTest, NullResultIsAnErrorAndIsTriedAgain) {
  int calls = 0;
  LazyInit<Object> lazy([&]() -> std::shared_ptr<Object> {
    return ++calls == 1 ? nullptr : std::make_shared<Object>();
  });
  EXPECT_THAT(error_of([&] { lazy.get(); }), HasSubstr("lazy factory must not return nullptr"));
  EXPECT_NE(lazy.get(), nullptr);
}

TEST(LazyInitTest, ExceptionLeavesItRetryable) {
  int calls = 0;
  LazyInit<Object> lazy([&] {
    if (++calls < 3) {
      throw std::runtime_error("attempt " + std::to_string(calls));
    }
    return std::make_shared<Object>(Object{.value = calls});
  });
  EXPECT_EQ(error_of([&] { lazy.get(); }), "attempt 1");
  EXPECT_EQ(error_of([&] { lazy.get(); }), "attempt 2");
  EXPECT_EQ(lazy->value, 3);
}

TEST(LazyInitTest, UseByItsOwnFactoryIsAnError) {
  LazyInit<Object> lazy(nullptr);
  lazy = LazyInit<Object>([&] { return lazy.get(); });
  EXPECT_THAT(error_of([&] { lazy.get(); }), HasSubstr("must not be used by its own factory"));
}

TEST(LazyInitTest, CopiesShareTheObject) {
  int calls = 0;
  LazyInit<Object> first([&] { return std::make_shared<Object>(Object{.value = ++calls}); });
  LazyInit<Object> second = first;
  EXPECT_EQ(second.get(), first.get());
  EXPECT_EQ(calls, 1);
}

TEST(LazyInitTest, ReassignmentKeepsOldOwnersAlive) {
  LazyInit<Object> lazy([] { return std::make_shared<Object>(Object{.value = 1}); });
  const std::shared_ptr<Object> old = lazy.get();
  const LazyInit<Object> next([] { return std::make_shared<Object>(Object{.value = 2}); });
  lazy = next;
  EXPECT_EQ(lazy->value, 2);
  EXPECT_EQ(old->value, 1);
  EXPECT_EQ(old.use_count(), 1);
  LazyInit<Object>& same = lazy;
  lazy = same;
  EXPECT_EQ(lazy->value, 2);
}

TEST(LazyInitTest, SixteenThreadsOneCall) {
  std::atomic<int> calls = 0;
  std::latch all_started(kThreads);
  LazyInit<Object> lazy([&] {
    all_started.wait();
    return std::make_shared<Object>(Object{.value = ++calls});
  });
  std::vector<std::shared_ptr<Object>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      all_started.count_down();
      seen[i] = lazy.get();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(calls, 1);
  for (const auto& object : seen) {
    EXPECT_EQ(object, seen[0]);
  }
}

// The interrupt check of a waiting thread runs in the wait: that tells the factory that it waits.
TEST(LazyInitTest, FailureReachesEveryWaitingThreadAndALaterCallRetries) {
  std::atomic<int> calls = 0;
  std::latch all_wait(kThreads - 1);
  // Outlives the threads: ThreadSanitizer cannot see the reference count of exceptions (it is in
  // the C++ library), and would take the end of the last one for a race.
  const std::exception_ptr error = std::make_exception_ptr(std::runtime_error("first call fails"));
  LazyInit<Object> lazy([&] {
    if (++calls == 1) {
      all_wait.wait();
      std::rethrow_exception(error);
    }
    return std::make_shared<Object>(Object{.value = 7});
  });
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
      errors[i] = error_of([&] { lazy.get(); });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(errors, std::vector<std::string>(kThreads, "first call fails"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(lazy->value, 7);
  EXPECT_EQ(calls, 2);
}

TEST(LazyInitTest, CancelledWorkIsTakenOverByAWaitingThread) {
  std::atomic<int> calls = 0;
  std::latch other_waits(1);
  std::latch first_runs(1);
  LazyInit<Object> lazy([&] {
    if (++calls == 1) {
      first_runs.count_down();
      other_waits.wait();
      throw exception::Interrupted("f", 1, "first thread was cancelled");
    }
    return std::make_shared<Object>(Object{.value = 9});
  });
  std::thread first([&] { EXPECT_THROW(lazy.get(), exception::Interrupted); });
  first_runs.wait();
  int value = 0;
  std::thread second([&] {
    bool counted = false;
    const InterruptScope scope([&] {
      if (not std::exchange(counted, true)) {
        other_waits.count_down();
      }
      return false;
    });
    value = lazy->value;
  });
  first.join();
  second.join();
  EXPECT_EQ(value, 9);
  EXPECT_EQ(calls, 2);
}

TEST(LazyInitTest, AssignmentDuringUse) {
  const auto make = [](int value) {
    return LazyInit<Object>([value] { return std::make_shared<Object>(Object{.value = value}); });
  };
  LazyInit<Object> lazy = make(1);
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (not stop) {
        const int value = lazy->value;
        EXPECT_TRUE(value == 1 or value == 2);
      }
    });
  }
  for (int i = 0; i < 2'000; ++i) {
    lazy = make(1 + i % 2);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(lazy->value, 2);
}

TEST(LazyInitTest, ForkedChildMakesItsOwn) {
  // Before first use.
  LazyInit<Object> lazy([] { return std::make_shared<Object>(Object{.value = ::getpid()}); });
  ChildProcess before([&] { return lazy->value == ::getpid() ? 0 : 1; });
  EXPECT_EQ(before.wait(), 0);
  EXPECT_EQ(lazy->value, ::getpid());

  // While another thread of the parent is making it: that thread does not exist in the child.
  std::latch running(1);
  std::latch go_on(1);
  const pid_t parent = ::getpid();
  LazyInit<Object> slow([&] {
    if (::getpid() == parent) {
      running.count_down();
      go_on.wait();
    }
    return std::make_shared<Object>(Object{.value = ::getpid()});
  });
  std::thread maker([&] { EXPECT_EQ(slow->value, parent); });
  running.wait();
  ChildProcess during([&] { return slow->value == ::getpid() ? 0 : 1; });
  EXPECT_EQ(during.wait(), 0);
  go_on.count_down();
  maker.join();
}

}  // namespace
}  // namespace deep_jit
