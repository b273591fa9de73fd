// SPDX-License-Identifier: MIT
#include "deep_jit/key/identity_memo.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::Optional;
using ::testing::SizeIs;

class IdentityMemoTest : public testing::ScratchTest {
 protected:
  IdentityMemoTest() { make_dirs(cache_root()); }

  IdentityMemo memo() const { return IdentityMemo(cache_root()); }
  std::filesystem::path folder() const {
    return cache_root() / "identities" / std::to_string(::geteuid());
  }
  std::filesystem::path file() const { return folder() / list(folder()).at(0); }
  void store(const std::string& answer = "the answer") const {
    const IdentityMemo own = memo();
    own.remember("a question", "a state", answer);
    own.flush();
  }
  auto find() const { return memo().find("a question", "a state"); }
};

TEST_F(IdentityMemoTest, AnswersInAnotherProcess) {
  EXPECT_EQ(find(), std::nullopt);
  const std::string odd("two\nlines and \0", 15);
  for (const std::string& answer : {std::string("the answer"), odd, std::string()}) {
    store(answer);
    EXPECT_THAT(find(), Optional(answer));
    EXPECT_THAT(list(folder()), SizeIs(1)) << "the newest answer, and nothing else";
  }
  EXPECT_EQ(memo().find("a question", "another state"), std::nullopt);
  EXPECT_EQ(memo().find("another question", "a state"), std::nullopt);
}

TEST_F(IdentityMemoTest, MakesNoRootAndWaitsForOne) {
  std::filesystem::remove(cache_root());
  const IdentityMemo own = memo();
  own.remember("a question", "a state", "the answer");
  own.flush();
  EXPECT_FALSE(std::filesystem::exists(cache_root()));
  make_dirs(cache_root());
  own.flush();
  EXPECT_THAT(find(), Optional(std::string("the answer")));
}

TEST_F(IdentityMemoTest, DamageIsNoAnswer) {
  store();
  const std::string whole = read(file());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    write_file_sync(file(), damaged);
    EXPECT_EQ(find(), std::nullopt) << i;
    write_file_sync(file(), whole.substr(0, i));
    EXPECT_EQ(find(), std::nullopt) << i;
  }
  write_file_sync(file(), whole + "\n");
  EXPECT_EQ(find(), std::nullopt);
  store();
  EXPECT_TRUE(find().has_value());
}

TEST_F(IdentityMemoTest, WhatOthersCouldHaveWrittenIsNotTrusted) {
  store();
  for (const auto& path : {cache_root(), folder(), file()}) {
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    ASSERT_EQ(::chmod(path.c_str(), status.st_mode | S_IWOTH), 0);
    EXPECT_EQ(find(), std::nullopt) << path;
    ASSERT_EQ(::chmod(path.c_str(), status.st_mode), 0);
    EXPECT_TRUE(find().has_value()) << path;
  }
  const auto original = file();
  std::filesystem::rename(original, scratch() / "moved");
  std::filesystem::create_symlink(scratch() / "moved", original);
  EXPECT_EQ(find(), std::nullopt) << "a link";
}

TEST_F(IdentityMemoTest, AWorldWritableRootGetsNone) {
  std::filesystem::permissions(cache_root(), std::filesystem::perms::all);
  store();
  EXPECT_THAT(list(cache_root()), SizeIs(0));
}

TEST_F(IdentityMemoTest, ScopesNest) {
  EXPECT_EQ(IdentityMemoScope::current(), nullptr);
  const IdentityMemo outer = memo();
  const IdentityMemoScope outer_scope(outer);
  {
    const IdentityMemo inner = memo();
    const IdentityMemoScope inner_scope(inner);
    EXPECT_EQ(IdentityMemoScope::current(), &inner);
  }
  EXPECT_EQ(IdentityMemoScope::current(), &outer);
}

}  // namespace
}  // namespace deep_jit
