// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/device.hpp"

#include <gtest/gtest.h>

namespace deep_jit::host {
namespace {

TEST(Device, CountsAtLeastOneThread) {
  EXPECT_GE(Device().get_num_threads(), 1);
  EXPECT_EQ(Device().get_num_sms(), Device().get_num_threads());
}

TEST(Device, HasMoreSharedMemoryThanAGpu) {
  EXPECT_GE(Device().get_num_smem_bytes(), 256 << 10);
}

}  // namespace
}  // namespace deep_jit::host
