// SPDX-License-Identifier: MIT
//
// Places and surroundings that a library does not choose: homes, users, umasks, odd names, locales,
// working directories.
#include <grp.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <format>
#include <functional>
#include <locale>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "tests/runtime/backend/host/host_test.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/stress/fake_runtime_test.hpp"

namespace deep_jit::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uid_t kNobody = 65534;
constexpr uid_t kNoPasswdEntry = 54321;

// Makes this process another user; false where a sandbox has only one.
bool become(uid_t user) {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
         ::setresuid(user, user, user) == 0;
}

bool can_become(uid_t user) {
  ChildProcess child([user] { return become(user) ? 0 : 1; });
  return child.wait() == 0;
}

#define DJ_SKIP_UNLESS_USERS()                                                         \
  if (!can_become(kNobody) || !can_become(kNoPasswdEntry)) {                           \
    GTEST_SKIP() << "only one user here: this needs root outside of a user namespace"; \
  }

// Few machines have such a locale installed: one made here.
struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\1"; }
  std::string do_truename() const override { return "oui"; }
};

class DirectoryTest : public FakeRuntimeTest {
 protected:
  // Runs `work` as somebody else in the scratch folder, to which that one may find the way closed.
  // 0 when it returns an empty text; what it returns is printed otherwise.
  int run_as(uid_t user, const std::function<std::string()>& work) const {
    ChildProcess child([&] {
      if (::chdir(scratch().c_str()) != 0 || !become(user)) return 2;
      const std::string complaint = work();
      std::fputs(complaint.c_str(), stderr);
      return complaint.empty() ? 0 : 1;
    });
    return child.wait();
  }

  static void set_roots(const std::string& roots) {
    ::setenv("TESTLIB_JIT_CACHE_DIR", roots.c_str(), 1);
  }

  // The error of a compile, in a child.
  std::string error_of_compile() const {
    try {
      compile();
    } catch (const exception::Exception& error) {
      return error.message;
    }
    return "nothing thrown";
  }
};

// --- Homes ---

TEST_F(DirectoryTest, WithoutAHomeTheErrorNamesWhatToSet) {
  unset_env("TESTLIB_JIT_CACHE_DIR");
  for (const bool is_empty : {false, true}) {
    is_empty ? set_env("HOME", "") : unset_env("HOME");
    DJ_EXPECT_ERROR(exception::Exception, make_runtime(),
                    AllOf(HasSubstr("HOME environment variable must not be empty"),
                          HasSubstr("TESTLIB_JIT_CACHE_DIR")));
  }
  set_env("DJ_JIT_CACHE_DIR", cache_root().string());
  EXPECT_EQ(compile(), kFakeContent);
}

TEST_F(DirectoryTest, AUserWithoutPasswdEntryNeedsOnlyADirectory) {
  DJ_SKIP_UNLESS_USERS();
  std::filesystem::permissions(scratch(), std::filesystem::perms::all);
  EXPECT_EQ(run_as(kNoPasswdEntry,
                   [&]() -> std::string {
                     ::unsetenv("HOME");
                     ::unsetenv("TESTLIB_JIT_CACHE_DIR");
                     const std::string error = error_of_compile();
                     if (error.find("TESTLIB_JIT_CACHE_DIR") == error.npos) return error;
                     set_roots("/proc/self/cwd/own");
                     return compile() == kFakeContent ? "" : "wrong kernel";
                   }),
            0);
}

TEST_F(DirectoryTest, AHomeThatCannotBeWrittenIsAnErrorThatNamesWhatToSet) {
  unset_env("TESTLIB_JIT_CACHE_DIR");
  set_env("HOME", "/proc");  // nobody may make a directory there, root neither
  auto runtime = make_runtime();
  DJ_EXPECT_ERROR(exception::CacheError, runtime.compile("kernel", "source"),
                  AllOf(HasSubstr("/proc/.dj"), HasSubstr("(errno "),
                        HasSubstr("set TESTLIB_JIT_CACHE_DIR to a directory")));
  EXPECT_EQ(fake().compiles, 0);
}

// --- Users ---

TEST_F(DirectoryTest, EntriesOfAReadOnlyRootAreHits) {
  DJ_SKIP_UNLESS_USERS();
  compile();
  EXPECT_EQ(run_as(kNobody,
                   [&]() -> std::string {
                     set_roots("/proc/self/cwd/cache_root");
                     fake().compiles = 0;
                     if (compile() != kFakeContent || fake().compiles != 0) return "no hit";
                     // And what is not there cannot be added, but is not refused before it is made.
                     const std::string error = [&] {
                       try {
                         compile("other source");
                       } catch (const exception::CacheError& failure) {
                         return failure.message;
                       }
                       return std::string("nothing thrown");
                     }();
                     return error.find("Permission denied") != error.npos ? "" : error;
                   }),
            0);
  EXPECT_THAT(published(), SizeIs(1));
}

