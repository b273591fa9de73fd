// SPDX-License-Identifier: MIT
//
// Launches on a real GPU: what kernels see of their grid, their memory and their arguments.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda/gpu/gpu_test.hpp"

namespace deep_jit::testing {
namespace {

using cuda::driver::lazy_cuTensorMapEncodeTiled;
using exception::LaunchError;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The text of the LaunchError that a call must throw.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const LaunchError& error) {
    return error.message;
  }
  return "there was no LaunchError";
}

class LaunchTest : public GpuTest {};

TEST_F(LaunchTest, TheDeviceDescribesItself) {
  std::printf("%s: sm_%s, %d SMs, %d bytes of shared memory per block\n",
              jit->device.get_prop().name, jit->device.get_arch().c_str(),
              jit->device.get_num_sms(), jit->device.get_num_smem_bytes());
  EXPECT_GT(jit->device.get_clock_rate(), 0);
  EXPECT_GT(jit->device.get_num_l2_cache_bytes(), 0);
  EXPECT_GE(jit->device.get_num_smem_bytes(), 48 << 10);
}

TEST_F(LaunchTest, ElementWise) {
  launch_scale(jit->compile("scale", kScale));
  launch_scale(jit->compile("scale", kScale), {.stream = nullptr});
}

TEST_F(LaunchTest, ProgrammaticDependentLaunch) {
  if (jit->device.get_arch_major() < 9) GTEST_SKIP() << "it needs sm_90";
  launch_scale(jit->compile("scale", kScale), {.enable_pdl = true});
}

TEST_F(LaunchTest, IndicesOfAThreeDimensionalGrid) {
  const auto kernel = jit->compile("indices", R"(
      __global__ void indices(unsigned* out) {
        unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
      })");
  const Buffer<unsigned> out(24 * 24);
  jit->launch(kernel, {.grid_dim = Dim3(2, 3, 4), .block_dim = Dim3(4, 3, 2)}, out.get());
  const auto seen = out.read();
  for (unsigned i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i / 24 * 1000 + i % 24);
}

// --- Shared memory ---

TEST_F(LaunchTest, DynamicSharedMemoryUpToTheMost) {
  const auto kernel = jit->compile("reverse", R"(
      extern __shared__ int tile[];
      __global__ void reverse(int* out, int ints) {
        for (int i = threadIdx.x; i < ints; i += blockDim.x) tile[i] = i;
        __syncthreads();
        for (int i = threadIdx.x; i < ints; i += blockDim.x) out[i] = tile[ints - 1 - i];
      })");
  const int most = jit->device.get_num_smem_bytes();
  for (const int bytes : {1024, most, 4096}) {
    const int ints = bytes / 4;
    const Buffer<int> out(static_cast<std::size_t>(ints));
    jit->launch(kernel, {.num_smem_bytes = bytes, .grid_dim = Dim3(1), .block_dim = Dim3(256)},
                out.get(), ints);
    std::vector<int> wanted(static_cast<std::size_t>(ints));
    std::iota(wanted.rbegin(), wanted.rend(), 0);
    EXPECT_TRUE(out.read() == wanted) << bytes;
  }
  const Buffer<int> out(1);
  EXPECT_THAT(error_of([&] {
                jit->launch(kernel,
                            {.num_smem_bytes = most + 1, .grid_dim = Dim3(1), .block_dim = Dim3(1)},
                            out.get(), 1);
              }),
              HasSubstr("dynamic shared memory"));
}

// --- Clusters and cooperative launches ---

