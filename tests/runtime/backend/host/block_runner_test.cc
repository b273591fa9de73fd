// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/block_runner.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/backend/host/host_test.hpp"

namespace deep_jit::host {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using BlockRunnerTest = testing::HostTest;

// --- Shared memory and barriers ---

TEST_F(BlockRunnerTest, ReducesInSharedMemory) {
  auto kernel = make_kernel(R"(
      __global__ void sum(long* out, const int* in, int n) {
        __shared__ long parts[256];
        const unsigned t = threadIdx.x;
        long own = 0;
        for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) own += in[i];
        parts[t] = own;
        __syncthreads();
        for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
          if (t < half) parts[t] += parts[t + half];
          __syncthreads();
        }
        if (t == 0) out[blockIdx.x] = parts[0];
      })");
  std::vector<int> in(100003);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * i % 1009);
  const long expected = std::accumulate(in.begin(), in.end(), 0L);
  for (const int threads : {1, 4}) {
    std::vector<long> out(13);
    kernel->launch(dims(Dim3{13}, Dim3{256}, threads), out.data(), in.data(),
                   static_cast<int>(in.size()));
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0L), expected);
  }
}

TEST_F(BlockRunnerTest, TransposesThroughATileOfA2dBlock) {
  auto kernel = make_kernel(R"(
      __global__ void transpose(int* out, const int* in, int width, int height) {
        __shared__ int tile[8][9];
        int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
        if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
        __syncthreads();
        x = blockIdx.y * 8 + threadIdx.x, y = blockIdx.x * 8 + threadIdx.y;
        if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
      })");
  const int width = 37;
  const int height = 21;
  std::vector<int> in(width * height);
  std::iota(in.begin(), in.end(), 0);
  std::vector<int> out(in.size(), -1);
  kernel->launch(dims(Dim3{5, 3}, Dim3{8, 8}), out.data(), in.data(), width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) ASSERT_EQ(out[x * height + y], y * width + x);
  }
}

TEST_F(BlockRunnerTest, NoThreadPassesABarrierBeforeAllHaveCome) {
  // Each round a thread reads what its neighbour wrote in this very round.
  auto kernel = make_kernel(R"(
      __global__ void rotate(unsigned* out, unsigned rounds) {
        __shared__ unsigned values[3 * 5 * 7];
        const unsigned n = blockDim.x * blockDim.y * blockDim.z;
        const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        unsigned value = t;
        for (unsigned round = 0; round < rounds; ++round) {
          values[t] = value;
          __syncthreads();
          value = values[(t + 1) % n];
          __syncthreads();
        }
        // The indices are still this thread's own.
        out[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)] =
            value + 1000 * blockIdx.z;
      })");
  std::vector<unsigned> out(105);
  kernel->launch({.grid_dim = Dim3{1}, .block_dim = Dim3{3, 5, 7}}, out.data(), 50u);
  for (unsigned t = 0; t < 105; ++t) ASSERT_EQ(out[t], (t + 50) % 105);
}

TEST_F(BlockRunnerTest, CountsVotes) {
  auto kernel = make_kernel(R"(
      __global__ void vote(int* out) {
        const int t = threadIdx.x;
        int* own = out + 5 * t;
        own[0] = __syncthreads_count(t % 3 == 0);
        own[1] = __syncthreads_and(t < 10);
        own[2] = __syncthreads_and(t < 9);
        own[3] = __syncthreads_or(t == 9);
        own[4] = __syncthreads_or(t == 10) + __syncthreads_count(4);
      })");
  std::vector<int> out(50);
  kernel->launch(dims(Dim3{1}, Dim3{10}), out.data());
  for (int t = 0; t < 10; ++t) {
    EXPECT_THAT(std::vector<int>(out.begin() + 5 * t, out.begin() + 5 * t + 5),
                ElementsAre(4, 1, 0, 1, 10));
  }
}

