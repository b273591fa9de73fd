// SPDX-License-Identifier: MIT
#include "deep_jit/key/key.hpp"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit {
namespace {

TEST(Key, FramesNamesAndValues) {
  const Digest base = Key().add("flag", "ab").add("flag", "c").digest();
  EXPECT_EQ(base, Key().add("flag", "ab").add("flag", "c").digest());
  EXPECT_NE(base, Key().add("flag", "a").add("flag", "bc").digest());
  EXPECT_NE(base, Key().add("flag", "c").add("flag", "ab").digest());
  EXPECT_NE(base, Key().add("flaga", "b").add("flag", "c").digest());
  EXPECT_NE(base, Key().add("flag", "ab").add("flag", "c").add("flag", "").digest());
  EXPECT_NE(Key().add("x", std::string_view("\0a", 2)).digest(),
            Key().add("x", std::string_view("\0b", 2)).digest());
  EXPECT_NE(Key().digest(), Key().add("", "").digest());
}

// A change here makes every cache in the world cold: raise kKeyFormatVersion with it.
TEST(Key, DigestOfFormatTwoIsFixed) {
  ASSERT_EQ(kKeyFormatVersion, 2);
  const Key key = Key().add("key format", "1").add("backend", "host").add("source", "int x;");
  EXPECT_EQ(key.digest().hex(), "fab3f2c7c61d26f54b5123dae691b407");
}

TEST(Key, ExplainsEachPartOnOneLine) {
  const std::string source(1000, 'x');
  Key key;
  key.add("compiler version", "g++ 16\nTarget: x").add("flag", "-O3").add("source", source);
  EXPECT_EQ(key.explain(),
            "compiler version: g++ 16\\nTarget: x\nflag: -O3\nsource: <1000 bytes, xxh3 " +
                hash_bytes(source).hex() + ">\n");
  ASSERT_EQ(key.parts().size(), 3u);
  EXPECT_EQ(key.parts()[2].value, source);
  EXPECT_EQ((KeyPart{"v", std::string(200, 'y')}.summary()), std::string(200, 'y'));
}

}  // namespace
}  // namespace deep_jit
