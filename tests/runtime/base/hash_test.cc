// SPDX-License-Identifier: MIT
#include "deep_jit/base/hash.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace deep_jit {
namespace {

std::string random_bytes(std::mt19937_64& random, std::size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  return bytes;
}

// The published test values of XXH3-128 (seed 0): what `xxhsum -H2` prints.
TEST(HashTest, GoldenValues) {
  EXPECT_EQ(hash_bytes("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_bytes("abc").hex(), "06b05ab6733a618578af5f94892f3950");
}

// An update of "abc" is the plain hash of its frame and its bytes: the format of the keys.
TEST(HashTest, FrameIsEightLittleEndianBytes) {
  const std::string framed = std::string("\x03\0\0\0\0\0\0\0", 8) + "abc";
  EXPECT_EQ(Hasher().update("abc").digest(), hash_bytes(framed));
  const std::string long_value(0x010203, 'x');
  const std::string long_frame = std::string("\x03\x02\x01\0\0\0\0\0", 8);
  EXPECT_EQ(Hasher().update(long_value).digest(), hash_bytes(long_frame + long_value));
  EXPECT_EQ(Hasher().digest(), hash_bytes(""));
}

TEST(HashTest, FramesKeepValuesApart) {
  const auto digest = [](std::vector<std::string_view> values) {
    Hasher hasher;
    for (const std::string_view value : values) {
      hasher.update(value);
    }
    return hasher.digest();
  };
  std::set<Digest> digests = {
      digest({"ab", "c"}), digest({"a", "bc"}),     digest({"abc"}), digest({"", "abc"}),
      digest({"abc", ""}), digest({"a", "b", "c"}), digest({}),      digest({""}),
      digest({"", ""}),    digest({{"a\0b", 3}}),   digest({"a"}),   digest({{"a\0c", 3}})};
  EXPECT_EQ(digests.size(), 12U);
}

TEST(HashTest, AppendIsUnframedAndDependsOnBytesOnly) {
  EXPECT_EQ(Hasher().append("ab").append("").append("c").digest(), hash_bytes("abc"));
  std::mt19937_64 random(1);
  const std::string bytes = random_bytes(random, 100'000);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{4097}}) {
    Hasher hasher;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      hasher.append(std::string_view(bytes).substr(i, piece));
    }
    EXPECT_EQ(hasher.digest(), hash_bytes(bytes)) << piece;
  }
}

TEST(HashTest, CopiesGoOnIndependently) {
  Hasher first;
  first.update("start");
  Hasher second = first;
  second.update("more");
  EXPECT_EQ(first.digest(), Hasher().update("start").digest());
  EXPECT_EQ(second.digest(), Hasher().update("start").update("more").digest());
  first = second;
  EXPECT_EQ(first.update("x").digest(), second.update("x").digest());
}

TEST(HashTest, HexRoundTrip) {
  const Digest digest{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(digest.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
  EXPECT_EQ(Digest{}.hex(), std::string(32, '0'));
  for (const char* bad :
       {"", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
        "0123456789ABCDEFFEDCBA9876543210", "0123456789abcdeffedcba987654321g",
        "0x23456789abcdeffedcba9876543210", " 123456789abcdeffedcba9876543210"}) {
    EXPECT_EQ(Digest::from_hex(bad), std::nullopt) << bad;
  }
}

TEST(HashTest, OrderIsThatOfTheText) {
  const Digest small{.high = 1, .low = UINT64_MAX};
  const Digest large{.high = 2, .low = 0};
  EXPECT_LT(small, large);
  EXPECT_LT(small.hex(), large.hex());
  EXPECT_NE(std::hash<Digest>()(small), std::hash<Digest>()(large));
}

TEST(HashTest, SingleBytesDiffer) {
  std::set<Digest> digests;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    digests.insert(Hasher().update(std::string_view(&value, 1)).digest());
  }
  EXPECT_EQ(digests.size(), 256U);
}

TEST(HashTest, MillionRandomInputsWithoutCollision) {
  std::mt19937_64 random(2);
  std::unordered_set<std::uint64_t> highs;
  std::unordered_set<std::uint64_t> lows;
  std::array<std::uint64_t, 4> input{};
  constexpr std::size_t kInputs = 1'000'000;
  for (std::size_t i = 0; i < kInputs; ++i) {
    for (std::uint64_t& word : input) {
      word = random();
    }
    const Digest digest =
        Hasher().update({reinterpret_cast<const char*>(input.data()), sizeof(input)}).digest();
    highs.insert(digest.high);
    lows.insert(digest.low);
  }
  EXPECT_EQ(highs.size(), kInputs);
  EXPECT_EQ(lows.size(), kInputs);
}

TEST(HashTest, OneBitChangesHalfOfTheDigest) {
  std::mt19937_64 random(3);
  constexpr int kInputs = 10'000;
  std::array<int, 128> ones{};
  std::int64_t flipped = 0;
  std::int64_t between_halves = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string input = random_bytes(random, 32);
    const Digest before = Hasher().update(input).digest();
    input[random() % 32] ^= static_cast<char>(1 << (random() % 8));
    const Digest after = Hasher().update(input).digest();
    flipped += std::popcount(before.high ^ after.high) + std::popcount(before.low ^ after.low);
    between_halves += std::popcount(before.high ^ before.low);
    for (int bit = 0; bit < 64; ++bit) {
      ones[bit] += static_cast<int>((before.low >> bit) & 1);
      ones[64 + bit] += static_cast<int>((before.high >> bit) & 1);
    }
  }
  EXPECT_NEAR(static_cast<double>(flipped) / kInputs, 64.0, 1.0);
  EXPECT_NEAR(static_cast<double>(between_halves) / kInputs, 32.0, 1.0);
  for (const int count : ones) {
    EXPECT_NEAR(static_cast<double>(count) / kInputs, 0.5, 0.03);
  }
}

}  // namespace
}  // namespace deep_jit
