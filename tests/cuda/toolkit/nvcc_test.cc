// SPDX-License-Identifier: MIT
//
// The backend with a real nvcc: what is in the cubins is read back with the toolkit's own tools.
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "deep_jit/key/dependencies.hpp"
#include "tests/cuda/toolkit/toolkit_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kScale[] = R"(
__global__ void scale(float* out, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factor * x[i];
})";

// Keeps 200 values in the 64 registers that each of 1024 threads can have.
constexpr char kSpilling[] = R"(
extern "C" __global__ void __launch_bounds__(1024) spill(float* x) {
  float a[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) a[i] = x[i * 7];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 200; ++i) x[i * 3] = a[i] * a[(i + 7) % 200];
})";

// Indexes an array of its own by a value that is known at run time only.
constexpr char kLocal[] = R"(
extern "C" __global__ void local(int* x, int i) {
  int a[64];
  for (int k = 0; k < 64; ++k) a[k] = x[k];
  for (int k = 0; k < 64; ++k) a[(k * i) & 63] += x[k];
  x[0] = a[i & 63];
})";

class NvccTest : public testing::ToolkitTest {
 protected:
  // The folder of the entry.
  std::filesystem::path compile(const std::string& source, CompilerOptions options = {}) {
    if (!options.arch) options.arch = "90a";
    return runtime().compile_without_load("kernel", source, options);
  }

  Runtime<CUDA>& runtime() {
    if (!runtime_) runtime_ = std::make_unique<Runtime<CUDA>>(config());
    return *runtime_;
  }

 private:
  std::unique_ptr<Runtime<CUDA>> runtime_;
};

TEST_F(NvccTest, ACubinIsForItsArchitectureAndHasTheKernel) {
  for (const std::string arch : {"80", "90a", "120"}) {
    const auto cubin = compile(kScale, {.arch = arch}) / "kernel.cubin";
    const auto usages = inspect(cubin);
    ASSERT_THAT(usages, ElementsAre(::testing::Pair("_Z5scalePfPKffi", ::testing::_)));
    EXPECT_GT(usages.begin()->second.registers, 0);
    EXPECT_THAT(disassemble(cubin), AllOf(HasSubstr(".target\tsm_" + arch + "\n"),
                                          HasSubstr(".text._Z5scalePfPKffi"), HasSubstr("FMUL")));
  }
  EXPECT_THAT(published(), SizeIs(3));
}

TEST_F(NvccTest, AFamilyOfArchitectures) {
  const auto entry = compile(kScale, {.dump_ptx = true, .arch = "100f"});
  EXPECT_THAT(read(entry / "kernel.ptx"), HasSubstr(".target sm_100f"));
  EXPECT_THAT(disassemble(entry / "kernel.cubin"), HasSubstr(".target\tsm_100"));
}

TEST_F(NvccTest, AnArchitectureThatNvccDoesNotKnow) {
  DJ_EXPECT_ERROR(exception::CompileError, compile(kScale, {.arch = "42"}), HasSubstr("sm_42"));
  EXPECT_THAT(published(), SizeIs(0));
}

TEST_F(NvccTest, SpillsAreFoundAndRefused) {
  const auto usage = inspect(compile(kSpilling) / "kernel.cubin").at("spill");
  EXPECT_EQ(usage.registers, 64);
  EXPECT_GT(usage.stack, 100);
  DJ_EXPECT_ERROR(exception::CompileError, compile(kSpilling, {.check_no_spills = true}),
                  HasSubstr("register spills"));
  const auto entry = compile(kScale, {.check_no_spills = true, .check_no_local_memory = true});
  const auto none = inspect(entry / "kernel.cubin").begin()->second;
  EXPECT_EQ(none.stack, 0);
  EXPECT_EQ(none.local, 0);
}

TEST_F(NvccTest, LocalMemoryIsFoundAndRefused) {
  EXPECT_EQ(inspect(compile(kLocal) / "kernel.cubin").at("local").stack, 256);
  DJ_EXPECT_ERROR(exception::CompileError, compile(kLocal, {.check_no_local_memory = true}),
                  HasSubstr("local memory usage"));
  EXPECT_NO_THROW(compile(kLocal, {.check_no_spills = true})) << "nothing is spilled";
}

