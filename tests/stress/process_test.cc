// SPDX-License-Identifier: MIT
//
// Many processes, one cache: how often the compiler runs, and that what it made is never mixed up.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <format>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/cache/build_directory.hpp"
#include "tests/runtime/backend/host/host_test.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/stress/fake_runtime_test.hpp"
#include "tests/stress/faults.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kProcesses = 64;

// --- The real Host, with a compiler that is a script ---

// The stand-in "compiles" by putting the number from the source into a library that the real
// compiler made once.
class HostProcessTest : public HostTest {
 protected:
  void SetUp() override {
    auto runtime = make_runtime();
    prebuilt_ = scratch() / "prebuilt.so";
    std::filesystem::copy_file(runtime->compile_without_load("number", source(0)) / "kernel.so",
                               prebuilt_);
    safe_remove_all(cache_root());
    script_compiler("");
  }

  static std::string source(int number) {
    return std::format(
        "__global__ void number(int* out) {{\n"
        "  const volatile char* digit = \"NUMBER_{}\";\n"
        "  *out = digit[7] - '0';\n"
        "}}\n",
        number);
  }

  // `before` runs when a compilation starts.
  void script_compiler(const std::string& before) {
    fake_compiler(
        std::format("echo run >> '{}'\n{}\n"
                    "digit=$(sed -n 's/.*NUMBER_\\([0-9]\\).*/\\1/p' kernel.cc)\n"
                    "LC_ALL=C sed \"s/NUMBER_0/NUMBER_$digit/\" '{}' > kernel.so",
                    count_file().string(), before, prebuilt_.string()));
  }

  // Compiles and runs with a runtime of its own; 0 when the kernel says its number.
  int compile_and_run(int number) const {
    auto runtime = make_runtime();
    const auto kernel = runtime->compile("number", source(number));
    int out = -1;
    runtime->launch(kernel, {.grid_dim = host::Dim3{1}, .block_dim = host::Dim3{1}}, &out);
    return out == number ? 0 : 1;
  }

  // Starts processes, lets them all go at once, and expects each to end well.
  template <class Work>
  static void run_processes(int count, const Work& work) {
    ProcessEvent ready;
    ProcessEvent go;
    std::vector<ChildProcess> children;
    for (int i = 0; i < count; ++i) {
      children.emplace_back([&, i] {
        ready.signal();
        go.wait();
        return work(i);
      });
    }
    ready.wait(count);
    go.signal(count);
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  }

  std::filesystem::path prebuilt_;
};

TEST_F(HostProcessTest, SixtyFourProcessesCompileOneKeyOnce) {
  run_processes(kProcesses, [&](int) { return compile_and_run(7); });
  EXPECT_EQ(compilations(), 1U);
  EXPECT_THAT(published(), SizeIs(1));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostProcessTest, SixtyFourProcessesCompileEachOfEightKeysOnce) {
  constexpr int kKeys = 8;
  run_processes(kProcesses, [&](int i) {
    // Each wants all of them, and begins with another.
    for (int key = 0; key < kKeys; ++key) {
      if (const int code = compile_and_run((i + key) % kKeys)) return code;
    }
    return 0;
  });
  EXPECT_EQ(compilations(), kKeys);
  EXPECT_THAT(published(), SizeIs(kKeys));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostProcessTest, KeysDoNotWaitForEachOther) {
  // Each compilation waits until all of them have begun: with one lock for all they never would.
  constexpr int kKeys = 4;
  const auto open_pipe = [&](const std::filesystem::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return open_file(AT_FDCWD, path.c_str(), O_RDWR);  // both ends: opening it never waits
  };
  const FileDescriptor begun = open_pipe(scratch() / "begun");
  const FileDescriptor go = open_pipe(scratch() / "go");
  script_compiler(std::format("echo > '{0}/begun'\nread -r go < '{0}/go'", scratch().string()));
  std::vector<ChildProcess> children;
  for (int key = 0; key < kKeys; ++key) {
    children.emplace_back([&, key] { return compile_and_run(key); });
  }
  for (int key = 0; key < kKeys; ++key) {
    char newline = 0;
    ASSERT_EQ(read_some(begun.get(), &newline, 1), 1);
  }
  write_all(go.get(), std::string(kKeys, '\n'));
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(compilations(), kKeys);
}

