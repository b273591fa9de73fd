// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace deep_jit::host {
namespace {

TEST(SharedMemory, StaysWhereItIsAndKeepsItsBytes) {
  auto& memory = SharedMemory::of_this_thread();
  auto* bytes = static_cast<char*>(memory.resize(100));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 1024, 0u);
  std::memset(bytes, 7, 100);
  EXPECT_EQ(memory.resize(0), bytes);
  EXPECT_EQ(memory.resize(SharedMemory::kMaxBytes), bytes);
  EXPECT_EQ(bytes[99], 7);
  bytes[SharedMemory::kMaxBytes - 1] = 1;
  EXPECT_EQ(&SharedMemory::of_this_thread(), &memory);
}

TEST(SharedMemory, EachThreadHasItsOwn) {
  auto* mine = static_cast<char*>(SharedMemory::of_this_thread().resize(10));
  mine[0] = 1;
  // Also one thread after the other, which may get the addresses of the one before.
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      auto* other = static_cast<char*>(SharedMemory::of_this_thread().resize(1000));
      EXPECT_NE(other, mine);
      std::memset(other, 9, 1000);
    }).join();
  }
  EXPECT_EQ(mine[0], 1);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(SharedMemoryDeathTest, WhatLiesBeyondItsSizeIsPoisoned) {
  auto& memory = SharedMemory::of_this_thread();
  auto* bytes = static_cast<volatile char*>(memory.resize(1000));
  bytes[999] = 1;
  EXPECT_DEATH(bytes[1000] = 1, "use-after-poison");
  memory.resize(16);
  EXPECT_DEATH(bytes[16] = 1, "use-after-poison");
}
#endif

}  // namespace
}  // namespace deep_jit::host
