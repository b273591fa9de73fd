// SPDX-License-Identifier: MIT
#include "deep_jit/base/find_executable.hpp"

#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using FindExecutableTest = testing::ScratchTest;

TEST_F(FindExecutableTest, SearchesPathInOrder) {
  const auto second = write_script("b b/tool", "");
  write("a/tool", "not executable");
  std::filesystem::create_directories(scratch() / "c/tool");
  set_env("PATH", (scratch() / "a").string() + "::" + (scratch() / "c").string() + ":" +
                      (scratch() / "none/../b b").string());
  EXPECT_EQ(find_executable("tool"), second);
  const auto first = write_script("a/tool", "");
  EXPECT_EQ(find_executable("tool"), first);
  EXPECT_EQ(find_executable("other"), std::nullopt);
  EXPECT_EQ(find_executable(""), std::nullopt);
}

TEST_F(FindExecutableTest, APathIsNotSearchedFor) {
  const auto tool = write_script("bin/tool", "");
  set_env("PATH", (scratch() / "bin").string());
  EXPECT_EQ(find_executable(tool.string()), tool);
  EXPECT_EQ(find_executable((scratch() / "x/../bin/./tool").string()), tool);
  EXPECT_EQ(find_executable("./tool"), std::nullopt);
  unset_env("PATH");
  EXPECT_EQ(find_executable("tool"), std::nullopt);
}

}  // namespace
}  // namespace deep_jit
