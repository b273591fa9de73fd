// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/toolchain.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit::host {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// PATH holds only what the test puts into bin/, and what scripts need.
class ToolchainTest : public testing::ScratchTest {
 protected:
  ToolchainTest() { set_env("PATH", bin("").string()); }

  std::filesystem::path bin(const std::string& name) const { return scratch() / "bin" / name; }
  std::filesystem::path add(const std::string& name, const std::string& version = "9.9.9") {
    return write_script("bin/" + name, "echo " + name + " " + version + "\n");
  }
  Toolchain find(const std::string& python = "") const {
    return find_toolchain(Env("TESTLIB"), Config(scratch(), "TESTLIB", "", {}, {}, python));
  }
};

TEST_F(ToolchainTest, SearchesInOrder) {
  add("c++");
  EXPECT_THAT(find().command, ElementsAre(bin("c++").string()));
  add("g++");
  EXPECT_THAT(find().command, ElementsAre(bin("g++").string()));
  add("clang++");
  EXPECT_THAT(find().command, ElementsAre(bin("clang++").string()));
  const auto by_cxx = add("by_cxx");
  set_env("CXX", by_cxx.string());
  EXPECT_THAT(find().command, ElementsAre(by_cxx.string()));
  add("by_dj");
  set_env("DJ_JIT_CXX_COMPILER", "by_dj");
  EXPECT_THAT(find().command, ElementsAre(bin("by_dj").string()));
  set_env("TESTLIB_JIT_CXX_COMPILER", bin("g++").string());
  const Toolchain found = find();
  EXPECT_THAT(found.command, ElementsAre(bin("g++").string()));
  EXPECT_EQ(found.identity.version, "g++ 9.9.9");
  EXPECT_EQ(found.identity.content, hash_bytes(read(bin("g++"))));
  set_env("TESTLIB_JIT_CXX_COMPILER", "");
  EXPECT_THAT(find().command, ElementsAre(by_cxx.string())) << "an empty variable is as unset";
}

TEST_F(ToolchainTest, TakesArgumentsLaunchersAndBlanksInPaths) {
  add("g++");
  write_script("bin/ccache", "exec \"$@\"\n");
  set_env("CXX", "  g++ -m64\t-DX ");
  EXPECT_THAT(find().command, ElementsAre(bin("g++").string(), "-m64", "-DX"));
  EXPECT_THAT(find().arguments(), ElementsAre("-m64", "-DX"));

  set_env("CXX", "ccache g++ -m64");
  const Toolchain launched = find();
  EXPECT_THAT(launched.command, ElementsAre(bin("ccache").string(), bin("g++").string(), "-m64"));
  EXPECT_THAT(launched.arguments(), ElementsAre("-m64"));
  EXPECT_EQ(launched.identity.content, hash_bytes(read(bin("g++"))));

  const auto blank = write_script("my compilers/g++", "echo g++ 1.2\n");
  set_env("CXX", blank.string());
  EXPECT_THAT(find().command, ElementsAre(blank.string()));
}

TEST_F(ToolchainTest, AnOrderThatCannotBeFollowedIsAnError) {
  add("g++");
  set_env("TESTLIB_JIT_CXX_COMPILER", "/no/such/compiler -x");
  DJ_EXPECT_ERROR(exception::Exception, find(),
                  AllOf(HasSubstr("JIT_CXX_COMPILER"), HasSubstr("/no/such/compiler -x"),
                        HasSubstr("not an executable file"), Not(HasSubstr("PATH:"))));
  write_script("bin/broken", "echo licence expired; exit 9\n");
  set_env("TESTLIB_JIT_CXX_COMPILER", "broken");
  DJ_EXPECT_ERROR(exception::Exception, find(),
                  AllOf(HasSubstr("exit code 9"), HasSubstr("licence expired")));
  set_env("TESTLIB_JIT_CXX_COMPILER", " ");
  DJ_EXPECT_ERROR(exception::Exception, find(), HasSubstr("holds only blanks"));
}

TEST_F(ToolchainTest, PassesOverWhatDoesNotWorkAndListsIt) {
  write_script("bin/clang++", "exit 1\n");
  add("g++");
  set_env("CXX", "gone++");
  EXPECT_THAT(find().command, ElementsAre(bin("g++").string()));
  std::filesystem::remove(bin("g++"));
  DJ_EXPECT_ERROR(
      exception::Exception, find(),
      AllOf(HasSubstr("CXX: `gone++`"), HasSubstr("clang++ --version` failed with exit code 1"),
            HasSubstr("`g++` is not an executable file on PATH"), HasSubstr("`c++`"),
            HasSubstr("ziglang wheel of `python3`"), HasSubstr("ziglang wheel of `python`")));
}

TEST_F(ToolchainTest, FallsBackToTheZiglangWheel) {
  write_script("wheel/ziglang/zig", "echo clang version 22.1.8 $1\n");
  write_script("bin/python3", "echo no; exit 1\n");
  write_script("bin/python",
               "echo a warning\necho '" + (scratch() / "wheel/ziglang").string() + "'\n");
  const Toolchain found = find();
  ASSERT_EQ(found.command.size(), 5u);
  EXPECT_EQ(found.command[0], (scratch() / "wheel/ziglang/zig").string());
  EXPECT_EQ(found.command[1], "c++");
  EXPECT_EQ(found.command[2], "-target");
  EXPECT_THAT(found.command[3], HasSubstr("-linux-gnu.2.28"));
  EXPECT_EQ(found.identity.version, "clang version 22.1.8 c++");

  DJ_EXPECT_ERROR(exception::Exception, find("/my/python"),
                  AllOf(HasSubstr("ziglang wheel of `/my/python`"), Not(HasSubstr("`python3`"))));
  EXPECT_EQ(find(bin("python").string()).command, found.command);
}

TEST_F(ToolchainTest, DescribesItself) {
  add("g++");
  const auto json = find().to_json();
  EXPECT_EQ(json["command"].dump(), "[\"" + bin("g++").string() + "\"]");
  EXPECT_EQ(json["version"], "g++ 9.9.9");
  EXPECT_EQ(json["content"], hash_bytes(read(bin("g++"))).hex());
}

}  // namespace
}  // namespace deep_jit::host