void exchange_in_clusters(const Dim3& cluster, bool nonportable = false) {
  if (jit->device.get_arch_major() < 9) GTEST_SKIP() << "clusters need sm_90";
  const auto kernel = jit->compile("exchange", R"(
      #include <cooperative_groups.h>
      namespace cg = cooperative_groups;
      // Each block reads the number that the next block of its cluster holds.
      __global__ void exchange(int* out) {
        __shared__ int own;
        cg::cluster_group cluster = cg::this_cluster();
        unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks();
        if (threadIdx.x == 0) own = rank + 1;
        cluster.sync();
        if (threadIdx.x == 0) {
          int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
          out[2 * block] = *cluster.map_shared_rank(&own, (rank + 1) % blocks);
          out[2 * block + 1] = blocks;
        }
        cluster.sync();
      })");
  const unsigned size = cluster.x * cluster.y * cluster.z;
  const Buffer<int> out(4 * size);
  jit->launch(kernel,
              {.grid_dim = Dim3(cluster.x * 2, cluster.y, cluster.z),
               .block_dim = Dim3(64),
               .cluster_dim = cluster,
               .nonportable_cluster_size_allowed = nonportable},
              out.get());
  const auto seen = out.read();
  std::vector<int> neighbours;
  for (unsigned i = 0; i < 2 * size; ++i) {
    EXPECT_EQ(seen[2 * i + 1], static_cast<int>(size));
    neighbours.push_back(seen[2 * i]);
  }
  std::ranges::sort(neighbours);
  for (unsigned i = 0; i < 2 * size; ++i) EXPECT_EQ(neighbours[i], static_cast<int>(i / 2 + 1));
}

TEST_F(LaunchTest, ClustersOfOneAndThreeDimensions) {
  exchange_in_clusters(Dim3(1));
  exchange_in_clusters(Dim3(2));
  exchange_in_clusters(Dim3(2, 2, 2));
}

TEST_F(LaunchTest, ClusterLargerThanPortable) {
  exchange_in_clusters(Dim3(16), true);
}

TEST_F(LaunchTest, CooperativeGrid) {
  const auto kernel = jit->compile("sum", R"(
      #include <cooperative_groups.h>
      namespace cg = cooperative_groups;
      __global__ void sum(int* partial, int* result) {
        cg::grid_group grid = cg::this_grid();
        if (!grid.is_valid()) {
          if (blockIdx.x == 0 && threadIdx.x == 0) *result = -1;
          return;
        }
        if (threadIdx.x == 0) partial[blockIdx.x] = blockIdx.x + 1;
        grid.sync();
        if (blockIdx.x == 0 && threadIdx.x == 0) {
          int total = 0;
          for (unsigned i = 0; i < gridDim.x; ++i) total += partial[i];
          *result = total;
        }
      })");
  const int blocks = jit->device.get_num_sms();
  const Buffer<int> partial(static_cast<std::size_t>(blocks));
  const Buffer<int> result(1);
  const auto sum = [&](bool cooperative) {
    jit->launch(kernel,
                {.grid_dim = Dim3(static_cast<unsigned>(blocks)),
                 .block_dim = Dim3(128),
                 .cooperative = cooperative},
                partial.get(), result.get());
    return result.read()[0];
  };
  // This one first: after a cooperative launch the driver leaves a grid's workspace in place.
  EXPECT_EQ(sum(false), -1);
  EXPECT_EQ(sum(true), blocks * (blocks + 1) / 2);
}

// --- Arguments ---

struct Pair {
  char tag;
  double value;
};
struct Big {
  std::array<int, 256> words;
};

TEST_F(LaunchTest, ArgumentsOfAllKinds) {
  const auto kernel = jit->compile("mixed", R"(
      struct Pair { char tag; double value; };
      struct Big { int words[256]; };
      __global__ void mixed(bool b, char c, short s, int i, long long l, unsigned u, float f,
                            double d, const int* null, Pair pair, Big big, Pair elsewhere,
                            double* out) {
        *out = d + f + b + c + s + i + l + u + (null == nullptr) + pair.tag + pair.value +
               big.words[255] + elsewhere.tag + elsewhere.value;
      })");
  const Buffer<double> out(1);
  Big big{};
  big.words[255] = 100;
  Pair elsewhere{'\1', 0.5};
  const auto launch = [&](auto b, const Pair& pair) {
    jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, b, 'A', short{-5}, 7,
                1ll << 33, 9u, 0.5f, 0.25, nullptr, pair, big, NoRefPtr{&elsewhere}, out.get());
  };
  launch(true, Pair{'\2', 1.5});
  EXPECT_EQ(out.read()[0],
            1 + 65 - 5 + 7 + 8589934592.0 + 9 + 0.5 + 0.25 + 1 + 2 + 1.5 + 100 + 1 + 0.5);
  EXPECT_THAT(error_of([&] { launch(1, Pair{}); }), HasSubstr("parameter 0 has 1 bytes"));
  EXPECT_EQ(kernel->params().size(), 13u);
}