TEST_F(DirectoryTest, WhatAnotherUserHidesIsAMissAndTheOwnRootIsUsed) {
  DJ_SKIP_UNLESS_USERS();
  std::filesystem::permissions(scratch(), std::filesystem::perms::all);
  // One user's umask hides everything, in a root that anybody may enter.
  EXPECT_EQ(run_as(kNobody,
                   [&]() -> std::string {
                     ::umask(077);
                     set_roots("/proc/self/cwd/theirs");
                     return compile() == kFakeContent ? "" : "wrong kernel";
                   }),
            0);
  struct stat status{};
  ASSERT_EQ(::stat((scratch() / "theirs/cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  for (const bool is_root_open : {false, true}) {
    if (is_root_open) {
      std::filesystem::permissions(scratch() / "theirs", std::filesystem::perms(0755));
      std::filesystem::permissions(scratch() / "theirs/cache", std::filesystem::perms(0755));
    }
    const std::string own = std::format("/proc/self/cwd/own{}", is_root_open);
    EXPECT_EQ(run_as(kNoPasswdEntry,
                     [&]() -> std::string {
                       set_roots(own + ":/proc/self/cwd/theirs");
                       fake().compiles = 0;
                       auto runtime = make_runtime();
                       if (runtime.compile("kernel", "source")->content != kFakeContent) {
                         return "wrong kernel";
                       }
                       if (fake().compiles != 1) return "not compiled";
                       if (runtime.disk_cache.counters().unreadable == 0) return "not noticed";
                       // A second time from the own root.
                       return compile() == kFakeContent && fake().compiles == 1 ? "" : "no hit";
                     }),
              0);
  }
}

TEST_F(DirectoryTest, AnUnusableEntryOfAnotherUserDoesNotCostTheKernel) {
  DJ_SKIP_UNLESS_USERS();
  // A shared root: everybody may add entries, but not replace those of others.
  for (const char* name : {"", "tmp", "cache"}) {
    make_dirs(cache_root() / name);
    ASSERT_EQ(::chmod((cache_root() / name).c_str(), 01777), 0);
  }
  compile();
  damage();
  EXPECT_EQ(run_as(kNobody,
                   [&]() -> std::string {
                     set_roots("/proc/self/cwd/cache_root");
                     auto runtime = make_runtime();
                     if (runtime.compile("kernel", "source")->content != kFakeContent) {
                       return "wrong kernel";
                     }
                     return runtime.disk_cache.counters().kept_private == 1 ? "" : "published?";
                   }),
            0);
  EXPECT_THAT(unfinished(), IsEmpty());
  EXPECT_FALSE(find().has_value());
  EXPECT_EQ(compile(), kFakeContent);  // its owner heals it
  EXPECT_TRUE(find().has_value());
}

TEST_F(DirectoryTest, UmaskDecidesWhoMayRead) {
  for (const auto& [mask, mode] : {std::pair<mode_t, unsigned>{022, 0644}, {077, 0600}}) {
    safe_remove_all(cache_root());
    ChildProcess child([&, mask = mask] {
      ::umask(mask);
      return compile() == kFakeContent ? 0 : 1;
    });
    EXPECT_EQ(child.wait(), 0);
    for (const char* name : {"artifact", "meta.json", ".committed"}) {
      struct stat status{};
      ASSERT_EQ(::stat((*find() / name).c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, mode) << name;
    }
  }
}

// --- Whatever a build leaves behind ---

TEST_F(DirectoryTest, CleaningUpNeverLeavesTheBuild) {
  make_dirs(scratch() / "precious/sub");
  write_file_sync(scratch() / "precious/sub/file", "x");
  std::filesystem::path build;
  const auto old_hook = fake().on_compile;
  fake().on_compile = [&](const std::filesystem::path& directory) {
    build = directory;
    std::filesystem::create_directory_symlink(scratch() / "precious", directory / "dir_link");
    std::filesystem::create_symlink(scratch() / "precious/sub/file", directory / "file_link");
    std::filesystem::create_symlink("/no/such/place", directory / "dangling");
    DJ_PANIC("failed after that");
  };
  DJ_EXPECT_ERROR(exception::Exception, compile(), HasSubstr("failed after that"));
  fake().on_compile = old_hook;
  EXPECT_EQ(read(scratch() / "precious/sub/file"), "x");
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(build)));
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(DirectoryTest, ABuildWithLinksIsRefused) {
  on_compile_ = [&] {
    const auto build = cache_root() / "tmp" / unfinished().front();
    std::filesystem::create_symlink("artifact", build / "alias");
  };
  DJ_EXPECT_ERROR(exception::CacheError, compile(),
                  AllOf(HasSubstr("must hold only regular files"), HasSubstr("alias")));
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
}

// --- Names, locales and working directories, with the Host backend ---

// The "compiler" copies a library that the real one made once.
class HostDirectoryTest : public HostTest {
 protected:
  static constexpr const char* kSource = "__global__ void half(float* x) { *x *= 0.5f; }\n";

  void SetUp() override {
    const auto prebuilt = scratch() / "prebuilt.so";
    std::filesystem::copy_file(make_runtime()->compile_without_load("half", kSource) / "kernel.so",
                               prebuilt);
    fake_compiler(std::format("cp '{}' kernel.so", prebuilt.string()));
    safe_remove_all(cache_root());
  }

  // Compiles, runs, and returns the entry.
  std::filesystem::path compile_and_run() const {
    auto runtime = make_runtime();
    const auto kernel = runtime->compile("half", kSource);
    float x = 3;
    runtime->launch(kernel, {.grid_dim = host::Dim3{1}, .block_dim = host::Dim3{1}}, &x);
    EXPECT_EQ(x, 1.5F);
    return runtime->compile_without_load("half", kSource);
  }
};

TEST_F(HostDirectoryTest, RootsWithAnyNameUnderTheCLocale) {
  set_env("LC_ALL", "C");
  for (const std::string name :
       {"with blanks", "quo'tes\"", "semi;colon", "$(touch pwned)", "`touch pwned`", "back\\slash",
        "new\nline", "-rf", "*?[a]", "\xe7\xbc\x93\xe5\xad\x98-\xc3\xa9", "not utf-8 \xff\xfe"}) {
    SCOPED_TRACE(name);
    const auto root = scratch() / "roots" / name;
    set_env("TESTLIB_JIT_CACHE_DIR", root.string());
    const auto entry = compile_and_run();
    EXPECT_EQ(entry.parent_path(), root / "cache");
    EXPECT_EQ(list(root / "tmp"), std::vector<std::string>{});
    // Parsing refuses what is not UTF-8.
    EXPECT_TRUE(nlohmann::json::accept(read(entry / "meta.json")));
  }
  EXPECT_FALSE(std::filesystem::exists("pwned"));
  EXPECT_FALSE(std::filesystem::exists(scratch() / "pwned"));
}

TEST_F(HostDirectoryTest, ALocaleWithCommasChangesNothing) {
  const auto look = [&] {
    safe_remove_all(cache_root());
    const auto entry = compile_and_run();
    auto runtime = make_runtime();
    return std::vector<std::string>{
        entry.filename().string(), read(entry / "meta.json"), read(entry / "kernel.cc"),
        read(entry / ".committed"),
        runtime->explain_key(kSource, runtime->default_compiler_options)};
  };
  const auto expected = look();
  const std::locale old = std::locale::global(std::locale(std::locale(), new Comma));
  // Where one is installed, C's too.
  const std::string old_c = ::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "tr_TR.UTF-8"}) {
    if (::setlocale(LC_ALL, name) != nullptr) break;
  }
  const auto found = look();
  ::setlocale(LC_ALL, old_c.c_str());
  std::locale::global(old);
  EXPECT_EQ(found, expected);
}