TEST_F(NvccTest, FlagsReachTheCode) {
  const std::string source = R"(
extern "C" __global__ void tile(int* x) {
  __shared__ int a[N];
  a[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = a[N - 1 - threadIdx.x];
})";
  const auto shared = [&](const std::string& flag) {
    return inspect(compile(source, {.extra_nvcc_flags = {flag}}) / "kernel.cubin")
        .at("tile")
        .shared;
  };
  EXPECT_EQ(shared("-DN=64") - shared("-DN=32"), 32 * 4);
}

TEST_F(NvccTest, FastMathChangesTheCode) {
  const std::string source =
      "__global__ void k(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }";
  const auto lines = [&](bool fast) {
    return disassemble(compile(source, {.fast_math = fast}) / "kernel.cubin").size();
  };
  EXPECT_GT(lines(false), 2 * lines(true));
}

TEST_F(NvccTest, DumpsAreOfTheSameKernel) {
  const auto entry = compile(kScale, {.dump_ptx = true, .dump_sass = true});
  EXPECT_THAT(read(entry / "kernel.ptx"),
              AllOf(HasSubstr(".target sm_90a"), HasSubstr(".entry _Z5scalePfPKffi")));
  EXPECT_THAT(read(entry / "kernel.sass"),
              AllOf(HasSubstr("code for sm_90a"), HasSubstr("Function : _Z5scalePfPKffi"),
                    HasSubstr("FMUL"), HasSubstr("EXIT")));
}

TEST_F(NvccTest, LineInfo) {
  const auto lines = [&](bool wanted) {
    const auto entry = compile(kScale, {.with_line_info = wanted});
    return disassemble(entry / "kernel.cubin", {"--print-line-info"});
  };
  EXPECT_THAT(lines(true), HasSubstr("kernel.cu\", line 4"));
  EXPECT_THAT(lines(false), Not(HasSubstr("kernel.cu")));
}

TEST_F(NvccTest, TheSameBytesFromAnotherFolder) {
  const auto first = compile(kScale);
  set_env("TESTLIB_JIT_CACHE_DIR", (scratch() / "another/longer/root").string());
  Runtime<CUDA> other(config());
  const auto second = other.compile_without_load("kernel", kScale, {.arch = "90a"});
  EXPECT_NE(first, second);
  EXPECT_EQ(read(first / "kernel.cubin"), read(second / "kernel.cubin"));
}

TEST_F(NvccTest, ErrorsCarryWhatNvccSays) {
  try {
    compile("__global__ void k() { x = 1; }");
    ADD_FAILURE() << "it compiled";
  } catch (const exception::CompileError& error) {
    EXPECT_THAT(error.log, HasSubstr("kernel.cu(1): error: identifier \"x\" is undefined"));
    EXPECT_EQ(error.command.front(), home() / "bin/nvcc");
  }
  EXPECT_THAT(published(), SizeIs(0));
  EXPECT_THAT(unfinished(), SizeIs(0));
}

TEST_F(NvccTest, EveryHeaderThatNvccReadsIsVerified) {
  write("include/mine.hpp", "#include <cuda_bf16.h>\n#define FACTOR 2\n");
  Config verified = config();
  verified.dependency_mode = DependencyMode::kVerified;
  const std::string source =
      "#define HEADER <mine.hpp>\n#include HEADER\n"
      "__global__ void k(int* x) { x[threadIdx.x] *= FACTOR; }";
  const auto compile_verified = [&] {
    return read(Runtime<CUDA>(verified).compile_without_load("kernel", source, {.arch = "90a"}) /
                "kernel.cubin");
  };
  const std::string twice = compile_verified();
  const auto entry = cache_root() / "cache" / published().at(0);
  const auto dependencies = Dependencies::of_entry(entry);
  ASSERT_TRUE(dependencies);
  EXPECT_GT(dependencies->size(), 10u);
  EXPECT_THAT(read(entry / "dependencies"), AllOf(HasSubstr("mine.hpp"), HasSubstr("cuda_bf16.h")));
  write("include/mine.hpp", "#include <cuda_bf16.h>\n#define FACTOR 3\n");
  EXPECT_NE(compile_verified(), twice);
}

TEST_F(NvccTest, MetadataNamesTheCompiler) {
  const auto entry = compile(kScale);
  const auto meta = nlohmann::json::parse(read(entry / "meta.json"));
  const std::string version = meta.at("compiler_info").at("version");
  EXPECT_THAT(version, HasSubstr(get_env<std::string>("CUDA_TOOLKIT_VERSION") + ", V"));
  EXPECT_EQ(meta.at("compiler_info").at("path"), (home() / "bin/nvcc").string());
}

}  // namespace
}  // namespace deep_jit::cuda