TEST_F(LaunchTest, ParametersOfSeveralKilobytes) {
  const auto kernel = jit->compile("checksum", R"(
      struct Block { unsigned words[256]; };
      struct __align__(64) Map { unsigned long long words[16]; };
      struct Maps { Map maps[18]; };
      __global__ void checksum(Block block, const __grid_constant__ Maps maps, unsigned* out) {
        unsigned i = threadIdx.x;
        atomicAdd(out, block.words[i % 256] * (i + 1));
        for (int m = 0; m < 18; ++m) atomicAdd(out, (unsigned)maps.maps[m].words[i % 16] * (m + i));
      })");
  struct Block {
    std::array<unsigned, 256> words;
  };
  struct Maps {
    alignas(64) std::array<std::uint64_t, 18 * 16> words;
  };
  Block block{};
  Maps maps{};
  for (unsigned i = 0; i < 256; ++i) block.words[i] = i * i + 3;
  for (unsigned i = 0; i < maps.words.size(); ++i) maps.words[i] = 7 * i + 1;
  unsigned wanted = 0;
  for (unsigned i = 0; i < 1024; ++i) {
    wanted += block.words[i % 256] * (i + 1);
    for (unsigned m = 0; m < 18; ++m) {
      wanted += static_cast<unsigned>(maps.words[m * 16 + i % 16]) * (m + i);
    }
  }
  const Buffer<unsigned> out(std::vector<unsigned>{0});
  jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1024)}, block, NoRefPtr{&maps},
              out.get());
  EXPECT_EQ(out.read()[0], wanted);
}

TEST_F(LaunchTest, ATensorMapByValueLoadsItsTile) {
  if (jit->device.get_arch_major() < 9) GTEST_SKIP() << "tensor maps need sm_90";
  const auto kernel = jit->compile("tile", R"(
      struct __align__(64) TensorMap { unsigned long long words[16]; };
      __global__ void tile(const __grid_constant__ TensorMap map, int* out) {
        __shared__ alignas(128) int smem[64];
        __shared__ alignas(8) unsigned long long barrier;
        unsigned s = __cvta_generic_to_shared(smem), b = __cvta_generic_to_shared(&barrier);
        if (threadIdx.x == 0) {
          asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(b));
          asm volatile("fence.mbarrier_init.release.cluster;");
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" :: "r"(b));
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                       " [%0], [%1, {8, 4}], [%2];" :: "r"(s), "l"(&map), "r"(b) : "memory");
        }
        __syncthreads();
        asm volatile("{ .reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
                     " @!p bra wait; }" :: "r"(b) : "memory");
        out[threadIdx.x] = smem[threadIdx.x];
      })");
  std::vector<int> matrix(64 * 32);
  std::iota(matrix.begin(), matrix.end(), 0);
  const Buffer<int> in(matrix);
  const Buffer<int> out(64);
  const cuuint64_t sizes[] = {64, 32};
  const cuuint64_t strides[] = {64 * sizeof(int)};
  const cuuint32_t box[] = {8, 8};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  DJ_CUDA_DRIVER_CHECK(lazy_cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_INT32, cuuint32_t{2}, static_cast<void*>(in.get()), sizes,
      strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(64)}, map, out.get());
  const auto tile = out.read();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(tile[static_cast<std::size_t>(i)], (4 + i / 8) * 64 + 8 + i % 8);
  }
}

