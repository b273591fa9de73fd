// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/torch_stream.hpp"

#include <filesystem>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/cuda/kernel.hpp"
#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::HasSubstr;
using testing::to_stream;

class TorchStreamTest : public testing::CudaTest {};

// One test: what a process has loaded stays loaded.
TEST_F(TorchStreamTest, IsAskedFromTheMomentThatTorchIsThere) {
  EXPECT_EQ(try_torch_stream(0), std::nullopt);
  write("k/kernel.cubin", "a cubin");
  driver().kernels = {{"k", {}}};
  const auto kernel = Kernel::load(scratch() / "k", env());
  LaunchOptions options = LaunchOptions::default_options(env());
  options.grid_dim = options.block_dim = dim3(1);
  const auto launch_stream = [&](const LaunchOptions& overrides = {}) {
    kernel->launch(options.override_with(overrides));
    return driver().launches.back().config.hStream;
  };
  EXPECT_EQ(launch_stream(), nullptr) << "the default stream";

  const auto torch =
      DynamicLibrary::open(std::filesystem::absolute(get_env<std::string>("FAKE_TORCH")));
  auto* const set_stream = torch.symbol<void(int, void*)>("fake_torch_set_stream");
  set_stream(0, to_stream(0x70));
  set_stream(1, to_stream(0x71));
  EXPECT_EQ(launch_stream(), to_stream(0x70));
  set_stream(0, to_stream(0x72));
  EXPECT_EQ(launch_stream(), to_stream(0x72)) << "at each launch anew";
  set_device(1);
  EXPECT_EQ(launch_stream(), to_stream(0x71)) << "of the current device";
  set_device(0);
  EXPECT_EQ(launch_stream({.stream = nullptr}), nullptr) << "explicit null stays null";
  EXPECT_EQ(launch_stream({.stream = to_stream(0x99)}), to_stream(0x99));
  std::thread([&] {
    set_device(0);
    EXPECT_EQ(launch_stream(), nullptr) << "of the calling thread";
  }).join();

  // Torch captures on streams of its own, which only torch knows.
  driver().captures[to_stream(0x72)] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  DJ_EXPECT_ERROR(exception::LaunchError, Kernel::load(scratch() / "k", env()),
                  HasSubstr("cannot load kernel `k`"));
  EXPECT_EQ(launch_stream(), to_stream(0x72)) << "a loaded kernel is captured";
  driver().captures.clear();
  EXPECT_NO_THROW(Kernel::load(scratch() / "k", env()));

  DJ_EXPECT_ERROR(exception::LaunchError, try_torch_stream(2), HasSubstr("device 2 (error 1)"));
}

}  // namespace
}  // namespace deep_jit::cuda
