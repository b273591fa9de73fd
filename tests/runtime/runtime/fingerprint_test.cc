// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/fingerprint.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace deep_jit {
namespace {

TEST(FingerprintBytes, KeepsEveryByteInAndBeyondTheObject) {
  constexpr std::size_t kSize = FingerprintBytes::kInlineSize;
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, kSize - 1, kSize, kSize + 1}) {
    for (const std::size_t second : {std::size_t{0}, std::size_t{1}, kSize}) {
      FingerprintBytes bytes;
      std::string wanted;
      for (const std::string& part :
           {std::string(first, 'a'), std::string("\0b", 2), std::string(second, 'c')}) {
        bytes.append(part);
        wanted += part;
      }
      EXPECT_EQ(bytes.view(), wanted) << first << ", " << second;
    }
  }
}

TEST(FingerprintBytes, TakesValuesByTheirBytes) {
  FingerprintBytes bytes;
  bytes.append_value(std::uint32_t{0x61616161});
  bytes.append_value(true);
  EXPECT_EQ(bytes.view(), std::string("aaaa\1"));
}

}  // namespace
}  // namespace deep_jit
