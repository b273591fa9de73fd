// SPDX-License-Identifier: MIT
//
// What finding a kernel in memory may not do. A program of its own: it counts all allocations.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace {
thread_local int allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace deep_jit {
namespace {

class MemoryHitTest : public testing::ScratchTest {};

TEST_F(MemoryHitTest, AllocatesNothingAndBuildsNoFlags) {
  Runtime<testing::FakeBackend> runtime(Config(scratch(), "TESTLIB"));
  const std::string name = "a_name_that_is_longer_than_a_short_string";
  const std::string source(20'000, 'x');
  const testing::FakeBackend::CompilerOptions options{.level = "fast"};
  const auto kernel = runtime.compile(name, source, options);
  const int flags = testing::fake().flag_vectors;
  allocations = 0;
  const auto again = runtime.compile(name, source, options);
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(again, kernel);
  EXPECT_EQ(testing::fake().flag_vectors, flags);
}

}  // namespace
}  // namespace deep_jit
