// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/nvrtc_headers.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, std::string> headers() {
  std::map<std::string, std::string> headers;
  for (const NvrtcHeader& header : nvrtc_headers()) headers[header.name] = header.text;
  return headers;
}

TEST(NvrtcHeaders, GoToLibcuxxAndOpenItToStd) {
  EXPECT_EQ(headers().size(), nvrtc_headers().size()) << "no name twice";
  for (const char* name : {"type_traits", "limits", "tuple", "cmath"}) {
    EXPECT_EQ(headers()[name], "#pragma once\n#include <cuda/std/" + std::string(name) + ">\n");
  }
  EXPECT_THAT(headers()["string.h"], HasSubstr("<cuda/std/cstring>"));
  EXPECT_FALSE(headers().contains("vector"));
  EXPECT_THAT(kNvrtcPrelude, HasSubstr("namespace std { using namespace ::cuda::std; }"));
}

// The own types are those that this compiler has: NVRTC's are the same on Linux.
TEST(NvrtcHeaders, IntegersNeedNoLibcuxx) {
  EXPECT_EQ(headers()["stdint.h"], headers()["cstdint"]);
  EXPECT_THAT(headers()["cstdint"],
              AllOf(HasSubstr("__has_include(<cuda/std/cstdint>)"), HasSubstr("#else"),
                    HasSubstr("typedef unsigned long uint64_t;"), HasSubstr("using ::uint64_t;")));
  static_assert(sizeof(unsigned long) == 8 && sizeof(int) == 4 && sizeof(short) == 2);
  EXPECT_THAT(headers()["math.h"], Not(HasSubstr("include")));
}

}  // namespace
}  // namespace deep_jit::cuda
