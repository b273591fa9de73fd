// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/runtime.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/base/log.hpp"
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
using ::testing::MatchesRegex;
using ::testing::Not;

class RuntimeTest : public testing::ScratchTest {
 protected:
  RuntimeTest() {
    fake().compiles = fake().loads = fake().flag_vectors = 0;
    fake().version = "fake 1.0";
    fake().key_part = "part";
    fake().headers.clear();
    fake().on_compile = nullptr;
    fake().on_load = nullptr;
  }
  ~RuntimeTest() override { set_log_sink(nullptr); }

  Config config(const std::string& signature = "") const {
    return Config(scratch(), "TESTLIB", signature, {scratch() / "include"}, {"lib/"});
  }
  std::shared_ptr<Runtime<FakeBackend>> make_runtime(const std::string& signature = "") const {
    return std::make_shared<Runtime<FakeBackend>>(config(signature));
  }
};

// --- Compile, memory, disk ---

TEST_F(RuntimeTest, CompilesOnceThenHitsMemoryThenDisk) {
  auto runtime = make_runtime();
  EXPECT_FALSE(std::filesystem::exists(cache_root())) << "making a runtime must touch no disk";
  auto kernel = runtime->compile("tag", "src", {.extra_flags = {"-x"}});
  EXPECT_EQ(kernel->content, "-O1 -x src");
  EXPECT_EQ(runtime->compile("other", "src", {.extra_flags = {"-x"}}), kernel);
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(fake().loads, 1);
  EXPECT_THAT(published(), ElementsAre(MatchesRegex("tag\\.[0-9a-f]{32}")));
  EXPECT_THAT(list(cache_root() / "cache" / published()[0]),
              ElementsAre(".committed", "artifact", "meta.json"));
  EXPECT_THAT(unfinished(), IsEmpty());

  auto second = make_runtime();
  EXPECT_EQ(second->compile("tag", "src", {.extra_flags = {"-x"}})->content, kernel->content);
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(fake().loads, 2);
}

TEST_F(RuntimeTest, AMemoryHitBuildsNoKey) {
  auto runtime = make_runtime();
  auto kernel = runtime->compile("tag", "src");
  const int before = fake().flag_vectors;
  EXPECT_EQ(runtime->compile("tag", "src"), kernel);
  EXPECT_EQ(fake().flag_vectors, before);
}

TEST_F(RuntimeTest, DifferentRequestsWithOneKeyShareTheKernel) {
  auto runtime = make_runtime();
  EXPECT_EQ(runtime->compile("tag", "src"), runtime->compile("tag", "src", {.level = "1"}));
  EXPECT_EQ(fake().compiles, 1);
  runtime->default_compiler_options.level = "2";
  EXPECT_EQ(runtime->compile("tag", "src")->content, "-O2 src");
}

TEST_F(RuntimeTest, CompileWithoutLoadLoadsNothing) {
  auto runtime = make_runtime();
  const auto directory = runtime->compile_without_load("tag", "src");
  EXPECT_EQ(read(directory / "artifact"), "-O1 src");
  EXPECT_EQ(runtime->compile_without_load("tag", "src"), directory);
  EXPECT_EQ(fake().loads, 0);
  EXPECT_EQ(runtime->memory_cache.size(), 0u);
  runtime->compile("tag", "src");
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(fake().loads, 1);
}

TEST_F(RuntimeTest, WritesMetadata) {
  auto runtime = make_runtime("sig");
  const auto directory = runtime->compile_without_load("tag", "src", {.level = "2"});
  const auto json = nlohmann::ordered_json::parse(read(directory / "meta.json"));
  EXPECT_EQ(json["command"], "fake compile");
  EXPECT_EQ(json["config"], runtime->config.to_json());
  EXPECT_EQ(json["compiler_info"]["version"], "fake 1.0");
  EXPECT_EQ(json["compiler_options"].dump(), R"({"level":"2","extra_flags":[],"post_hook":null})");
  EXPECT_EQ("tag." + json["key"]["digest"].get<std::string>(), directory.filename());
}

