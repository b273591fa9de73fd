// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CaptureTest : public testing::CudaTest {};

TEST_F(CaptureTest, RefusedWhileTheDefaultStreamWaitsForACapture) {
  EXPECT_NO_THROW(refuse_during_capture("compile", "gemm"));
  driver().is_blocking_capture = true;
  DJ_EXPECT_ERROR(exception::LaunchError, refuse_during_capture("compile", "gemm"),
                  AllOf(HasSubstr("cannot compile kernel `gemm`"), HasSubstr("CUDA graph")));
  driver().is_blocking_capture = false;
  EXPECT_NO_THROW(refuse_during_capture("compile", "gemm"));
  set_device(-1);
  driver().is_blocking_capture = true;
  EXPECT_NO_THROW(refuse_during_capture("compile", "gemm")) << "no context, no capture";
  EXPECT_EQ(driver().count("cuDevicePrimaryCtxRetain"), 0u);
}

TEST_F(CaptureTest, KernelNames) {
  EXPECT_EQ(find_kernel_name("__global__ void scale(int n) {}"), "scale");
  EXPECT_EQ(find_kernel_name("template <int N>\nextern \"C\" __global__ void\n"
                             "__launch_bounds__(128, 2) __cluster_dims__(2) gemm (float* x);"),
            "gemm");
  EXPECT_EQ(find_kernel_name("int f();"), "");
  EXPECT_EQ(find_kernel_name("__global__"), "");
  EXPECT_EQ(find_kernel_name("__global__ __launch_bounds__(1"), "");
}

}  // namespace
}  // namespace deep_jit::cuda