TEST_F(BlockRunnerTest, TheLanesOfAWarpWaitForEachOther) {
  auto kernel = make_kernel(R"(
      __global__ void shift(int* out, int* order) {
        __shared__ int values[64];
        __shared__ int next;
        const int t = threadIdx.x;
        int value = t;
        if (t / warpSize == 0) {  // One warp has barriers of its own that the other has not.
          for (int round = 0; round < 5; ++round) {
            values[t] = value;
            __syncwarp();
            value = values[(t + 1) % 32];
            __syncwarp();
          }
        }
        if (t == 0) next = 0;
        __syncthreads();
        values[t] = value;
        order[next++] = t;
        __syncthreads();
        out[t] = values[(t + 32) % 64];
      })");
  std::vector<int> out(64);
  std::vector<int> order(64, -1);
  kernel->launch(dims(Dim3{1}, Dim3{64}), out.data(), order.data());
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(out[t + 32], (t + 5) % 32);
    EXPECT_EQ(out[t], t + 32);
  }
  std::sort(order.begin(), order.end());
  for (int t = 0; t < 64; ++t) EXPECT_EQ(order[t], t);
}

TEST_F(BlockRunnerTest, BarriersMayStandInHeadersAndTemplates) {
  write("include/lib/reduce.hpp", R"(
      #pragma once
      template <class T, int kThreads>
      __device__ T block_sum(T value) {
        __shared__ T parts[kThreads];
        parts[threadIdx.x] = value;
        __syncthreads();
        T sum = 0;
        for (const T part : parts) sum += part;
        __syncthreads();
        return sum;
      })");
  auto kernel = make_kernel(
      "#include <lib/reduce.hpp>\n__global__ void f(float* out) {\n"
      "  out[threadIdx.x] = block_sum<float, 50>(threadIdx.x) + block_sum<int, 50>(2);\n}\n");
  std::vector<float> out(50);
  kernel->launch(dims(Dim3{1}, Dim3{50}), out.data());
  EXPECT_THAT(out, Each(1225 + 100));
}

// --- Divergence ---

TEST_F(BlockRunnerTest, ThreadsThatHaveReturnedDoNotCount) {
  auto kernel = make_kernel(R"(
      __global__ void f(int* out, int first, int last) {
        __shared__ int values[100];
        const int t = threadIdx.x;
        values[t] = 1;
        if (t < first || t > last) return;  // Before any barrier, or behind the last starter.
        __syncthreads();
        int sum = 0;
        for (int value : values) sum += value;
        if (t % 2) return;
        __syncthreads();
        out[t] = sum + __syncthreads_count(1);
      })");
  for (const auto& [first, last] : {std::pair(0, 99), {40, 99}, {0, 60}, {40, 60}, {50, 50}}) {
    std::vector<int> out(100);
    kernel->launch(dims(Dim3{1}, Dim3{100}), out.data(), first, last);
    int even = 0;
    for (int t = first; t <= last; ++t) even += t % 2 == 0;
    for (int t = 0; t < 100; ++t) {
      EXPECT_EQ(out[t], t >= first && t <= last && t % 2 == 0 ? 100 + even : 0) << t;
    }
  }
}

TEST_F(BlockRunnerTest, ThreadsMayWaitAtDifferentBarriers) {
  auto kernel = make_kernel(R"(
      __global__ void f(int* out) {
        __shared__ int sum;
        if (threadIdx.x == 0) {
          sum = 5;
          __syncthreads();
        } else {
          for (unsigned i = 0; i < threadIdx.x; ++i) __syncthreads();
        }
        out[threadIdx.x] = sum;
      })");
  std::vector<int> out(6);
  kernel->launch(dims(Dim3{1}, Dim3{6}), out.data());
  EXPECT_THAT(out, Each(5));
}

// --- Dynamic shared memory ---