// With the real compiler.
using HostLocaleTest = HostTest;

TEST_F(HostLocaleTest, FloatLiteralsAreExactInAnyLocale) {
  const std::vector<float> values = {10, -10, -0.0F, 0.125F, 0.1F, 1234567.0F, 1e-30F};
  const auto make_source = [&] {
    std::string source = "__global__ void values(float* out) {\n";
    for (std::size_t i = 0; i < values.size(); ++i) {
      const char* sign = std::signbit(values[i]) ? "-" : "";
      source += std::format("  out[{}] = {}0x{:a}f;\n", i, sign, std::abs(values[i]));
    }
    return source + "}\n";
  };
  const std::string plain = make_source();
  const std::locale old = std::locale::global(std::locale(std::locale(), new Comma));
  const std::string source = make_source();
  auto runtime = make_runtime();
  const auto kernel = runtime->compile("values", source);
  std::vector<float> out(values.size());
  runtime->launch(kernel, {.grid_dim = host::Dim3{1}, .block_dim = host::Dim3{1}}, out.data());
  std::locale::global(old);
  EXPECT_EQ(source, plain);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(values[i]))
        << values[i];
  }
}

TEST_F(HostDirectoryTest, AWorkingDirectoryThatCannotBeWrittenStaysEmpty) {
  const auto old = std::filesystem::current_path();
  // Not even root may write to the first; the second is gone.
  make_dirs(scratch() / "gone");
  for (const std::filesystem::path& place : {std::filesystem::path("/proc"), scratch() / "gone"}) {
    safe_remove_all(cache_root());
    std::filesystem::current_path(place);
    if (place != "/proc") safe_remove_all(place);
    compile_and_run();
    std::filesystem::current_path(old);
  }
}

TEST_F(HostDirectoryTest, EightProcessesInOneDirectoryLeaveNothingThere) {
  const auto place = scratch() / "place";
  make_dirs(place);
  std::vector<ChildProcess> children;
  for (int i = 0; i < 8; ++i) {
    children.emplace_back([&] {
      std::filesystem::current_path(place);
      compile_and_run();
      return HasFailure() ? 1 : 0;
    });
  }
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(list(place), std::vector<std::string>{});
}

}  // namespace
}  // namespace deep_jit::testing
