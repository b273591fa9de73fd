// SPDX-License-Identifier: MIT
//
// What NVRTC makes, on a real GPU.
#include <string>

#include "tests/cuda/gpu/gpu_test.hpp"

namespace deep_jit::testing {
namespace {

class NvrtcTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    try {
      cuda::find_nvrtc(jit->env, jit->config, &jit->backend.toolkit());
    } catch (const exception::Exception& missing) {
      GTEST_SKIP() << missing.error;
    }
  }
};

TEST_F(NvrtcTest, ItsKernelGivesTheRightResult) {
  launch_scale(jit->compile("scale", kScale, {.compiler = "nvrtc"}));
  launch_scale(jit->compile("scale", kScale, {.compiler = "auto"}));
}

TEST_F(NvrtcTest, TemplatesHeadersAndAssertions) {
  const std::string source = R"(
#include <cassert>
#include <cstdint>
#include <type_traits>
namespace lib {
template <class T, class N>
__global__ void scale(T* out, const T* x, T factor, N n) {
  static_assert(std::is_same_v<N, std::int32_t>);
  const N i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(n > 0);
  if (n < 0) printf("negative\n");
  if (i < n) out[i] = factor * x[i];
}
template __global__ void scale<float>(float*, const float*, float, std::int32_t);
}  // namespace lib
)";
  const auto kernel = jit->compile("scale", source, {.compiler = "nvrtc"});
  EXPECT_EQ(kernel->name(), "lib::scale<float, int>");
  launch_scale(kernel);
}

TEST_F(NvrtcTest, AutoFallsBackToNvcc) {
  launch_scale(
      jit->compile("scale", std::string("#include <vector>\n") + kScale, {.compiler = "auto"}));
}

}  // namespace
}  // namespace deep_jit::testing
