// SPDX-License-Identifier: MIT
//
// Threads, contexts, processes and the end of all of them, on a real GPU.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/cuda/gpu/gpu_test.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxDestroy)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDevicePrimaryCtxReset)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemHostAlloc)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemFreeHost)

class ContextTest : public GpuTest {};

// Launches kScale over 256 floats, `rounds` times; what went wrong, or nothing.
std::string launch_small(const Buffer<float>& out, const Buffer<float>& in, float factor,
                         int rounds = 1) {
  try {
    const auto kernel = jit->compile("scale", kScale);
    for (int i = 0; i < rounds; ++i) {
      jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
                  static_cast<const float*>(in.get()), factor, 256);
    }
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST_F(ContextTest, AThreadWhoseFirstCallIsALaunch) {
  jit->compile("scale", kScale);
  const Buffer<float> in(std::vector<float>(256, 3.0f));
  const Buffer<float> out(256);
  std::string problem;
  std::thread([&] { problem = launch_small(out, in, 2.0f); }).join();
  EXPECT_EQ(problem, "");
  EXPECT_EQ(out.read(), std::vector<float>(256, 6.0f));
}

TEST_F(ContextTest, EightThreadsLaunchOneKernel) {
  constexpr std::size_t kThreads = 8;
  const Buffer<float> in(std::vector<float>(256, 1.0f));
  std::vector<std::unique_ptr<Buffer<float>>> outs;
  for (std::size_t i = 0; i < kThreads; ++i) outs.push_back(std::make_unique<Buffer<float>>(256));
  std::vector<std::string> problems(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back(
          [&, i] { problems[i] = launch_small(*outs[i], in, static_cast<float>(i), 200); });
    }
  }
  EXPECT_EQ(problems, std::vector<std::string>(kThreads));
  for (std::size_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(outs[i]->read(), std::vector<float>(256, static_cast<float>(i)));
  }
}

TEST_F(ContextTest, AnotherContextOfTheDevice) {
  const auto kernel = jit->compile("scale", kScale);
  launch_scale(kernel);
  CUcontext first = nullptr;
  const auto& api = cuda::driver::api();
  DJ_CUDA_DRIVER_CHECK(api.cuCtxGetCurrent(&first));
  // By its old name: the signature of the newest one differs from toolkit to toolkit.
  auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
      ::dlsym(get_cuda_handle(), "cuCtxCreate_v2"));
  CUcontext second = nullptr;
  DJ_CUDA_DRIVER_CHECK(create(&second, 0u, jit->device.get_index()));
  launch_scale(kernel);
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxDestroy(second));
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSetCurrent(first));
  launch_scale(kernel);
}

// Under lazy loading a kernel would be loaded by its first launch, and that waits for the device.
TEST_F(ContextTest, LoadsWhileAKernelRuns) {
  const auto spin = jit->compile("spin", R"(
      __global__ void spin(volatile int* flag) { while (*flag == 0) {} })");
  void* memory = nullptr;
  DJ_CUDA_DRIVER_CHECK(
      lazy_cuMemHostAlloc(&memory, std::size_t{4096}, unsigned{CU_MEMHOSTALLOC_DEVICEMAP}));
  auto* const flag = static_cast<std::atomic<int>*>(memory);
  flag->store(0);
  const Buffer<float> in(std::vector<float>(256, 3.0f));
  const Buffer<float> out(256);
  CUstream busy = nullptr;
  CUstream free = nullptr;
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamCreate(&busy, unsigned{CU_STREAM_NON_BLOCKING}));
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamCreate(&free, unsigned{CU_STREAM_NON_BLOCKING}));
  // Loaded before; what counts is that a launch needs nothing more than the queue.
  auto runtime = std::make_shared<Runtime<CUDA>>(config());
  const auto kernel = runtime->compile("scale", kScale);
  jit->launch(spin, {.stream = busy, .grid_dim = Dim3(1), .block_dim = Dim3(1)}, flag);
  runtime->launch(kernel, {.stream = free, .grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
                  static_cast<const float*>(in.get()), 2.0f, 256);
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamSynchronize(free));
  flag->store(1);
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamSynchronize(busy));
  EXPECT_EQ(out.read(), std::vector<float>(256, 6.0f));
  lazy_cuStreamDestroy(busy);
  lazy_cuStreamDestroy(free);
  lazy_cuMemFreeHost(memory);
}

TEST_F(ContextTest, AForkedChildIsToldWhatToDo) {
  const auto kernel = jit->compile("scale", kScale);
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_clear = false;
    try {
      float* const x = nullptr;
      jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, x,
                  static_cast<const float*>(x), 1.0f, 0);
    } catch (const std::exception& error) {
      is_clear = std::string_view(error.what()).find("forked") != std::string_view::npos;
    }
    ::_exit(is_clear ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  launch_scale(kernel);
}

TEST_F(ContextTest, AnUnloadedKernelSaysSo) {
  const auto other = std::make_shared<Runtime<CUDA>>(config());
  const auto kernel = other->compile("empty", kEmpty);
  const LaunchOptions one{.grid_dim = Dim3(1), .block_dim = Dim3(1)};
  other->launch(kernel, one);
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
  kernel->unload();
  kernel->unload();
  EXPECT_THAT([&] { other->launch(kernel, one); },
              ThrowsMessage<exception::LaunchError>(HasSubstr("kernel must be loaded")));
  const auto third = std::make_shared<Runtime<CUDA>>(config());
  third->launch(third->compile("empty", kEmpty), one);
}

// --- The end of a process ---

// A process of its own that has a kernel, ends in some way, and must do so with 0 and in silence.
class ExitTest : public GpuTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    GpuTest::SetUp();
  }
};

void launch_in_child() {
  launch_scale(jit->compile("scale", kScale));
  if (::testing::Test::HasFailure()) std::_Exit(3);
}

TEST_F(ExitTest, WithAKernelInAGlobalRuntime) {
  EXPECT_EXIT(
      {
        launch_in_child();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(ExitTest, FromAnotherThread) {
  EXPECT_EXIT(
      {
        launch_in_child();
        std::thread([] { std::exit(0); }).join();
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(ExitTest, AfterTheContextIsGone) {
  EXPECT_EXIT(
      {
        launch_in_child();
        lazy_cuDevicePrimaryCtxReset(jit->device.get_index());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace deep_jit::testing
