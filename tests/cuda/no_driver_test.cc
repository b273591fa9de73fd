// SPDX-License-Identifier: MIT
//
// On a machine without a driver.
#include <dlfcn.h>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/cuda/backend.hpp"
#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class NoDriverTest : public testing::CudaTest {
 protected:
  NoDriverTest() {
    unset_env("CXX");
    use_toolkit();
  }

  void SetUp() override {
    if (void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY)) {
      ::dlclose(driver);
      GTEST_SKIP() << "this machine has a driver";
    }
  }
};

TEST_F(NoDriverTest, ErrorsSayWhatToDo) {
  DJ_EXPECT_ERROR(exception::Exception, driver::api(), HasSubstr("there is no NVIDIA driver"));
  DJ_EXPECT_ERROR(exception::Exception, Device().get_num_sms(), HasSubstr("no NVIDIA driver"));
  EXPECT_EQ(driver::try_loaded_api(), nullptr);
  EXPECT_THAT(driver::describe(CUDA_ERROR_INVALID_VALUE), HasSubstr("(1)"));
}

TEST_F(NoDriverTest, CompilesForAGivenArchitectureOnly) {
  auto jit = create_lazy_jit<CUDA>(config());
  const std::string source = "__global__ void scale() {}";
  DJ_EXPECT_ERROR(exception::Exception, jit->compile_without_load("scale", source),
                  HasSubstr("CUDA architecture must be specified"));
  EXPECT_THAT(published(), SizeIs(0));
  const auto entry = jit->compile_without_load("scale", source, {.arch = "90a"});
  EXPECT_TRUE(std::filesystem::exists(entry / "kernel.cubin"));
  EXPECT_EQ(compilations(), 1u);
  DJ_EXPECT_ERROR(exception::Exception, jit->compile("scale", source, {.arch = "90a"}),
                  HasSubstr("there is no NVIDIA driver"));
  EXPECT_EQ(compilations(), 1u) << "compiling again would not help";
}

TEST_F(NoDriverTest, ArchitecturesDoNotShareEntries) {
  auto jit = create_lazy_jit<CUDA>(config());
  for (const char* arch : {"90", "90a", "100f", "90a"}) {
    jit->compile_without_load("scale", "__global__ void scale() {}", {.arch = arch});
  }
  EXPECT_THAT(published(), SizeIs(3));
  EXPECT_EQ(compilations(), 3u);
}

}  // namespace
}  // namespace deep_jit::cuda
