// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/prelude.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/subprocess.hpp"
#include "tests/runtime/backend/host/host_test.hpp"

namespace deep_jit::host {
namespace {

class PreludeTest : public testing::HostTest {
 protected:
  // What the real compiler says; empty when it is content.
  std::string compile(const std::string& source, const std::vector<std::string>& flags) {
    write(kPreludeFileName, get_prelude());
    write("source.cc", source);
    Command command{.arguments = find_toolchain(env(), config()).command,
                    .working_directory = scratch()};
    command.arguments.insert(command.arguments.end(),
                             {"-c", "-Wall", "-Wextra", "-Werror", "-include",
                              std::string(kPreludeFileName), "source.cc", "-o", "source.o"});
    command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
    const auto result = run_command(command);
    return result.ok() ? "" : "failed: " + result.output;
  }
};

constexpr const char* kUses = R"(
struct S { float x; int y; };
enum class E : unsigned char { a };
struct Opaque;
__constant__ int table[2] = {1, 2};
__host__ __device__ __forceinline__ int twice(int x) { return 2 * x; }
__global__ void __launch_bounds__(256) f(const float* __restrict__ in, float* out, S s, E,
                                         Opaque*, void*, bool b, unsigned long n,
                                         __grid_constant__ const int k) {
  const uint3 t = threadIdx;
  const dim3 d(blockDim.x, 2);
  unsigned i = blockIdx.x * blockDim.x + t.x;
  if (i < n && b) out[i] = sqrtf(in[i]) + s.x + min(twice(k), 3u) +
                          max(1, 2.5f) + d.z + table[0] + gridDim.y;
}
DJ_HOST_REGISTER(f)
__global__ void g() noexcept {}
DJ_HOST_REGISTER(g)
__device__ int reduce(int x) {
  __shared__ int parts[32];
  static __shared__ __align__(16) int sum;
  DJ_HOST_DYNAMIC_SHARED(smem, float) DJ_HOST_IGNORE(extern __shared__ float smem[]);
  parts[threadIdx.x % warpSize] = x;
  __syncwarp();
  __syncwarp(0xffu);
  smem[threadIdx.x] = 1;
  *(smem + 1) = reinterpret_cast<int*>(smem)[2];
  __syncthreads();
  __threadfence();
  sum = parts[0];
  return sum + __syncthreads_count(x) + __syncthreads_and(x) + __syncthreads_or(x);
}
DJ_HOST_DYNAMIC_SHARED(everywhere, int[2]);
__global__ void g2() { everywhere[0][1] = reduce(1); }
DJ_HOST_REGISTER(g2)
__global__ void h(int) {}
__global__ void h(float) {}
DJ_HOST_REGISTER_AS(void(float x), h)
)";

TEST_F(PreludeTest, CompilesWithoutWarningsFromCpp17On) {
  for (const char* standard : {"-std=c++17", "-std=c++20", "-std=c++23"}) {
    EXPECT_EQ(compile(kUses, {standard}), "");
  }
  EXPECT_EQ(compile(kUses, {"-std=c++20", "-fno-exceptions", "-fno-rtti"}), "");
}

TEST_F(PreludeTest, MinAndMaxGetAlongWithTheStandardOnes) {
  EXPECT_EQ(compile("#include <algorithm>\nusing namespace std;\n"
                    "static_assert(min(1, 2) + max(3, 4) == 5);\n"
                    "static_assert(min(1, 2u) == 1 && max(-1, 1u) == 4294967295u);\n"
                    "__device__ int min(int, int);\nint x = min(1, 2);\n",
                    {"-std=c++20"}),
            "");
}

TEST_F(PreludeTest, IndicesAreUnsigned) {
  EXPECT_EQ(compile("static_assert(std::is_same<decltype(blockIdx.x * blockDim.x + threadIdx.x), "
                    "unsigned int>::value && std::is_same<decltype(gridDim), dim3>::value && "
                    "std::is_same<decltype(threadIdx), uint3>::value);",
                    {"-std=c++20"}),
            "");
}

TEST_F(PreludeTest, RefusesParametersThatCannotBePassedAsBytes) {
  EXPECT_THAT(compile("struct S { S(const S&); };\n__global__ void f(S) {}\nDJ_HOST_REGISTER(f)",
                      {"-std=c++20"}),
              ::testing::HasSubstr("must be trivially copyable"));
  EXPECT_THAT(compile("__global__ void f(int&) {}\nDJ_HOST_REGISTER(f)", {"-std=c++20"}),
              ::testing::HasSubstr("passed by value"));
}

}  // namespace
}  // namespace deep_jit::host
