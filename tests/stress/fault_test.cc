// SPDX-License-Identifier: MIT
//
// Filesystems that fail: full, without locks, busy, stale, broken; at named places and at every
// system call in turn.
#include <cerrno>
#include <filesystem>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/stress/fake_runtime_test.hpp"
#include "tests/stress/faults.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FaultTest : public FakeRuntimeTest {
 protected:
  // What must hold after any trouble, once it is over.
  void expect_recovery() {
    if (const auto entry = find()) {
      EXPECT_EQ(read(*entry / "artifact"), kFakeContent);
    }
    EXPECT_EQ(compile(), kFakeContent);
    EXPECT_TRUE(find().has_value());
    EXPECT_THAT(published(), SizeIs(1));
    EXPECT_THAT(left_after_sweep(), IsEmpty());
  }
};

// --- A full or broken disk ---

TEST_F(FaultTest, FullDiskWhilePublishingDoesNotCostTheKernel) {
  const std::vector<std::pair<std::string, Fault>> faults = {
      {"metadata", {.calls = {Call::kOpen}, .path_part = "meta.json", .error = ENOSPC}},
      {"manifest", {.calls = {Call::kOpen}, .path_part = ".committed", .error = ENOSPC}},
      {"cache directory",
       {.calls = {Call::kMkdir}, .path_part = "cache_root/cache", .error = ENOSPC}},
      {"rename", {.calls = {Call::kRename}, .error = ENOSPC}},
      {"quota", {.calls = {Call::kRename}, .error = EDQUOT}},
      {"removed meanwhile", {.calls = {Call::kRename}, .error = EROFS}},
  };
  for (const auto& [name, fault] : faults) {
    SCOPED_TRACE(name);
    safe_remove_all(cache_root());
    warnings_.clear();
    auto runtime = make_runtime();
    {
      const FaultScope scope(fault);
      EXPECT_EQ(runtime.compile("kernel", "source")->content, kFakeContent);
      EXPECT_GE(scope.failed(), 1);
    }
    EXPECT_EQ(runtime.disk_cache.counters().kept_private, 1U);
    EXPECT_EQ(runtime.disk_cache.counters().published, 0U);
    EXPECT_THAT(published(), IsEmpty());
    EXPECT_THAT(unfinished(), IsEmpty());
    EXPECT_THAT(warnings_,
                ElementsAre(AllOf(HasSubstr("a compiled kernel is used without being kept"),
                                  HasSubstr(cache_root().string()), HasSubstr("(errno "))));
    // Who asks for a directory needs one that stays.
    {
      const FaultScope scope(fault);
      DJ_EXPECT_ERROR(exception::CacheError, runtime.compile_without_load("kernel", "source"),
                      AllOf(HasSubstr(cache_root().string()), HasSubstr("(errno ")));
    }
    EXPECT_THAT(unfinished(), IsEmpty());
    expect_recovery();
  }
}

TEST_F(FaultTest, FullDiskInTheMiddleOfAFile) {
  for (const int error : {ENOSPC, EIO}) {
    for (const Call call : {Call::kWrite, Call::kSync}) {
      safe_remove_all(cache_root());
      int failed = 0;
      for (int skip = 0;; ++skip) {
        safe_remove_all(cache_root());
        const FaultScope scope({.calls = {call}, .error = error, .skip = skip});
        try {
          EXPECT_EQ(compile(), kFakeContent);
        } catch (const exception::Exception& failure) {
          // The compiler's own files: nothing to go on with.
          EXPECT_THAT(failure.message, AllOf(HasSubstr(cache_root().string() + "/tmp/"),
                                             HasSubstr(exception::errno_text(error))));
          ++failed;
        }
        EXPECT_THAT(unfinished(), IsEmpty());
        EXPECT_LE(published().size(), 1U);
        if (scope.failed() == 0) break;
        EXPECT_THAT(published(), SizeIs(find().has_value() ? 1 : 0));
      }
      EXPECT_EQ(failed, 3);  // FakeBackend's three files
    }
  }
  expect_recovery();
}

TEST_F(FaultTest, NoSpaceForABuildNamesWhatToSet) {
  const FaultScope scope({.calls = {Call::kMkdir}, .path_part = "/tmp", .error = ENOSPC});
  DJ_EXPECT_ERROR(exception::CacheError, compile(),
                  AllOf(HasSubstr("failed to create directory: " + cache_root().string()),
                        HasSubstr("No space left on device"),
                        HasSubstr("set TESTLIB_JIT_CACHE_DIR to a directory")));
  EXPECT_EQ(fake().compiles, 0);
}

// --- Network filesystems ---

TEST_F(FaultTest, WithoutLocksItIsSlowerAndStillRight) {
  for (const int error : {ENOLCK, EOPNOTSUPP, EACCES, EINVAL}) {
    safe_remove_all(cache_root());
    const FaultScope scope({.calls = {Call::kLock}, .error = error});
    ProcessEvent compiling;
    ProcessEvent go;
    std::vector<ChildProcess> children;
    for (int i = 0; i < 4; ++i) {
      children.emplace_back([&] {
        on_compile_ = [&] {
          compiling.signal();
          go.wait();
        };
        return compile() == kFakeContent ? 0 : 1;
      });
    }
    compiling.wait(4);  // at the same time: there is no lock
    EXPECT_EQ(scope.failed(), 0);
    go.signal(4);
    for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
    ASSERT_THAT(published(), SizeIs(1));
    EXPECT_TRUE(has_one_writer(*find()));
    EXPECT_THAT(unfinished(), IsEmpty());
  }
}