TEST_F(BlockRunnerTest, GivesDynamicSharedMemoryOfTheSizeAskedFor) {
  auto kernel = make_kernel(R"(
      extern __shared__ unsigned char everywhere[];
      template <class T>
      __device__ T* middle(int n) {
        extern __shared__ __align__(16) T smem[];
        return smem + n / 2;
      }
      __global__ void f(long* out, int n) {
        extern __shared__ int smem[];
        extern __shared__ int pairs[][2];
        for (int i = threadIdx.x; i < n; i += blockDim.x) smem[i] = i + blockIdx.x;
        __syncthreads();
        long sum = 0;
        for (int i = 0; i < n; ++i) sum += smem[i];
        __syncthreads();
        if (threadIdx.x == 0) {
          out[blockIdx.x] = sum;
          const bool same = static_cast<void*>(everywhere) == smem && middle<int>(n) == smem + n / 2
                            && (n == 0 || pairs[n / 2 - 1][1] == smem[n - 1]);
          if (!same) out[blockIdx.x] = -1;
        }
      })");
  for (const long n : {0L, 2L, 100L, 57344L, 4194304L}) {
    std::vector<long> out(3, 7);
    kernel->launch({.num_smem_bytes = static_cast<int>(4 * n),
                    .grid_dim = Dim3{3},
                    .block_dim = Dim3{4},
                    .num_threads = 2},
                   out.data(), static_cast<int>(n));
    for (long b = 0; b < 3; ++b) EXPECT_EQ(out[b], n * (n - 1) / 2 + n * b) << n;
  }
  long out = 0;
  DJ_EXPECT_ERROR(
      exception::LaunchError,
      kernel->launch({.num_smem_bytes = -1, .grid_dim = Dim3{1}, .block_dim = Dim3{1}}, &out, 1),
      HasSubstr("shared-memory size must not be negative"));
}

// --- Failures ---

TEST_F(BlockRunnerTest, AThrowingThreadEndsItsBlockCleanly) {
  auto kernel = make_kernel(R"(
      #include <stdexcept>
      #include <string>
      struct Counted {
        int* alive;
        explicit Counted(int* alive) : alive(alive) { __atomic_fetch_add(alive, 1, 0); }
        ~Counted() { __syncthreads(); __atomic_fetch_sub(alive, 1, 0); }
      };
      __global__ void f(unsigned bad, int round_of_failure, int* alive, int* passed) {
        Counted counted(alive);
        std::string text(100, 'x');
        for (int round = 0; round < 4; ++round) {
          try {
            if (threadIdx.x == bad && round == round_of_failure) throw std::runtime_error("stop");
            __syncthreads();
          } catch (const std::bad_alloc&) {
          }
        }
        __atomic_fetch_add(passed, 1, 0);
      })");
  for (const unsigned bad : {0u, 3u, 63u}) {
    for (const int round : {0, 2}) {
      int alive = 0;
      int passed = 0;
      DJ_EXPECT_ERROR(exception::LaunchError,
                      kernel->launch(dims(Dim3{1}, Dim3{64}), bad, round, &alive, &passed),
                      HasSubstr("kernel `f` threw in block (0, 0, 0): stop"));
      EXPECT_EQ(alive, 0) << "destructors must run";
      EXPECT_EQ(passed, 0);
    }
  }
  int alive = 0;
  int passed = 0;
  kernel->launch(dims(Dim3{9}, Dim3{64}), 99u, 0, &alive, &passed);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(passed, 9 * 64) << "the strands of the failed blocks must be of use again";
}

TEST_F(BlockRunnerTest, ABarrierInsideACatchBlockKeepsTheException) {
  auto kernel = make_kernel(R"(
      #include <stdexcept>
      #include <string>
      __global__ void f(int* out) {
        try {
          throw std::runtime_error(std::to_string(threadIdx.x * 3));
        } catch (...) {
          __syncthreads();
          try {
            throw;
          } catch (const std::exception& error) {
            __syncthreads();
            out[threadIdx.x] = std::stoi(error.what());
          }
        }
      })");
  std::vector<int> out(20);
  kernel->launch(dims(Dim3{2}, Dim3{20}), out.data());
  for (int t = 0; t < 20; ++t) EXPECT_EQ(out[t], 3 * t);
}

