// SPDX-License-Identifier: MIT
#include "deep_jit/key/depfile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseDepfile, ReadsARuleOverSeveralLines) {
  EXPECT_THAT(parse_depfile("kernel.so: kernel.cc /usr/include/math.h \\\n  /a/b.hpp \\\n\t/c\n"),
              ElementsAre("kernel.cc", "/usr/include/math.h", "/a/b.hpp", "/c"));
  EXPECT_THAT(parse_depfile("k.o: \\\r\n a\\\r\n b\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(parse_depfile("k.o:a b"), ElementsAre("a", "b"));
}

TEST(ParseDepfile, UndoesTheEscapes) {
  EXPECT_THAT(parse_depfile("k: a\\ b.h $$HOME/x \\#1 c\\d e\\\\f"),
              ElementsAre("a b.h", "$HOME/x", "#1", "c\\d", "e\\\\f"));
  // A backslash before a blank is written twice, the blank behind it once escaped.
  EXPECT_THAT(parse_depfile("k: a\\\\\\ b c\\\\ d"), ElementsAre("a\\ b", "c\\", "d"));
  EXPECT_THAT(parse_depfile("k: /d/\xE7\xBC\x93/\xC3\xA9:x"),
              ElementsAre("/d/\xE7\xBC\x93/\xC3\xA9:x"));
}

TEST(ParseDepfile, StopsBehindTheFirstRule) {
  EXPECT_THAT(parse_depfile("k: a b\nb:\nk: c\n"), ElementsAre("a", "b"));
  EXPECT_THAT(parse_depfile(""), IsEmpty());
  EXPECT_THAT(parse_depfile("no rule"), IsEmpty());
  EXPECT_THAT(parse_depfile("k:"), IsEmpty());
  EXPECT_THAT(parse_depfile("k: \\"), ElementsAre("\\"));
}

}  // namespace
}  // namespace deep_jit