TEST_F(RuntimeTest, SecondRootIsReadAndNotWritten) {
  make_runtime()->compile("tag", "src");
  set_env("TESTLIB_JIT_CACHE_DIR", (scratch() / "first").string() + ":" + cache_root().string());
  make_runtime()->compile("tag", "src");
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_FALSE(std::filesystem::exists(scratch() / "first"));
  make_runtime()->compile("tag", "other");
  EXPECT_EQ(list(scratch() / "first" / "cache").size(), 1u);
  EXPECT_EQ(published().size(), 1u);
}

TEST_F(RuntimeTest, ConfiguredCacheDirsReplaceTheEnvironment) {
  unset_env("HOME");  // asked for by nobody
  Config configured = config();
  configured.cache_dirs = {scratch() / "own:with colon", scratch() / "shared"};
  Runtime<FakeBackend> runtime(configured);
  EXPECT_EQ(runtime.disk_cache.paths, configured.cache_dirs);
  EXPECT_EQ(runtime.compile_without_load("tag", "src").parent_path(),
            scratch() / "own:with colon" / "cache");
  EXPECT_FALSE(std::filesystem::exists(cache_root()));
  // Where the cache lies is no part of what is in it.
  const auto options = runtime.default_compiler_options;
  EXPECT_EQ(runtime.cache_key("src", options), make_runtime()->cache_key("src", options));
}

TEST_F(RuntimeTest, RefusesABadTag) {
  auto runtime = make_runtime();
  for (const char* tag : {"", "a/b", "a.b", "a-b"}) {
    DJ_EXPECT_ERROR(exception::Exception, runtime->compile(tag, "src"),
                    HasSubstr("cache tag must contain only letters, digits, or underscores"));
  }
  EXPECT_EQ(fake().compiles, 0);
}

// --- The key ---

TEST_F(RuntimeTest, KeyHasItsPartsInOrder) {
  auto runtime = make_runtime("sig");
  FakeBackend::CompilerOptions options{.level = "3", .extra_flags = {"-a"}};
  Key expected;
  expected.add("key format", "2")
      .add("backend", "fake")
      .add("extra signature", "sig")
      .add("dependencies", "tracked")
      .add("compiler version", "fake 1.0")
      .add("compiler content", Digest{1, 2}.hex())
      .add("flag", "-O3")
      .add("flag", "-a")
      .add("fake part", "part")
      .add("source", "src")
      .add("tracked headers", Hasher().digest().hex());
  EXPECT_EQ(runtime->explain_key("src", options), expected.explain());
  EXPECT_EQ(runtime->cache_key("src", options), expected.digest().hex());

  write("hook.py", "pass");
  Config verified = config("sig");
  verified.dependency_mode = DependencyMode::kVerified;
  options.post_hook = "hook.py";
  Key with_all;
  with_all.add("key format", "2")
      .add("backend", "fake")
      .add("extra signature", "sig")
      .add("dependencies", "verified")
      .add("compiler version", "fake 1.0")
      .add("compiler content", Digest{1, 2}.hex())
      .add("flag", "-O3")
      .add("flag", "-a")
      .add("post hook", "hook.py")
      .add("post hook content", hash_bytes("pass").hex())
      .add("fake part", "part")
      .add("source", "src");
  EXPECT_EQ(Runtime<FakeBackend>(verified).explain_key("src", options), with_all.explain());
}