TEST_F(BlockRunnerTest, WorksWithoutExceptionsInTheKernel) {
  auto kernel = make_kernel(
      "__global__ void f(int* out) { __shared__ int x; if (threadIdx.x == 9) x = 4;\n"
      "  __syncthreads(); out[threadIdx.x] = x; }",
      {.extra_cxx_flags = {"-fno-exceptions"}});
  std::vector<int> out(10);
  kernel->launch(dims(Dim3{1}, Dim3{10}), out.data());
  EXPECT_THAT(out, Each(4));
}

// A limit on memory and a sanitizer's shadow memory do not go together.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(BlockRunnerTest, NoMemoryForStacksIsALaunchError) {
  auto kernel =
      make_kernel("__global__ void f(int* out) { __syncthreads(); out[threadIdx.x] = 1; }");
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    std::vector<int> out(1000);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::size_t bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const rlimit limit{bytes + (64 << 20), bytes + (64 << 20)};
    bool failed = false;
    if (::setrlimit(RLIMIT_AS, &limit) == 0) {
      try {
        kernel->launch(dims(Dim3{1}, Dim3{1000}, 1), out.data());
      } catch (const exception::LaunchError& error) {
        failed = std::string(error.what()).find("no memory for the stacks") != std::string::npos;
      }
    }
    // A smaller block still runs.
    kernel->launch(dims(Dim3{1}, Dim3{10}, 1), out.data());
    ::_exit(failed && out[9] == 1 && out[999] == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}
#endif

// --- Many at once ---

TEST_F(BlockRunnerTest, BlocksOfManyLaunchesDoNotMeet) {
  auto kernel = make_kernel(R"(
      __global__ void f(unsigned* out, unsigned k) {
        __shared__ unsigned values[40];
        extern __shared__ unsigned more[];
        values[threadIdx.x] = k + threadIdx.x;
        more[threadIdx.x] = k;
        __syncthreads();
        unsigned sum = 0;
        for (unsigned value : values) sum += value;
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum + more[39 - threadIdx.x];
      })");
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned k = 0; k < 6; ++k) {
      threads.emplace_back([&, k] {
        for (int round = 0; round < 5; ++round) {
          std::vector<unsigned> out(30 * 40);
          kernel->launch({.num_smem_bytes = 160,
                          .grid_dim = Dim3{30},
                          .block_dim = Dim3{40},
                          .num_threads = 3},
                         out.data(), k);
          for (const unsigned value : out) wrong += value != 40 * k + 780 + k;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(BlockRunnerTest, ANestedLaunchKeepsTheOuterSharedMemory) {
  auto kernel = make_kernel(R"(
      __global__ void f(void (*call)(void*), void* data, int* out) {
        __shared__ int values[4];
        extern __shared__ int more[];
        values[threadIdx.x] = more[threadIdx.x] = call ? 10 + threadIdx.x : -1;
        __syncthreads();
        if (call && threadIdx.x == 2) call(data);
        __syncthreads();
        out[threadIdx.x] = values[3 - threadIdx.x] + more[threadIdx.x];
      })");
  static const LaunchOptions options{
      .num_smem_bytes = 16, .grid_dim = Dim3{1}, .block_dim = Dim3{4}, .num_threads = 1};
  struct Data {
    Kernel* kernel;
    int inner[4];
  } data{kernel.get(), {}};
  void (*call)(void*) = [](void* raw) {
    auto& data = *static_cast<Data*>(raw);
    data.kernel->launch(options, nullptr, nullptr, &data.inner[0]);
  };
  std::vector<int> out(4);
  kernel->launch(options, call, static_cast<void*>(&data), out.data());
  EXPECT_THAT(out, Each(23));
  EXPECT_THAT(data.inner, Each(-2));
}

}  // namespace
}  // namespace deep_jit::host
