// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/thread_pool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::host {
namespace {

TEST(ThreadPool, RunsEachIndexOnce) {
  for (const std::uint64_t count : {0, 1, 2, 3, 100, 1001}) {
    for (const int threads : {-1, 1, 2, 7}) {
      std::vector<std::atomic<int>> seen(count);
      ThreadPool::shared().run(count, threads, [&](std::uint64_t i) { ++seen.at(i); });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, UsesAsManyThreadsAsAsked) {
  constexpr int kThreads = 4;
  // Each body waits for three others: it ends only when four threads are inside at once.
  std::barrier meeting(kThreads);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  ThreadPool::shared().run(kThreads, kThreads, [&](std::uint64_t) {
    meeting.arrive_and_wait();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(kThreads));
  EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u) << "the caller takes part";
}

TEST(ThreadPool, UsesNoMoreThreadsThanAsked) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  ThreadPool::shared().run(2000, 2, [&](std::uint64_t) {
    const int now = ++inside;
    int seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    --inside;
  });
  EXPECT_LE(most, 2);
}

TEST(ThreadPool, RunsANestedRangeInline) {
  std::atomic<int> sum = 0;
  std::atomic<int> elsewhere = 0;
  ThreadPool::shared().run(8, 4, [&](std::uint64_t) {
    const auto self = std::this_thread::get_id();
    ThreadPool::shared().run(8, 4, [&](std::uint64_t) {
      ++sum;
      elsewhere += std::this_thread::get_id() != self;
    });
  });
  EXPECT_EQ(sum, 64);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, ServesManyCallersAtOnce) {
  constexpr int kCallers = 16;
  std::vector<std::atomic<std::uint64_t>> sums(kCallers);
  {
    std::vector<std::jthread> callers;
    for (auto& sum : sums) {
      callers.emplace_back([&sum] {
        for (int round = 0; round < 20; ++round) {
          ThreadPool::shared().run(100, 4, [&sum](std::uint64_t i) { sum += i; });
        }
      });
    }
  }
  for (const auto& sum : sums) EXPECT_EQ(sum, 20u * 4950u);
}

TEST(ThreadPool, WorksInAForkedChild) {
  std::atomic<int> before = 0;
  ThreadPool::shared().run(64, 4, [&](std::uint64_t) { ++before; });
  ASSERT_EQ(before, 64);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    constexpr int kThreads = 3;
    std::barrier meeting(kThreads);  // Passes only with threads that really run in the child.
    std::atomic<int> count = 0;
    ThreadPool::shared().run(kThreads, kThreads, [&](std::uint64_t) {
      meeting.arrive_and_wait();
      ++count;
    });
    ::_exit(count == kThreads ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  std::atomic<int> after = 0;
  ThreadPool::shared().run(64, 4, [&](std::uint64_t) { ++after; });
  EXPECT_EQ(after, 64);
}

TEST(ThreadPool, LeavesTheCallersSignalMaskAlone) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  std::atomic<int> count = 0;
  ThreadPool::shared().run(12, 6, [&](std::uint64_t) { ++count; });
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

}  // namespace
}  // namespace deep_jit::host
