// SPDX-License-Identifier: MIT
//
// Writers that die by SIGKILL, at every system call that matters and in the middle of a compile.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/filesystem.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/stress/fake_runtime_test.hpp"
#include "tests/stress/faults.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kKilled = 128 + SIGKILL;

class CrashTest : public FakeRuntimeTest {
 protected:
  // Kills a writer before its first, second, ... system call until one gets to its end. Returns how
  // many were killed.
  template <class Prepare>
  int kill_at_every_call(const Prepare& prepare) {
    for (int call = 0;; ++call) {
      safe_remove_all(cache_root());
      prepare();
      ChildProcess writer([&] {
        const FaultScope fault({.skip = call, .times = 1});
        return compile() == kFakeContent ? 0 : 1;
      });
      const int code = writer.wait();
      if (code != 0) {
        EXPECT_EQ(code, kKilled) << "call " << call;
      }
      // Nothing, or all of it.
      if (const auto entry = find()) {
        EXPECT_EQ(read(*entry / "artifact"), kFakeContent) << "call " << call;
        EXPECT_TRUE(has_one_writer(*entry)) << "call " << call;
      }
      // The next one is not in the way of what is left, nor waits for it.
      EXPECT_EQ(compile(), kFakeContent) << "call " << call;
      EXPECT_TRUE(find().has_value()) << "call " << call;
      EXPECT_THAT(published(), SizeIs(1)) << "call " << call;
      EXPECT_THAT(left_after_sweep(), IsEmpty()) << "call " << call;
      if (code != kKilled || HasFailure()) return call;
    }
  }
};

TEST_F(CrashTest, FirstWriter) {
  EXPECT_GT(kill_at_every_call([] {}), 40);
}

TEST_F(CrashTest, WriterThatHealsADamagedEntry) {
  EXPECT_GT(kill_at_every_call([&] {
              compile();
              damage();
            }),
            40);
}

TEST_F(CrashTest, WriterThatFindsAnUncommittedEntry) {
  std::string name;
  compile();
  name = published().front();
  EXPECT_GT(kill_at_every_call([&] {
              make_dirs(cache_root() / "cache" / name);
              write_file_sync(cache_root() / "cache" / name / "artifact", "half");
            }),
            40);
}

TEST_F(CrashTest, WriterInTheMiddleOfItsCompile) {
  ChildProcess writer([&] {
    on_compile_ = [] { ::raise(SIGKILL); };
    compile();
    return 0;
  });
  EXPECT_EQ(writer.wait(), kKilled);
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), SizeIs(1));
  EXPECT_EQ(compile(), kFakeContent);
  EXPECT_THAT(unfinished(), SizeIs(1));  // young: its age would not be told from a live one's
  EXPECT_THAT(left_after_sweep(), IsEmpty());
}

TEST_F(CrashTest, WaitingProcessTakesOver) {
  ProcessEvent compiling;
  ProcessEvent started;
  ChildProcess writer([&] {
    on_compile_ = [&] {
      compiling.signal();
      for (;;) ::pause();
    };
    compile();
    return 0;
  });
  compiling.wait();
  std::vector<ChildProcess> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      auto runtime = make_runtime();
      started.signal();
      const bool is_right = runtime.compile("kernel", "source")->content == kFakeContent;
      return is_right ? 10 + fake().compiles : 1;
    });
  }
  started.wait(4);
  EXPECT_THAT(published(), IsEmpty());
  writer.kill();
  EXPECT_EQ(writer.wait(), kKilled);
  int compiles = 0;
  for (ChildProcess& child : waiting) {
    const int code = child.wait();
    EXPECT_TRUE(code == 10 || code == 11) << code;
    compiles += code - 10;
  }
  EXPECT_EQ(compiles, 1);
  EXPECT_THAT(published(), SizeIs(1));
  EXPECT_THAT(left_after_sweep(), IsEmpty());
}

}  // namespace
}  // namespace deep_jit::testing
