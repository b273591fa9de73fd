// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/nvrtc_flags.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NvrtcFlags, TheDefaultFlagsOfARequest) {
  const NvrtcFlags flags = translate_flags(
      {"--gpu-architecture=sm_90a", "-O3", "--compiler-options=-O3", "--use_fast_math",
       "--ptxas-options=--verbose", "--ptxas-options=--register-usage-level=10",
       "--generate-line-info", "-std=c++20", "--compiler-options=-fPIC",
       "--compiler-options=-fconcepts", "--expt-relaxed-constexpr", "--expt-extended-lambda"});
  EXPECT_EQ(flags.refused, "");
  EXPECT_THAT(flags.options,
              ElementsAre("--gpu-architecture=sm_90a", "--use_fast_math",
                          "--ptxas-options=--verbose", "--ptxas-options=--register-usage-level=10",
                          "--generate-line-info", "--std=c++20", "-default-device"));
}

TEST(NvrtcFlags, EachSpelling) {
  const NvrtcFlags flags = translate_flags({"-DA",
                                            "-DB=1",
                                            "-D",
                                            "C=2",
                                            "--define-macro=D",
                                            "-U",
                                            "E",
                                            "-I/a",
                                            "-I",
                                            "/b",
                                            "--include-path",
                                            "/c d",
                                            "-isystem",
                                            "/last",
                                            "-include",
                                            "pre.h",
                                            "-Xptxas",
                                            "-v",
                                            "-arch=sm_90",
                                            "-lineinfo",
                                            "-maxrregcount=32",
                                            "-maxrregcount",
                                            "64",
                                            "-Xcompiler",
                                            "-Wall,-O2",
                                            "-G",
                                            "-default-device",
                                            "-diag-suppress=177"});
  EXPECT_EQ(flags.refused, "");
  EXPECT_THAT(flags.options,
              ElementsAre("--define-macro=A", "--define-macro=B=1", "--define-macro=C=2",
                          "--define-macro=D", "--undefine-macro=E", "--include-path=/a",
                          "--include-path=/b", "--include-path=/c d", "--pre-include=pre.h",
                          "--ptxas-options=-v", "--gpu-architecture=sm_90", "--generate-line-info",
                          "--maxrregcount=32", "--maxrregcount=64", "--device-debug",
                          "--diag-suppress=177", "--include-path=/last", "-default-device"));
}

TEST(NvrtcFlags, RefusesWhatItWouldLose) {
  for (const std::vector<std::string>& given : {std::vector<std::string>{"--keep"},
                                                {"-rdc=true"},
                                                {"-ccbin", "g++"},
                                                {"-Ofast-compile=max"},
                                                {"-Xcompiler", "-DX"},
                                                {"-Xcompiler=-Wall,-DX"},
                                                {"-Xcompiler=-Wp,-DX"},
                                                {"--compiler-options=-include x.h"},
                                                {"kernel2.cu"},
                                                {"-std17"}}) {
    EXPECT_THAT(translate_flags(given).refused,
                AllOf(HasSubstr("NVRTC cannot take the flag `"), HasSubstr(given.front())))
        << given.front();
  }
  EXPECT_THAT(translate_flags({"-Iinclude"}).refused, HasSubstr("relative"));
  EXPECT_THAT(translate_flags({"-D"}).refused, HasSubstr("it has no value"));
}

}  // namespace
}  // namespace deep_jit::cuda