TEST_F(RuntimeTest, EveryInputChangesTheKey) {
  write("include/lib/x.hpp", "1");
  const std::string source = "#include <lib/x.hpp>\n";
  const FakeBackend::CompilerOptions base{.level = "1"};
  std::set<std::string> keys;
  const auto add = [&](const std::shared_ptr<Runtime<FakeBackend>>& runtime,
                       const std::string& text, const FakeBackend::CompilerOptions& options) {
    EXPECT_TRUE(keys.insert(runtime->cache_key(text, options)).second) << keys.size();
  };
  add(make_runtime(), source, base);
  add(make_runtime("sig"), source, base);
  add(make_runtime(), source + " ", base);
  add(make_runtime(), source + std::string("\0a", 2), base);
  add(make_runtime(), source, {.level = "2"});
  add(make_runtime(), source, {.level = "1", .extra_flags = {"-a", "-b"}});
  add(make_runtime(), source, {.level = "1", .extra_flags = {"-b", "-a"}});
  add(make_runtime(), source, {.level = "1", .extra_flags = {"-a -b"}});
  fake().version = "fake 1.1";
  add(make_runtime(), source, base);
  fake().version = "fake 1.0";
  fake().key_part = "other";
  add(make_runtime(), source, base);
  fake().key_part = "part";
  write("include/lib/x.hpp", "2");
  add(make_runtime(), source, base);
}

TEST_F(RuntimeTest, MovedHeadersKeepTheKeyAndRunNoCompiler) {
  write("include/lib/x.hpp", "1");
  write("moved/here/lib/x.hpp", "1");
  const std::string source = "#include <lib/x.hpp>\n";
  const auto directory = make_runtime()->compile_without_load("tag", source);
  const std::string metadata = read(directory / "meta.json");
  Runtime<FakeBackend> moved(
      Config(scratch() / "moved", "TESTLIB", "", {scratch() / "moved/here"}, {"lib/"}));
  EXPECT_EQ(moved.compile_without_load("tag", source), directory);
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(read(directory / "meta.json"), metadata);
}

// --- Headers that change ---

TEST_F(RuntimeTest, AnEditedHeaderIsSeenByANewRuntime) {
  write("include/lib/x.hpp", "1");
  const std::string source = "#include <lib/x.hpp>\n";
  auto runtime = make_runtime();
  auto kernel = runtime->compile("tag", source);
  write("include/lib/x.hpp", "2");
  EXPECT_EQ(runtime->compile("tag", source), kernel);
  EXPECT_EQ(fake().compiles, 1);
  make_runtime()->compile("tag", source);
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_EQ(published().size(), 2u);
}

