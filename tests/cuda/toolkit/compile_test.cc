// SPDX-License-Identifier: MIT
//
// The backend with real compilers, nvcc and NVRTC: what is in the cubins is read back with the
// toolkit's own tools.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

class RealCompilerTest : public testing::ToolkitTest {
 protected:
  explicit RealCompilerTest(std::string compiler) : compiler_(std::move(compiler)) {}

  // The folder of the entry.
  std::filesystem::path compile(const std::string& source, const CompilerOptions& options = {}) {
    return compile_with(runtime(), source, options);
  }
  std::filesystem::path compile_with(Runtime<CUDA>& runtime, const std::string& source,
                                     const CompilerOptions& options = {}) const {
    const CompilerOptions defaults{.arch = "90a", .compiler = compiler_};
    return runtime.compile_without_load("kernel", source, defaults.override_with(options));
  }

  Runtime<CUDA>& runtime() {
    if (!runtime_) runtime_ = std::make_unique<Runtime<CUDA>>(config());
    return *runtime_;
  }

  static nlohmann::json compiler_info(const std::filesystem::path& entry) {
    return nlohmann::json::parse(read(entry / "meta.json")).at("compiler_info");
  }

 private:
  std::string compiler_;
  std::unique_ptr<Runtime<CUDA>> runtime_;
};

// --- What both compilers do ---

class CompileTest : public RealCompilerTest, public ::testing::WithParamInterface<const char*> {
 protected:
  CompileTest() : RealCompilerTest(GetParam()) {}

  bool is_nvcc() const { return GetParam() == std::string_view("nvcc"); }
  void SetUp() override {
    if (is_nvcc()) use_host_compiler();
  }
};

