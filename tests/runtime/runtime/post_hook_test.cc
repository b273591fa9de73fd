// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/post_hook.hpp"

#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/log.hpp"
#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::fake;
using testing::FakeBackend;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Hooks are shell scripts here: the interpreter is a stand-in that runs them.
class PostHookTest : public testing::ScratchTest {
 protected:
  PostHookTest() {
    fake().compiles = fake().loads = 0;
    fake().headers.clear();
    fake().on_compile = nullptr;
    fake().on_load = nullptr;
  }
  ~PostHookTest() override { set_log_sink(nullptr); }

  Config config() const {
    const auto python = write_script("python of the library", "exec /bin/sh \"$@\"\n");
    return Config(scratch() / "lib", "TESTLIB", "", {}, {}, python.string());
  }
  std::shared_ptr<Runtime<FakeBackend>> make_runtime() const {
    return std::make_shared<Runtime<FakeBackend>>(config());
  }
  void hook(const std::string& name, const std::string& body) const { write("lib/" + name, body); }
  std::string compile(const FakeBackend::CompilerOptions& overrides) const {
    return make_runtime()->compile("tag", "src", overrides)->content;
  }
};

TEST_F(PostHookTest, RunsInThePrivateDirectoryWithTheArtifact) {
  hook("hooks/a b.py",
       "printf '%s\\n' $# \"$1\" \"$PWD\" \"$0\" > '" + (scratch() / "seen").string() + "'\n");
  EXPECT_EQ(compile({.post_hook = "hooks/a b.py"}), "-O1 src");
  std::istringstream seen(read(scratch() / "seen"));
  std::vector<std::string> fields;
  for (std::string line; std::getline(seen, line);) fields.push_back(line);
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields[0], "1");
  const std::filesystem::path artifact = fields[1];
  EXPECT_EQ(artifact.filename(), "artifact");
  EXPECT_EQ(artifact.parent_path(), fields[2]);
  EXPECT_EQ(artifact.parent_path().parent_path(), cache_root() / "tmp");
  EXPECT_EQ(fields[3], (scratch() / "lib/hooks/a b.py").string());
  EXPECT_FALSE(std::filesystem::exists(artifact)) << "the build was moved to its place";
}

TEST_F(PostHookTest, WhatItMakesOfTheArtifactIsKept) {
  hook("hook.py", "echo changed > \"$1\"\n");
  EXPECT_EQ(compile({.post_hook = "hook.py"}), "changed\n");
  EXPECT_EQ(compile({.post_hook = "hook.py"}), "changed\n");
  EXPECT_EQ(fake().compiles, 1) << "the checksums are those of the changed artifact";
}

TEST_F(PostHookTest, UnsetInheritsAndEmptyIsNone) {
  hook("hook.py", "echo one > \"$1\"\n");
  hook("other.py", "echo two > \"$1\"\n");
  auto runtime = make_runtime();
  runtime->default_compiler_options.post_hook = "hook.py";
  EXPECT_EQ(runtime->compile("tag", "src")->content, "one\n");
  EXPECT_EQ(runtime->compile("tag", "src", {.post_hook = "other.py"})->content, "two\n");
  EXPECT_EQ(runtime->compile("tag", "src", {.post_hook = ""})->content, "-O1 src");
  const auto key = [&](const std::optional<std::string>& hook) {
    return runtime->cache_key("src", {.level = "1", .post_hook = hook});
  };
  EXPECT_EQ(key(""), key(std::nullopt));
  EXPECT_NE(key("hook.py"), key(std::nullopt));
}

TEST_F(PostHookTest, PathAndContentAreInTheKey) {
  std::set<std::string> keys;
  const auto is_new = [&](const std::string& name) {
    return keys.insert(make_runtime()->cache_key("src", {.level = "1", .post_hook = name})).second;
  };
  hook("a.py", "12");
  EXPECT_TRUE(is_new("a.py"));
  EXPECT_FALSE(is_new("a.py"));
  hook("b.py", "12");
  EXPECT_TRUE(is_new("b.py"));
  hook("a.py", "13");
  EXPECT_TRUE(is_new("a.py")) << "an edit of the same size";
  hook("a.py", std::string("1\0a", 3));
  EXPECT_TRUE(is_new("a.py"));
  hook("a.py", std::string("1\0b", 3));
  EXPECT_TRUE(is_new("a.py"));
  hook("a.py", "12");
  EXPECT_FALSE(is_new("a.py"));
  // Another place of the library is the same hook.
  write("moved/a.py", "12");
  Runtime<FakeBackend> moved(Config(scratch() / "moved", "TESTLIB"));
  EXPECT_TRUE(keys.contains(moved.cache_key("src", {.level = "1", .post_hook = "a.py"})));
}

TEST_F(PostHookTest, AnEditedHookIsSeenByALiveRuntime) {
  hook("a.py", "echo one > \"$1\"\n");
  auto runtime = make_runtime();
  const auto first = runtime->compile_without_load("tag", "src", {.post_hook = "a.py"});
  hook("a.py", "echo two > \"$1\"\n");
  const auto second = runtime->compile_without_load("tag", "src", {.post_hook = "a.py"});
  EXPECT_EQ(read(first / "artifact"), "one\n");
  EXPECT_EQ(read(second / "artifact"), "two\n");
}