// The runtime remembers the old content when it compiles another source: what the compiler then
// reads is the new one, and must not be published under the old key.
TEST_F(RuntimeTest, AHeaderEditedBehindALiveRuntimeDoesNotPoisonTheOldKey) {
  write("include/lib/x.hpp", "1");
  auto runtime = make_runtime();
  const std::string source = "#include <lib/x.hpp>\nint b;";
  const std::string old_key = runtime->cache_key(source, {.level = "1"});
  write("include/lib/x.hpp", "2");
  const auto directory = runtime->compile_without_load("tag", source);
  EXPECT_NE(directory.filename(), "tag." + old_key);
  EXPECT_EQ(directory.filename(), "tag." + make_runtime()->cache_key(source, {.level = "1"}));
  EXPECT_THAT(published(), ElementsAre(directory.filename().string()));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(RuntimeTest, AHeaderThatChangesDuringTheCompileIsCompiledAgain) {
  write("include/lib/x.hpp", "1");
  fake().on_compile = [&](const auto&) {
    if (fake().compiles == 1) write("include/lib/x.hpp", "2");
  };
  auto runtime = make_runtime();
  const std::string source = "#include <lib/x.hpp>\n";
  runtime->compile("tag", source);
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_THAT(published(), ElementsAre("tag." + make_runtime()->cache_key(source, {.level = "1"})));

  fake().on_compile = [&](const auto&) {
    write("include/lib/x.hpp", std::to_string(fake().compiles));
  };
  DJ_EXPECT_ERROR(exception::Exception, make_runtime()->compile("tag", source + "2"),
                  AllOf(HasSubstr("`tag`"), HasSubstr("changed 3 times")));
  EXPECT_THAT(unfinished(), IsEmpty());
}

// --- Verified dependencies ---

class VerifiedTest : public RuntimeTest {
 protected:
  VerifiedTest() { fake().headers = {header("include/lib/a.hpp", "A"), header("flag/b.h", "B")}; }

  std::string header(const std::string& name, const std::string& content) const {
    return write(name, content).string();
  }
  Config verified(const std::vector<std::string>& dirs = {"include"}) const {
    Config made = config();
    made.include_dirs.clear();
    for (const auto& dir : dirs) made.include_dirs.push_back(scratch() / dir);
    made.dependency_mode = DependencyMode::kVerified;
    return made;
  }
  // What a fresh process would run.
  std::string run(const Config& with) const {
    return Runtime<FakeBackend>(with).compile("tag", "src")->content;
  }
};

TEST_F(VerifiedTest, AChangedHeaderIsAMissAndReplacesTheEntry) {
  EXPECT_EQ(run(verified()), "-O1 src|A|B");
  EXPECT_EQ(run(verified()), "-O1 src|A|B");
  EXPECT_EQ(fake().compiles, 1);
  for (const char* name : {"include/lib/a.hpp", "flag/b.h"}) {
    const int before = fake().compiles;
    header(name, "C");
    const std::string expected =
        std::string("-O1 src|C|") + (name == std::string("flag/b.h") ? "C" : "B");
    EXPECT_EQ(run(verified()), expected);
    EXPECT_EQ(run(verified()), expected);
    EXPECT_EQ(fake().compiles, before + 1);
    ASSERT_EQ(published().size(), 1u);
    EXPECT_EQ(read(cache_root() / "cache" / published()[0] / "artifact"), expected);
  }
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(VerifiedTest, CompileWithoutLoadChecksToo) {
  const auto directory = Runtime<FakeBackend>(verified()).compile_without_load("tag", "src");
  header("flag/b.h", "C");
  EXPECT_EQ(Runtime<FakeBackend>(verified()).compile_without_load("tag", "src"), directory);
  EXPECT_EQ(read(directory / "artifact"), "-O1 src|A|C");
  EXPECT_EQ(fake().loads, 0);
}

TEST_F(VerifiedTest, ContentCountsAndTimesDoNot) {
  run(verified());
  const auto path = scratch() / "include/lib/a.hpp";
  using Clock = std::filesystem::file_time_type::clock;
  std::filesystem::last_write_time(path, Clock::now() + std::chrono::hours(24));
  run(verified());
  header("include/lib/a.hpp", "A");  // Written again, the same.
  run(verified());
  EXPECT_EQ(fake().compiles, 1);
  // The same size, and a time long ago.
  header("include/lib/a.hpp", "Z");
  std::filesystem::last_write_time(path, std::filesystem::file_time_type());
  EXPECT_EQ(run(verified()), "-O1 src|Z|B");
  EXPECT_EQ(fake().compiles, 2);
}

TEST_F(VerifiedTest, AMissingHeaderIsAMiss) {
  run(verified());
  std::filesystem::remove(scratch() / "flag/b.h");
  fake().headers.pop_back();
  EXPECT_EQ(run(verified()), "-O1 src|A");
}

TEST_F(VerifiedTest, MovedIncludeDirectoriesStillVerify) {
  const auto directory = Runtime<FakeBackend>(verified()).compile_without_load("tag", "src");
  const std::string metadata = read(directory / "meta.json");
  std::filesystem::rename(scratch() / "include", scratch() / "moved");
  EXPECT_EQ(run(verified({"moved"})), "-O1 src|A|B");
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(read(directory / "meta.json"), metadata);
}

TEST_F(VerifiedTest, TheOrderOfIncludeDirectoriesCounts) {
  header("other/lib/a.hpp", "other A");
  run(verified({"include", "other"}));
  fake().headers[0] = (scratch() / "other/lib/a.hpp").string();
  EXPECT_EQ(run(verified({"other", "include"})), "-O1 src|other A|B");
  EXPECT_EQ(fake().compiles, 2);
}

TEST_F(VerifiedTest, ANewHeaderThatHidesAnotherIsAMiss) {
  std::filesystem::create_directories(scratch() / "first");
  run(verified({"first", "include"}));
  fake().headers[0] = header("first/lib/a.hpp", "new A");
  EXPECT_EQ(run(verified({"first", "include"})), "-O1 src|new A|B");
  EXPECT_EQ(fake().compiles, 2);
}

TEST_F(VerifiedTest, AHeaderThatChangesDuringTheCompileIsCompiledAgain) {
  fake().on_compile = [&](const auto&) {
    if (fake().compiles == 1) header("flag/b.h", "C");
  };
  EXPECT_EQ(run(verified()), "-O1 src|A|C");
  EXPECT_EQ(fake().compiles, 2);
  fake().on_compile = nullptr;
  EXPECT_EQ(run(verified()), "-O1 src|A|C");
  EXPECT_EQ(fake().compiles, 2);
  fake().on_compile = [&](const auto&) { header("flag/b.h", std::to_string(fake().compiles)); };
  header("flag/b.h", "D");
  DJ_EXPECT_ERROR(exception::Exception, run(verified()),
                  AllOf(HasSubstr("`tag`"), HasSubstr("changed 3 times")));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(VerifiedTest, AnEntryThatIsReplacedWhileItIsLoadedIsNotUsed) {
  run(verified());
  // Between the check of the headers and the end of the load.
  fake().on_load = [&](const auto&) {
    fake().on_load = nullptr;
    header("flag/b.h", "C");
  };
  EXPECT_EQ(run(verified()), "-O1 src|A|C");
}

TEST_F(VerifiedTest, AnEntryOfASecondRootIsLeftAlone) {
  const auto old = Runtime<FakeBackend>(verified()).compile_without_load("tag", "src");
  set_env("TESTLIB_JIT_CACHE_DIR", (scratch() / "first").string() + ":" + cache_root().string());
  EXPECT_EQ(run(verified()), "-O1 src|A|B");
  EXPECT_EQ(fake().compiles, 1);
  header("flag/b.h", "C");
  EXPECT_EQ(run(verified()), "-O1 src|A|C");
  EXPECT_EQ(run(verified()), "-O1 src|A|C");
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_EQ(read(old / "artifact"), "-O1 src|A|B");
  EXPECT_TRUE(std::filesystem::exists(old / ".committed"));
}

TEST_F(VerifiedTest, AnEntryWithADamagedListIsHealed) {
  const auto directory = Runtime<FakeBackend>(verified()).compile_without_load("tag", "src");
  for (const bool missing : {true, false}) {
    if (missing) {
      std::filesystem::remove(directory / "dependencies");
    } else {
      write_file_sync(directory / "dependencies", "deep_jit-dependencies 9\n");
    }
    const int before = fake().compiles;
    EXPECT_EQ(run(verified()), "-O1 src|A|B");
    EXPECT_EQ(fake().compiles, before + 1);
  }
}

TEST_F(VerifiedTest, TheScannerIsNotAsked) {
  const std::string source =
      "#include \"lib/macro.h\"\n#include < odd.h>\n#include <lib/none.hpp>\n";
  EXPECT_NO_THROW(Runtime<FakeBackend>(verified()).compile("tag", source));
  EXPECT_THROW(make_runtime()->compile("tag", source), exception::Exception);
}

// --- The compiler ---

TEST_F(RuntimeTest, ACompilerThatChangesDuringTheCompileIsAskedAgain) {
  fake().on_compile = [&](const auto&) {
    if (fake().compiles == 1) fake().key_part = "upgraded";
  };
  auto runtime = make_runtime();
  const auto directory = runtime->compile_without_load("tag", "src");
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_THAT(published(), ElementsAre("tag." + runtime->cache_key("src", {.level = "1"})));
}

// --- Failures ---

TEST_F(RuntimeTest, AFailedCompileLeavesNothingAndIsTriedAgain) {
  auto runtime = make_runtime();
  fake().on_compile = [](const std::filesystem::path& directory) {
    write_file_sync(directory / "half", "x");
    DJ_THROW(exception::CompileError, "no");
  };
  EXPECT_THROW(runtime->compile("tag", "src"), exception::CompileError);
  EXPECT_THROW(runtime->compile_without_load("tag", "src"), exception::CompileError);
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
  fake().on_compile = nullptr;
  EXPECT_EQ(runtime->compile("tag", "src")->content, "-O1 src");
}

TEST_F(RuntimeTest, ADamagedArtifactIsHealed) {
  const auto directory = make_runtime()->compile_without_load("tag", "src");
  for (const std::string& damage : {std::string("-O1 srd"), std::string("-O1 sr"), std::string()}) {
    write_file_sync(directory / "artifact", damage);
    const int before = fake().compiles;
    EXPECT_EQ(make_runtime()->compile("tag", "src")->content, "-O1 src");
    EXPECT_EQ(fake().compiles, before + 1);
    EXPECT_EQ(read(directory / "artifact"), "-O1 src");
  }
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(RuntimeTest, AnEntryThatCannotBeLoadedIsRebuiltOnce) {
  const auto directory = make_runtime()->compile_without_load("tag", "src");
  fake().on_load = [&](const auto&) {
    if (fake().compiles == 1) DJ_THROW(exception::CacheError, "other libc");
  };
  auto runtime = make_runtime();
  EXPECT_EQ(runtime->compile("tag", "src")->content, "-O1 src");
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_TRUE(std::filesystem::exists(directory / ".committed"));

  fake().on_load = [&](const auto&) { DJ_THROW(exception::CacheError, "never"); };
  DJ_EXPECT_ERROR(exception::CacheError, make_runtime()->compile("tag", "src"), HasSubstr("never"));
  EXPECT_EQ(fake().compiles, 3);
}

TEST_F(RuntimeTest, ALoadErrorOfTheSourceIsNotADamage) {
  fake().on_load = [&](const auto&) { DJ_PANIC("two kernels"); };
  auto runtime = make_runtime();
  DJ_EXPECT_ERROR(exception::Exception, runtime->compile("tag", "src"), HasSubstr("two kernels"));
  DJ_EXPECT_ERROR(exception::Exception, runtime->compile("tag", "src"), HasSubstr("two kernels"));
  EXPECT_EQ(fake().compiles, 1);
  fake().on_load = nullptr;
  EXPECT_EQ(runtime->compile("tag", "src")->content, "-O1 src");
}

// --- Threads and processes ---

TEST_F(RuntimeTest, SixteenThreadsCompileOnce) {
  auto runtime = make_runtime();
  constexpr int kThreads = 16;
  std::barrier start(kThreads);
  std::vector<std::shared_ptr<FakeBackend::Kernel>> kernels(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : kernels) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        kernel = runtime->compile("tag", "src");
      });
    }
  }
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_EQ(fake().loads, 1);
  EXPECT_EQ(std::set(kernels.begin(), kernels.end()).size(), 1u);
}