TEST_F(LaunchTest, OptionsOfAKernelDecideAboutItsParameters) {
  const std::string source = "__global__ void k(WORD x, unsigned* out) { *out = x % 10000; }";
  const Buffer<unsigned> out(1);
  const LaunchOptions one{.grid_dim = Dim3(1), .block_dim = Dim3(1)};
  jit->launch(jit->compile("k", source, {.extra_nvcc_flags = {"-DWORD=unsigned"}}), one,
              std::uint32_t{1234017}, out.get());
  EXPECT_EQ(out.read()[0], 4017u);
  const auto wide = jit->compile("k", source, {.extra_nvcc_flags = {"-DWORD=unsigned long long"}});
  jit->launch(wide, one, std::uint64_t{1'000'000'008'023}, out.get());
  EXPECT_EQ(out.read()[0], 8023u);
  EXPECT_THAT(error_of([&] { jit->launch(wide, one, std::uint32_t{1}, out.get()); }),
              HasSubstr("parameter 0 has 8 bytes"));
}

// --- Errors ---

TEST_F(LaunchTest, WhatCannotBeLaunchedIsSaidAndHarmsNothing) {
  const auto kernel = jit->compile("scale", kScale);
  const Buffer<float> x(256);
  const LaunchOptions good{.grid_dim = Dim3(1), .block_dim = Dim3(256)};
  const auto error = [&](const LaunchOptions& overrides, auto... args) {
    return error_of([&] { jit->launch(kernel, good.override_with(overrides), args...); });
  };
  const float* const in = x.get();
  EXPECT_THAT(error({}, x.get(), in, 2.0f), HasSubstr("4 parameters, but 3"));
  EXPECT_THAT(error({}, x.get(), in, 2.0, 1), HasSubstr("parameter 2 has 4 bytes"));
  const auto most = static_cast<unsigned>(kernel->attributes().max_threads_per_block);
  EXPECT_THAT(error({.block_dim = Dim3(most + 1)}, x.get(), in, 2.0f, 1),
              HasSubstr("block (1025, 1, 1)"));
  EXPECT_THAT(error({.block_dim = Dim3(0)}, x.get(), in, 2.0f, 1),
              HasSubstr("block dimensions must be positive"));
  launch_scale(kernel);
}

TEST_F(LaunchTest, AssertAndPrintfAreNoKernels) {
  const auto kernel = jit->compile("helpers", R"(
      #include <cassert>
      #include <cstdio>
      __global__ void helpers(int* out, int n) {
        assert(n > 0);
        if (n == 123456) printf("never\n");
        *out = n;
      })");
  const Buffer<int> out(1);
  jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, out.get(), 17);
  EXPECT_EQ(out.read()[0], 17);
  EXPECT_EQ(kernel->name(), "helpers");
}

TEST_F(LaunchTest, NoneOrTwoKernelsAreListed) {
  EXPECT_THAT([] { jit->compile("none", "__device__ int x;"); },
              ThrowsMessage<exception::Exception>(HasSubstr("expected exactly one kernel")));
  EXPECT_THAT(
      [] { jit->compile("two", "__global__ void first() {} __global__ void second(int) {}"); },
      ThrowsMessage<exception::Exception>(::testing::AllOf(HasSubstr("expected exactly one kernel"),
                                                           HasSubstr("first()"),
                                                           HasSubstr("second(int)"))));
}

TEST_F(LaunchTest, AttributesOfAKernel) {
  const auto attributes = jit->compile("scale", kScale)->attributes();
  EXPECT_GT(attributes.num_registers, 0);
  EXPECT_LE(attributes.num_registers, 255);
  EXPECT_EQ(attributes.num_local_bytes, 0);
  EXPECT_EQ(attributes.max_threads_per_block, 1024);
}

}  // namespace
}  // namespace deep_jit::testing