TEST_F(PostHookTest, AHookThatIsEditedWhileItRunsIsRunAgain) {
  hook("a.py",
       "echo one > \"$1\"; printf 'echo two > \"$1\"\\n' > \"$0.new\"; mv \"$0.new\" \"$0\"\n");
  const auto directory = make_runtime()->compile_without_load("tag", "src", {.post_hook = "a.py"});
  EXPECT_EQ(read(directory / "artifact"), "two\n");
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_EQ(published().size(), 1u);
}

TEST_F(PostHookTest, AMissingHookIsAReadError) {
  DJ_EXPECT_ERROR(exception::Exception, compile({.post_hook = "none.py"}),
                  AllOf(HasSubstr("failed to open for reading"),
                        HasSubstr((scratch() / "lib/none.py").string())));
  EXPECT_EQ(fake().compiles, 0);
}

TEST_F(PostHookTest, AFailingHookPublishesNothing) {
  hook("bad.py", "echo to stdout; echo to stderr >&2; exit 7\n");
  try {
    compile({.post_hook = "bad.py"});
    FAIL() << "expected an error";
  } catch (const exception::CompileError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("bad.py"), HasSubstr("command failed with exit code 7"),
                      HasSubstr("to stdout\nto stderr\n")));
    EXPECT_EQ(error.log, "to stdout\nto stderr\n");
    ASSERT_EQ(error.command.size(), 3u);
    EXPECT_EQ(error.command[1], (scratch() / "lib/bad.py").string());
    EXPECT_EQ(error.source, "src");
    EXPECT_THAT(error.options, HasSubstr("bad.py"));
  }
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
  hook("bad.py", "kill -9 $$\n");
  DJ_EXPECT_ERROR(exception::CompileError, compile({.post_hook = "bad.py"}),
                  HasSubstr("exit code 137"));
  hook("bad.py", "rm \"$1\"\n");
  DJ_EXPECT_ERROR(exception::CompileError, compile({.post_hook = "bad.py"}),
                  HasSubstr("left no artifact"));
  hook("bad.py", ": > \"$1\"\n");
  DJ_EXPECT_ERROR(exception::CompileError, compile({.post_hook = "bad.py"}),
                  HasSubstr("left an empty artifact"));
  hook("bad.py", "exit 0\n");
  EXPECT_EQ(compile({.post_hook = "bad.py"}), "-O1 src");
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(PostHookTest, AnArtifactThatAHookHasRuinedIsNotRemembered) {
  hook("ruin.py", "echo ruined > \"$1\"\n");
  fake().on_load = [](const std::filesystem::path& directory) {
    if (read(directory / "artifact") == "ruined\n") DJ_THROW(exception::CacheError, "no library");
  };
  auto runtime = make_runtime();
  const FakeBackend::CompilerOptions options{.post_hook = "ruin.py"};
  EXPECT_THROW(runtime->compile("tag", "src", options), exception::CacheError);
  EXPECT_THROW(runtime->compile("tag", "src", options), exception::CacheError);
  EXPECT_EQ(runtime->memory_cache.size(), 0u);
  hook("ruin.py", "echo fine > \"$1\"\n");
  EXPECT_EQ(runtime->compile("tag", "src", options)->content, "fine\n");
}

TEST_F(PostHookTest, TakesPythonFromPathWhenNoneIsNamed) {
  hook("hook.py", "echo by $WHO > \"$1\"\n");
  const auto compile_with_path = [&](int attempt) {
    Runtime<FakeBackend> runtime(Config(scratch() / "lib", "TESTLIB"));
    return runtime.compile("tag", std::to_string(attempt), {.post_hook = "hook.py"})->content;
  };
  set_env("PATH", (scratch() / "bin").string());
  DJ_EXPECT_ERROR(exception::CompileError, compile_with_path(0), HasSubstr("there is no Python"));
  write_script("bin/python", "WHO=python exec /bin/sh \"$@\"\n");
  EXPECT_EQ(compile_with_path(1), "by python\n");
  write_script("bin/python3", "WHO=python3 exec /bin/sh \"$@\"\n");
  EXPECT_EQ(compile_with_path(2), "by python3\n");
  Config with_bad = config();
  with_bad.python_executable = "/none/python";
  DJ_EXPECT_ERROR(exception::CompileError,
                  Runtime<FakeBackend>(with_bad).compile("tag", "3", {.post_hook = "hook.py"}),
                  HasSubstr("/none/python"));
}

TEST_F(PostHookTest, PrintsItsCommandWhenAsked) {
  hook("hook.py", "exit 0\n");
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  set_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND", "1");
  compile({.post_hook = "hook.py"});
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("Running command: "), HasSubstr("/lib/hook.py "),
                                       HasSubstr("/artifact"))));
}

}  // namespace
}  // namespace deep_jit