TEST_F(RuntimeTest, ThreadsWithRuntimesOfTheirOwnCompileOnce) {
  constexpr int kThreads = 8;
  std::barrier start(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        auto runtime = make_runtime();
        start.arrive_and_wait();
        runtime->compile_without_load("tag", "src");
      });
    }
  }
  EXPECT_EQ(fake().compiles, 1);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(RuntimeTest, TwoProcessesCompileEachKeyOnce) {
  const auto log = scratch() / "log";
  fake().on_compile = [&](const std::filesystem::path&) {
    const FileDescriptor file =
        open_file(AT_FDCWD, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ASSERT_TRUE(write_all(file.get(), "compiled\n"));
  };
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int failed = 1;
      try {
        auto runtime = make_runtime();
        ::close(ready[1]);
        char byte;
        (void)!::read(ready[0], &byte, 1);  // Returns when the parent closes its end: both start.
        failed = 0;
        for (const char* source : {"a", "b", "c"}) {
          failed |= runtime->compile("tag", source)->content != std::string("-O1 ") + source;
        }
      } catch (...) {
        failed = 1;
      }
      ::_exit(failed);
    }
    children.push_back(pid);
  }
  ::close(ready[0]);
  ::close(ready[1]);
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(count_lines(log), 3u);
  EXPECT_EQ(published().size(), 3u);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(RuntimeTest, AnInterruptedCompileIsTakenOverByAWaitingThread) {
  auto runtime = make_runtime();
  std::atomic<bool> compiling = false;
  std::atomic<bool> interrupt = false;
  fake().on_compile = [&](const auto&) {
    if (fake().compiles > 1) return;
    compiling = true;
    compiling.notify_all();
    interrupt.wait(false);
    throw_if_interrupted();
  };
  std::atomic<bool> was_interrupted = false;
  std::jthread first([&] {
    const InterruptScope scope([&] { return interrupt.load(); });
    try {
      runtime->compile("tag", "src");
    } catch (const exception::Interrupted&) {
      was_interrupted = true;
    }
  });
  compiling.wait(false);
  std::shared_ptr<FakeBackend::Kernel> kernel;
  std::jthread second([&] { kernel = runtime->compile("tag", "src"); });
  interrupt = true;
  interrupt.notify_all();
  first.join();
  second.join();
  EXPECT_TRUE(was_interrupted);
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->content, "-O1 src");
  EXPECT_THAT(unfinished(), IsEmpty());
}

