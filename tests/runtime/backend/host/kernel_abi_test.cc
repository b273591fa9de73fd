// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/kernel_abi.hpp"

#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::host::abi {
namespace {

using ::testing::HasSubstr;

// The layout of version 2. A change here needs a new kVersion: kernels in caches are of the old
// one.
TEST(KernelAbi, LayoutOfVersionTwoIsFixed) {
  ASSERT_EQ(kVersion, 2u);
  EXPECT_EQ(kMagic, 0x484a4444u);
  EXPECT_EQ(sizeof(Parameter), 32u);
  EXPECT_EQ(offsetof(Parameter, kind), 0u);
  EXPECT_EQ(offsetof(Parameter, alignment), 4u);
  EXPECT_EQ(offsetof(Parameter, size), 8u);
  EXPECT_EQ(offsetof(Parameter, element_kind), 16u);
  EXPECT_EQ(offsetof(Parameter, element_is_const), 20u);
  EXPECT_EQ(offsetof(Parameter, element_size), 24u);
  EXPECT_EQ(sizeof(Kernel), 40u);
  EXPECT_EQ(offsetof(Kernel, next), 0u);
  EXPECT_EQ(offsetof(Kernel, name), 8u);
  EXPECT_EQ(offsetof(Kernel, parameter_count), 16u);
  EXPECT_EQ(offsetof(Kernel, parameters), 24u);
  EXPECT_EQ(offsetof(Kernel, run_threads), 32u);
  EXPECT_EQ(sizeof(Block), 112u);
  EXPECT_EQ(offsetof(Block, args), 0u);
  EXPECT_EQ(offsetof(Block, index), 8u);
  EXPECT_EQ(offsetof(Block, grid), 20u);
  EXPECT_EQ(offsetof(Block, dim), 32u);
  EXPECT_EQ(offsetof(Block, next), 44u);
  EXPECT_EQ(offsetof(Block, is_started), 56u);
  EXPECT_EQ(offsetof(Block, votes), 60u);
  EXPECT_EQ(offsetof(Block, votes_true), 64u);
  EXPECT_EQ(offsetof(Block, shared_memory), 72u);
  EXPECT_EQ(offsetof(Block, error), 80u);
  EXPECT_EQ(offsetof(Block, error_size), 88u);
  EXPECT_EQ(offsetof(Block, wait), 96u);
  EXPECT_EQ(offsetof(Block, owner), 104u);
  EXPECT_EQ(sizeof(Module), 16u);
  EXPECT_EQ(offsetof(Module, magic), 0u);
  EXPECT_EQ(offsetof(Module, version), 4u);
  EXPECT_EQ(offsetof(Module, first), 8u);
  EXPECT_EQ(kUnknown, 0u);
  EXPECT_EQ(kStruct, 6u);
  EXPECT_EQ(kWarpScope, 0u);
  EXPECT_EQ(kBlockScope, 1u);
}

TEST(KernelAbi, TextIsWhatIsCompiledHere) {
  EXPECT_THAT(std::string(kStructsText),
              HasSubstr("struct Module { uint32_t magic; uint32_t version;"));
  EXPECT_THAT(std::string(kStructsText), HasSubstr("kMagic = 0x484a4444;"));
}

}  // namespace
}  // namespace deep_jit::host::abi
