// SPDX-License-Identifier: MIT
#include "deep_jit/base/parallel_calls.hpp"

#include <atomic>
#include <barrier>
#include <cstddef>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/interrupt.hpp"

namespace deep_jit {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

TEST(ParallelCalls, RunsEachCallOnce) {
  std::vector<std::atomic<int>> runs(100);
  const auto errors = call_in_parallel(runs.size(), 8, [&](std::size_t i) { ++runs[i]; });
  EXPECT_EQ(errors, std::vector<std::exception_ptr>(100));
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(ParallelCalls, RunsAsManyAtOnceAsAsked) {
  std::barrier all_here(4);  // opens only when four calls run at the same time
  std::set<std::thread::id> threads;
  std::mutex mutex;
  call_in_parallel(4, 4, [&](std::size_t) {
    all_here.arrive_and_wait();
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 4u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(ParallelCalls, OneThreadRunsInOrder) {
  for (const std::size_t num_threads : {std::size_t{0}, std::size_t{1}}) {
    std::vector<std::size_t> order;
    call_in_parallel(5, num_threads, [&](std::size_t i) { order.push_back(i); });
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(ParallelCalls, NothingToDo) {
  EXPECT_TRUE(call_in_parallel(0, 4, [](std::size_t) { FAIL(); }).empty());
}

TEST(ParallelCalls, AFailureStopsNoOther) {
  std::atomic<int> runs = 0;
  const auto errors = call_in_parallel(6, 2, [&](std::size_t i) {
    ++runs;
    if (i % 2 == 1) throw std::runtime_error("call " + std::to_string(i));
  });
  EXPECT_EQ(runs, 6);
  ASSERT_EQ(errors.size(), 6u);
  for (const std::size_t i : {0, 2, 4}) EXPECT_EQ(errors[i], nullptr);
  for (const std::size_t i : {1, 3, 5}) EXPECT_EQ(text_of(errors[i]), "call " + std::to_string(i));
}

TEST(ParallelCalls, AnInterruptCancelsWhatRunsAndStartsNoMore) {
  std::atomic<int> started = 0;
  std::atomic<int> cancelled = 0;
  const InterruptScope scope([&] { return started == 2; });
  EXPECT_THROW(call_in_parallel(10, 2,
                                [&](std::size_t) {
                                  ++started;
                                  while (not is_interrupted()) std::this_thread::yield();
                                  ++cancelled;
                                  throw_if_interrupted();
                                }),
               exception::Interrupted);
  EXPECT_EQ(started, 2);
  EXPECT_EQ(cancelled, 2);
}

TEST(ParallelCalls, WhatTheInterruptCheckThrowsPassesThrough) {
  std::atomic<bool> is_running = false;
  const InterruptScope scope([&]() -> bool {
    if (is_running) throw std::logic_error("from the check");
    return false;
  });
  EXPECT_THROW(call_in_parallel(1, 1,
                                [&](std::size_t) {
                                  is_running = true;
                                  while (not is_interrupted()) std::this_thread::yield();
                                }),
               std::logic_error);
}

}  // namespace
}  // namespace deep_jit