// --- Launch, laziness, diagnostics ---

TEST_F(RuntimeTest, LaunchMergesDefaultsAndRefusesNull) {
  auto runtime = make_runtime();
  auto kernel = runtime->compile("tag", "src");
  int grid = 0;
  int block = 0;
  runtime->launch(kernel, {.block = 3}, &grid, &block);
  EXPECT_EQ(grid, 7);
  EXPECT_EQ(block, 3);
  runtime->launch(kernel, {.grid = 1}, &grid, &block);
  EXPECT_EQ(grid, 1);
  EXPECT_EQ(block, -1);
  DJ_EXPECT_ERROR(exception::LaunchError, runtime->launch(nullptr, {}, &grid, &block),
                  HasSubstr("kernel must not be null"));
}

TEST_F(RuntimeTest, ALazyRuntimeReadsTheEnvironmentAtFirstUse) {
  auto jit = create_lazy_jit<FakeBackend>(config());
  set_env("TESTLIB_JIT_CACHE_DIR", (scratch() / "later").string());
  jit->compile("tag", "src");
  EXPECT_THAT(list(scratch() / "later" / "cache"), ElementsAre(HasSubstr("tag.")));
  EXPECT_THAT(published(), IsEmpty());
}

TEST_F(RuntimeTest, PrintsLoadTimesWhenAsked) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kInfo);
    lines.emplace_back(line);
  });
  make_runtime()->compile("tag", "src");
  EXPECT_THAT(lines, IsEmpty());
  set_env("TESTLIB_JIT_PRINT_LOAD_TIME", "1");
  make_runtime()->compile("tag", "src");
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("Load time ("), HasSubstr(published()[0]),
                                       HasSubstr(" ms"))));
  lines.clear();
  unset_env("TESTLIB_JIT_PRINT_LOAD_TIME");
  set_env("DJ_JIT_DEBUG", "1");
  make_runtime()->compile("tag", "src");
  EXPECT_THAT(lines, ElementsAre(HasSubstr("Load time (")));
}

TEST_F(RuntimeTest, DebugAddsTheTraceToErrors) {
  const bool was_enabled = exception::enable_traces(false);
  DJ_EXPECT_ERROR(exception::Exception, make_runtime()->compile("bad tag", "src"),
                  Not(HasSubstr("C++ trace")));
  set_env("TESTLIB_JIT_DEBUG", "1");
  DJ_EXPECT_ERROR(exception::Exception, make_runtime()->compile("bad tag", "src"),
                  HasSubstr("\nC++ trace (most recent call first):\n  #0 "));
  exception::enable_traces(was_enabled);
}

}  // namespace
}  // namespace deep_jit