INSTANTIATE_TEST_SUITE_P(, CompileTest, ::testing::Values("nvcc", "nvrtc"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CompileTest, ACubinIsForItsArchitectureAndHasTheKernel) {
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

TEST_P(CompileTest, AFamilyOfArchitectures) {
  const auto entry = compile(kScale, {.dump_ptx = true, .arch = "100f"});
  EXPECT_THAT(read(entry / "kernel.ptx"), HasSubstr(".target sm_100f"));
  EXPECT_THAT(disassemble(entry / "kernel.cubin"), HasSubstr(".target\tsm_100"));
}

TEST_P(CompileTest, AnArchitectureThatNvccDoesNotKnow) {
  DJ_EXPECT_ERROR(exception::CompileError, compile(kScale, {.arch = "42"}), HasSubstr("sm_42"));
  EXPECT_THAT(published(), SizeIs(0));
}

TEST_P(CompileTest, SpillsAreFoundAndRefused) {
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

TEST_P(CompileTest, LocalMemoryIsFoundAndRefused) {
  EXPECT_EQ(inspect(compile(kLocal) / "kernel.cubin").at("local").stack, 256);
  DJ_EXPECT_ERROR(exception::CompileError, compile(kLocal, {.check_no_local_memory = true}),
                  HasSubstr("local memory usage"));
  EXPECT_NO_THROW(compile(kLocal, {.check_no_spills = true})) << "nothing is spilled";
}

TEST_P(CompileTest, FlagsReachTheCode) {
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

TEST_P(CompileTest, FastMathChangesTheCode) {
  const std::string source =
      "__global__ void k(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }";
  const auto lines = [&](bool fast) {
    return disassemble(compile(source, {.fast_math = fast}) / "kernel.cubin").size();
  };
  EXPECT_GT(lines(false), 2 * lines(true));
}

TEST_P(CompileTest, DumpsAreOfTheSameKernel) {
  const auto entry = compile(kScale, {.dump_ptx = true, .dump_sass = true});
  EXPECT_THAT(read(entry / "kernel.ptx"),
              AllOf(HasSubstr(".target sm_90a"), HasSubstr(".entry _Z5scalePfPKffi")));
  EXPECT_THAT(read(entry / "kernel.sass"),
              AllOf(HasSubstr("code for sm_90a"), HasSubstr("Function : _Z5scalePfPKffi"),
                    HasSubstr("FMUL"), HasSubstr("EXIT")));
}

TEST_P(CompileTest, LineInfo) {
  const auto lines = [&](bool wanted) {
    const auto entry = compile(kScale, {.with_line_info = wanted});
    return disassemble(entry / "kernel.cubin", {"--print-line-info"});
  };
  EXPECT_THAT(lines(true), HasSubstr("kernel.cu\", line 4"));
  EXPECT_THAT(lines(false), Not(HasSubstr("kernel.cu")));
}

TEST_P(CompileTest, TheSameBytesFromAnotherFolder) {
  const auto first = compile(kScale);
  set_env("TESTLIB_JIT_CACHE_DIR", (scratch() / "another/longer/root").string());
  Runtime<CUDA> other(config());
  const auto second = compile_with(other, kScale);
  EXPECT_NE(first, second);
  EXPECT_EQ(read(first / "kernel.cubin"), read(second / "kernel.cubin"));
}

TEST_P(CompileTest, ErrorsCarryWhatNvccSays) {
  try {
    compile("__global__ void k() { x = 1; }");
    ADD_FAILURE() << "it compiled";
  } catch (const exception::CompileError& error) {
    EXPECT_THAT(error.log, HasSubstr("kernel.cu(1): error: identifier \"x\" is undefined"));
    EXPECT_EQ(error.source_path, "kernel.cu");
  }
  EXPECT_THAT(published(), SizeIs(0));
  EXPECT_THAT(unfinished(), SizeIs(0));
}

TEST_P(CompileTest, StandardAndCudaHeaders) {
  const auto entry = compile(R"(
#include <cstdint>
#include <type_traits>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
extern "C" __global__ void convert(__nv_bfloat16* out, const __nv_fp8_e4m3* x, std::uint32_t n) {
  static_assert(std::is_same_v<std::uint32_t, unsigned>);
  if (threadIdx.x < n) out[threadIdx.x] = __float2bfloat16(static_cast<float>(x[threadIdx.x]));
})");
  EXPECT_THAT(disassemble(entry / "kernel.cubin"), HasSubstr("F2F"));
}

TEST_P(CompileTest, ATemplateIsNamedByItsInstantiation) {
  const std::string source = R"(
template <class T, int N> __global__ void fill(T* x) { x[threadIdx.x] = N; }
template __global__ void fill<unsigned long, 3>(unsigned long*);)";
  EXPECT_THAT(inspect(compile(source) / "kernel.cubin"), ElementsAre(Key("_Z4fillImLi3EEvPT_")));
}

TEST_P(CompileTest, MetadataNamesTheCompiler) {
  const auto info = compiler_info(compile(kScale));
  EXPECT_EQ(info.at("compiler"), GetParam());
  const std::string release = get_env<std::string>("CUDA_TOOLKIT_VERSION");
  EXPECT_THAT(info.at("version").get<std::string>(),
              HasSubstr(is_nvcc() ? release + ", V" : release));
  EXPECT_THAT(info.at("path").get<std::string>(), ::testing::StartsWith(home().string()));
}

// --- What only one of them does ---

class NvccTest : public RealCompilerTest {
 protected:
  NvccTest() : RealCompilerTest("nvcc") {}
  void SetUp() override { use_host_compiler(); }
};

TEST_F(NvccTest, EveryHeaderThatItReadsIsVerified) {
  write("include/mine.hpp", "#include <cuda_bf16.h>\n#define FACTOR 2\n");
  Config verified = config();
  verified.dependency_mode = DependencyMode::kVerified;
  const std::string source =
      "#define HEADER <mine.hpp>\n#include HEADER\n"
      "__global__ void k(int* x) { x[threadIdx.x] *= FACTOR; }";
  const auto compile_verified = [&] {
    return read(Runtime<CUDA>(verified).compile_without_load("kernel", source,
                                                             {.arch = "90a", .compiler = "nvcc"}) /
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

class AutoTest : public RealCompilerTest {
 protected:
  AutoTest() : RealCompilerTest("auto") {}
};

TEST_F(AutoTest, TakesNvrtcAndNeedsNoHostCompiler) {
  set_env("PATH", "/no/such/folder");
  const auto info = compiler_info(compile(kScale));
  EXPECT_EQ(info.at("compiler"), "nvrtc");
}

TEST_F(AutoTest, FallsBackToNvccAndSaysWhy) {
  use_host_compiler();
  // <vector> is the host's.
  const auto info = compiler_info(compile(std::string("#include <vector>\n") + kScale));
  EXPECT_EQ(info.at("compiler"), "nvcc");
  EXPECT_THAT(info.at("reason").get<std::string>(), HasSubstr("vector"));
}

}  // namespace
}  // namespace deep_jit::cuda