TEST_F(HostProcessTest, KilledWithItsCompilerAndTakenOver) {
  // The first compilation kills the process that asked for it.
  script_compiler("[ -z \"$VICTIM\" ] || kill -9 \"$VICTIM\"");
  ChildProcess victim([&] {
    ::setenv("VICTIM", std::to_string(::getpid()).c_str(), 1);
    return compile_and_run(3);
  });
  EXPECT_EQ(victim.wait(), 128 + SIGKILL);
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), SizeIs(1));
  run_processes(8, [&](int) { return compile_and_run(3); });
  EXPECT_EQ(compilations(), 2U);
  EXPECT_THAT(published(), SizeIs(1));
  sweep_build_directories(cache_root(), std::time(nullptr) + 2 * 3600);
  EXPECT_THAT(unfinished(), IsEmpty());
}

// --- Writers that race ---

using ProcessRaceTest = FakeRuntimeTest;

TEST_F(ProcessRaceTest, ReadersNeverSeeFilesOfTwoWriters) {
  // Two tags of two sources, four writers each, held until all of them compile: without locks, so
  // that each has a build of its own to publish.
  constexpr int kWriters = 16;
  constexpr int kReaders = 4;
  const std::filesystem::path end = scratch() / "end";
  ProcessEvent compiling;
  ProcessEvent go;
  std::vector<ChildProcess> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const FaultScope no_locks({.calls = {Call::kLock}, .error = ENOLCK});
      on_compile_ = [&] {
        compiling.signal();
        go.wait();
      };
      const std::string tag = i % 2 == 0 ? "even" : "odd";
      const std::string source = i % 4 < 2 ? "first" : "second";
      auto runtime = make_runtime();
      return runtime.compile(tag, source)->content == "-O1 " + source ? 0 : 1;
    });
  }
  compiling.wait(kWriters);
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), SizeIs(kWriters));
  std::vector<ChildProcess> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      for (int seen = 0; seen < 4 || !std::filesystem::exists(end);) {
        seen = 0;
        for (const char* tag : {"even", "odd"}) {
          for (const char* source : {"first", "second"}) {
            const auto entry = find(source, tag);
            if (!entry) continue;
            ++seen;
            if (!has_one_writer(*entry)) return 1;
            if (read(*entry / "artifact") != std::string("-O1 ") + source) return 2;
          }
        }
      }
      return 0;
    });
  }
  go.signal(kWriters);
  for (ChildProcess& child : writers) EXPECT_EQ(child.wait(), 0);
  write_file_sync(end, "");
  for (ChildProcess& child : readers) EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(published(), SizeIs(4));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(ProcessRaceTest, MixedRoundCompilesEachEntryOnce) {
  const std::filesystem::path count = scratch() / "count";
  on_compile_ = [&] {
    const FileDescriptor file =
        open_file(AT_FDCWD, count.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    write_all(file.get(), "run\n");
  };
  std::vector<ChildProcess> writers;
  for (int i = 0; i < kProcesses; ++i) {
    writers.emplace_back([&, i] {
      const std::string source = i % 4 < 2 ? "first" : "second";
      auto runtime = make_runtime();
      return runtime.compile(i % 2 == 0 ? "even" : "odd", source)->content == "-O1 " + source ? 0
                                                                                              : 1;
    });
  }
  for (ChildProcess& child : writers) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(count_lines(count), 4U);
  ASSERT_THAT(published(), SizeIs(4));
  // The digest is that of the source; the tag is not part of it.
  const auto digest = [](const std::string& name) { return name.substr(name.find('.')); };
  EXPECT_EQ(digest(published()[0]), digest(published()[2]));
  EXPECT_EQ(digest(published()[1]), digest(published()[3]));
  EXPECT_NE(digest(published()[0]), digest(published()[1]));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(ProcessRaceTest, DamageIsHealedUnderManyReaders) {
  // Whoever finds the entry damaged compiles it; the others wait and use that.
  compile();
  const std::filesystem::path count = scratch() / "count";
  on_compile_ = [&] {
    const FileDescriptor file =
        open_file(AT_FDCWD, count.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    write_all(file.get(), "run\n");
  };
  for (std::size_t round = 1; round <= 5; ++round) {
    damage();
    std::vector<ChildProcess> readers;
    for (int i = 0; i < 16; ++i) {
      readers.emplace_back([&] { return compile() == kFakeContent ? 0 : 1; });
    }
    for (ChildProcess& child : readers) EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(count_lines(count), round);
    EXPECT_TRUE(find().has_value());
    EXPECT_THAT(unfinished(), IsEmpty());
  }
}

}  // namespace
}  // namespace deep_jit::testing
