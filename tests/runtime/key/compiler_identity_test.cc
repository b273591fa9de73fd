// SPDX-License-Identifier: MIT
#include "deep_jit/key/compiler_identity.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using CompilerIdentityTest = deep_jit::testing::ScratchTest;

TEST(ParseCompilerVersion, KeepsTheVersionLineOfKnownCompilers) {
  EXPECT_EQ(parse_compiler_version("g++ (Debian 16.2.0-4) 16.2.0\nCopyright (C) 2026 Free 1.0\n"),
            "g++ (Debian 16.2.0-4) 16.2.0");
  EXPECT_EQ(parse_compiler_version("clang version 22.1.8 (https://x/y abc)\nTarget: x86_64-linux\n"
                                   "Thread model: posix\nInstalledDir: /opt/clang-22.1/bin\n"),
            "clang version 22.1.8 (https://x/y abc)\nTarget: x86_64-linux");
  EXPECT_EQ(parse_compiler_version("nvcc: NVIDIA (R) Cuda compiler driver\nBuilt on Wed_Aug_20\r\n"
                                   "Cuda compilation tools, release 13.0, V13.0.88\r\n"),
            "Cuda compilation tools, release 13.0, V13.0.88");
}

TEST(ParseCompilerVersion, SkipsWhatIsPrintedBefore) {
  const std::string line = "g++ (GCC) 13.3.0";
  for (const char* noise :
       {"warning: option 3.14 is deprecated\n",
        "ERROR: ld.so: object '/lib/libfoo.so.1.2' from LD_PRELOAD cannot be preloaded: ignored.\n",
        "bash: Warning: setlocale: LC_ALL: cannot change locale (xx 1.1)\n", "libfoo.so.1.2\n",
        "\n\n", "3 things\n"}) {
    EXPECT_EQ(parse_compiler_version(noise + line + "\n"), line) << noise;
  }
  EXPECT_EQ(parse_compiler_version("no version here\n7\n"), "");
}

TEST_F(CompilerIdentityTest, IsTheSameInAnotherPlaceAndLocale) {
  const std::string body =
      "echo \"g++ (GCC) 13.3.0 $LC_ALL\"; echo InstalledDir: \"$0\" \"$PWD\"\n";
  const auto a = write_script("a/g++", body);
  const auto b = write_script("b b/g++", body);
  const auto identity_a = identify_compiler({a.string()}, a);
  set_env("LC_ALL", "de_DE.UTF-8");
  const auto identity_b = identify_compiler({b.string()}, b);
  EXPECT_EQ(identity_a.version, "g++ (GCC) 13.3.0 C");
  EXPECT_EQ(identity_b.version, identity_a.version);
  EXPECT_EQ(identity_b.content, identity_a.content);
}

TEST_F(CompilerIdentityTest, SeesAReplacedFile) {
  const auto path = write_script("g++", "echo g++ 13.3.0\n");
  const auto before = identify_compiler({path.string()}, path);
  EXPECT_EQ(before.content, hash_bytes(read(path)));
  write_script("g++", "echo g++ 13.3.0 # patched\n");
  const auto after = identify_compiler({path.string()}, path);
  EXPECT_EQ(after.version, before.version);
  EXPECT_NE(after.content, before.content);
}

// Once the executables are no longer new, the answer is remembered until one is replaced.
TEST_F(CompilerIdentityTest, RunsACompilerOncePerProcess) {
  const auto count = scratch() / "count";
  const auto path = write_script("g++", "echo run >> '" + count.string() + "'; echo g++ 13.3.0\n");
  const auto launcher = write_script("ccache", "exec \"$@\"\n");
  const std::vector<std::string> command = {launcher.string(), path.string()};
  const auto ask_until_remembered = [&] {
    for (int i = 0; i < 10000; ++i) {
      const auto before = count_lines(count);
      EXPECT_EQ(identify_compiler(command, path).version, "g++ 13.3.0");
      if (count_lines(count) == before) return true;
    }
    return false;
  };
  EXPECT_TRUE(ask_until_remembered());
  const auto runs = count_lines(count);
  identify_compiler(command, path);
  EXPECT_EQ(count_lines(count), runs);
  auto with_argument = command;
  with_argument.push_back("-m64");
  identify_compiler(with_argument, path);
  EXPECT_EQ(count_lines(count), runs + 1) << "another command is another question";
  write_script("ccache", "exec \"$@\" # new\n");
  identify_compiler(command, path);
  EXPECT_EQ(count_lines(count), runs + 2) << "a launcher may change the answer";
  EXPECT_TRUE(ask_until_remembered());
  write_script("g++", "echo g++ 14.1.0\n");
  EXPECT_EQ(identify_compiler(command, path).version, "g++ 14.1.0");
}

// Another process takes what one has found out. Here the memo holds what no compiler has said.
TEST_F(CompilerIdentityTest, TheMemoAnswersUntilTheFileChanges) {
  make_dirs(cache_root());
  const IdentityMemo memo(cache_root());
  const IdentityMemoScope scope(memo);
  const auto path = write_script("g++", "echo g++ 13.3.0\n");
  while (!FileIdentity::of(path)->is_settled()) {
  }
  const std::string state = FileIdentity::of(path)->text() + FileIdentity::of(path)->text();
  const std::string question = std::string("compiler") + '\0' + path.string();
  memo.remember(question, state, hash_bytes("x").hex() + " g++ 99.1");
  memo.flush();
  const auto identity = identify_compiler({path.string()}, path);
  EXPECT_EQ(identity.version, "g++ 99.1");
  EXPECT_EQ(identity.content, hash_bytes("x"));
  write_script("g++", "echo g++ 14.1.0\n");
  EXPECT_EQ(identify_compiler({path.string()}, path).version, "g++ 14.1.0");
  while (!FileIdentity::of(path)->is_settled()) {
  }
  identify_compiler({path.string()}, path);
  memo.flush();
  const std::string now = FileIdentity::of(path)->text();
  EXPECT_EQ(memo.find(question, now + now), hash_bytes(read(path)).hex() + " g++ 14.1.0");
}

TEST_F(CompilerIdentityTest, SaysWhyACompilerIsNotOne) {
  const auto fails = write_script("fails", "echo no licence; exit 3\n");
  DJ_EXPECT_ERROR(
      exception::Exception, identify_compiler({fails.string()}, fails),
      AllOf(HasSubstr(fails.string()), HasSubstr("exit code 3"), HasSubstr("no licence")));
  const auto mute = write_script("mute", "echo hello\n");
  DJ_EXPECT_ERROR(exception::Exception, identify_compiler({mute.string()}, mute),
                  AllOf(HasSubstr("failed to parse the compiler version"), HasSubstr("hello")));
}

}  // namespace
}  // namespace deep_jit