TEST_F(FaultTest, StaleHandleIsLookedForAgain) {
  compile();
  const std::vector<std::pair<std::string, Fault>> faults = {
      {"manifest", {.calls = {Call::kOpen}, .path_part = ".committed", .error = ESTALE}},
      {"status of the manifest", {.calls = {Call::kStat}, .error = ESTALE}},
      {"artifact", {.calls = {Call::kOpen}, .path_part = "artifact", .error = ESTALE}},
      {"directory", {.calls = {Call::kOpen}, .path_part = "/cache/kernel.", .error = ESTALE}},
      {"bytes", {.calls = {Call::kRead}, .error = ESTALE}},
  };
  for (auto [name, fault] : faults) {
    SCOPED_TRACE(name);
    auto runtime = make_runtime();
    const std::string key = runtime.cache_key("source", runtime.default_compiler_options);
    {
      fault.times = 1;
      const FaultScope scope(fault);
      EXPECT_TRUE(runtime.disk_cache.lookup("kernel", key).has_value());
      EXPECT_EQ(scope.failed(), 1);
    }
    EXPECT_EQ(runtime.disk_cache.counters().hits, 1U);
    {
      fault.times = 100;
      const FaultScope scope(fault);
      EXPECT_FALSE(runtime.disk_cache.lookup("kernel", key).has_value());
      EXPECT_EQ(scope.failed(), 2);  // once more, then it is a miss
    }
    EXPECT_EQ(runtime.disk_cache.counters().unreadable, 1U);
    EXPECT_EQ(runtime.disk_cache.counters().damaged, 0U);
  }
}

TEST_F(FaultTest, EntryThatCannotBeSeenIsCompiledAgainAndThenFound) {
  compile();
  auto runtime = make_runtime();
  // Two looks, before and under the lock, of two tries each.
  const FaultScope scope(
      {.calls = {Call::kOpen}, .path_part = ".committed", .error = ESTALE, .times = 4});
  EXPECT_EQ(runtime.compile("kernel", "source")->content, kFakeContent);
  EXPECT_EQ(fake().compiles, 2);
  EXPECT_EQ(runtime.disk_cache.counters().unreadable, 2U);
  EXPECT_EQ(runtime.disk_cache.counters().publish_races, 1U);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(FaultTest, BusyFilesStayUntilTheNextSweep) {
  // A compile that fails, and a race that is lost: both have a build to remove.
  on_compile_ = [] { DJ_PANIC("broken"); };
  {
    const FaultScope scope({.calls = {Call::kRemove}, .error = EBUSY});
    DJ_EXPECT_ERROR(exception::Exception, compile(), HasSubstr("broken"));
    EXPECT_GE(scope.failed(), 1);
  }
  on_compile_ = [this] {
    on_compile_ = nullptr;
    // Without a lock of ours, another process is first.
    ChildProcess winner([this] { return compile() == kFakeContent ? 0 : 1; });
    EXPECT_EQ(winner.wait(), 0);
  };
  {
    const FaultScope scope({.calls = {Call::kRemove, Call::kLock}, .error = EBUSY});
    EXPECT_EQ(compile(), kFakeContent);
    EXPECT_GE(scope.failed(), 1);
  }
  on_compile_ = nullptr;
  EXPECT_THAT(published(), SizeIs(1));
  EXPECT_THAT(unfinished(), SizeIs(2));
  sweep_build_directories(cache_root(), std::time(nullptr) + 25 * 3600);
  EXPECT_THAT(unfinished(), IsEmpty());
}

// --- Every call in turn ---

class AnyCallTest : public FaultTest, public ::testing::WithParamInterface<int> {};

TEST_P(AnyCallTest, AnswersWithAKernelOrAnErrorAndRecovers) {
  const int error = GetParam();
  for (const bool starts_damaged : {false, true}) {
    for (const int times : {1, 1 << 30}) {
      for (int call = 0;; ++call) {
        SCOPED_TRACE(std::format("call {}, {} times", call, times));
        safe_remove_all(cache_root());
        if (starts_damaged) {
          compile();
          damage();
        }
        bool is_over = false;
        {
          const FaultScope scope({.error = error, .skip = call, .times = times});
          try {
            EXPECT_EQ(compile(), kFakeContent);
          } catch (const exception::Exception& failure) {
            EXPECT_THAT(failure.message, HasSubstr(exception::errno_text(error)));
          }
          is_over = scope.failed() == 0;
        }
        expect_recovery();
        if (is_over || HasFailure()) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, AnyCallTest,
                         ::testing::Values(EACCES, EBUSY, EIO, EMFILE, ENOSPC, EROFS, ESTALE),
                         [](const auto& info) { return std::format("Errno{}", info.param); });

TEST_F(FaultTest, InterruptedCallsAreRepeated) {
  for (const Call call : {Call::kOpen, Call::kLock, Call::kRead, Call::kWrite, Call::kSync}) {
    for (int skip = 0;; ++skip) {
      safe_remove_all(cache_root());
      const FaultScope scope({.calls = {call}, .error = EINTR, .skip = skip, .times = 2});
      EXPECT_EQ(compile(), kFakeContent);
      EXPECT_TRUE(find().has_value());
      if (scope.failed() == 0) break;
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace deep_jit::testing
