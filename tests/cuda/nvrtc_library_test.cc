// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/nvrtc_library.hpp"

#include <dlfcn.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NvrtcLibraryTest : public testing::CudaTest {};

TEST_F(NvrtcLibraryTest, OpensOnce) {
  nvrtc().reset();
  const NvrtcLibrary& library = NvrtcLibrary::open(nvrtc_file());
  EXPECT_EQ(library.version(), "13.0");
  EXPECT_THAT(library.architectures(), ElementsAre(80, 90, 100));
  EXPECT_EQ(library.describe(6), "NVRTC_ERROR_COMPILATION (6)");
  EXPECT_EQ(library.file(), nvrtc_file());
  EXPECT_EQ(&NvrtcLibrary::open(nvrtc_file()), &library);
}

// The builtins beside the library, and not those that the loader would find, are there for NVRTC.
TEST_F(NvrtcLibraryTest, OpensItsBuiltins) {
  make_dirs(scratch() / "lib");
  std::filesystem::copy_file(nvrtc_file(), scratch() / "lib/libnvrtc.so.13");
  const auto builtins = scratch() / "lib/libnvrtc-builtins.so.13.0";
  std::filesystem::copy_file(nvrtc_file(), builtins);
  EXPECT_EQ(::dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  NvrtcLibrary::open(scratch() / "lib/libnvrtc.so.13");
  EXPECT_NE(::dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST_F(NvrtcLibraryTest, WhatIsNoNvrtcIsAnError) {
  const auto file = scratch() / "libnvrtc.so.13";
  DJ_EXPECT_ERROR(exception::Exception, NvrtcLibrary::open(file),
                  AllOf(HasSubstr("cannot open NVRTC"), HasSubstr(file.string())));
  std::filesystem::copy_file(std::filesystem::absolute(get_env<std::string>("FAKE_TORCH")), file);
  DJ_EXPECT_ERROR(exception::Exception, NvrtcLibrary::open(file),
                  HasSubstr("is no NVRTC of CUDA 12 or newer: no nvrtcVersion"));
}

}  // namespace
}  // namespace deep_jit::cuda
