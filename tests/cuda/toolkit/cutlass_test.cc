// SPDX-License-Identifier: MIT
//
// CUTLASS's headers through the real compilers.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/key/dependencies.hpp"
#include "tests/cuda/toolkit/toolkit_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CutlassTest : public testing::ToolkitTest {
 protected:
  static CompilerOptions options(const std::string& compiler) {
    return {.check_no_spills = true,
            .check_no_local_memory = true,
            .arch = "90a",
            .extra_nvcc_flags = {"-DNDEBUG"},
            .compiler = compiler};
  }

  static void check(const std::filesystem::path& entry) {
    const auto usage = inspect(entry / "kernel.cubin").at("transpose");
    EXPECT_EQ(usage.stack, 0);
    EXPECT_LE(usage.registers, 32);
    EXPECT_THAT(disassemble(entry / "kernel.cubin"),
                AllOf(HasSubstr(".target\tsm_90a"), HasSubstr("LDG.E"), HasSubstr("STG.E")));
  }

  static std::filesystem::path cutlass() {
    return std::filesystem::canonical(get_env<std::string>("CUTLASS")) /
           "cutlass_library/source/include";
  }
};

// Copies a tile of 8 x 4 floats through layouts of its own.
constexpr char kTranspose[] = R"(
#include <cute/tensor.hpp>
extern "C" __global__ void transpose(float* out, const float* x) {
  using namespace cute;
  auto shape = make_shape(Int<8>{}, Int<4>{});
  auto from = make_tensor(make_gmem_ptr(x), make_layout(shape, LayoutRight{}));
  auto to = make_tensor(make_gmem_ptr(out), make_layout(shape, LayoutLeft{}));
  to(threadIdx.x) = from(threadIdx.x);
})";

TEST_F(CutlassTest, ATensorKernelByNvcc) {
  use_host_compiler();
  Config verified(scratch(), "TESTLIB", "", {cutlass()});
  verified.dependency_mode = DependencyMode::kVerified;
  const auto entry =
      Runtime<CUDA>(verified).compile_without_load("transpose", kTranspose, options("nvcc"));
  check(entry);
  // Each of its headers is known: another CUTLASS is a miss.
  const auto dependencies = Dependencies::of_entry(entry);
  ASSERT_TRUE(dependencies);
  EXPECT_GT(dependencies->size(), 100u);
  EXPECT_THAT(read(entry / "dependencies"), HasSubstr("cute/tensor.hpp"));
}

TEST_F(CutlassTest, ATensorKernelByNvrtc) {
  const Config config(scratch(), "TESTLIB", "", {cutlass()});
  check(Runtime<CUDA>(config).compile_without_load("transpose", kTranspose, options("nvrtc")));
}

}  // namespace
}  // namespace deep_jit::cuda
