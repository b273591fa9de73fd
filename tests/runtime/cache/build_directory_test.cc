// SPDX-License-Identifier: MIT
#include "deep_jit/cache/build_directory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/unique_name.hpp"
#include "deep_jit/cache/byte_range_lock.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

constexpr std::time_t kHour = 3600;

class BuildDirectoryTest : public ::testing::Test {
 protected:
  fs::path root() const { return directory_ / "root"; }
  fs::path tmp() const { return root() / "tmp"; }

  // Something in tmp/ that was last changed `age` seconds ago.
  void age(const fs::path& path, std::time_t seconds) const {
    const timespec time{.tv_sec = now() - seconds, .tv_nsec = 0};
    const timespec times[2] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
  }
  std::string abandoned(std::time_t seconds, const std::string& suffix = "") const {
    const std::string name = unique_name() + suffix;
    make_dirs(tmp() / name / "sub");
    write_file_sync(tmp() / name / "sub/file", "x");
    age(tmp() / name, seconds);
    return name;
  }
  std::time_t now() const { return now_; }
  std::size_t sweep() const { return sweep_build_directories(root(), now()); }
  Names left() const { return names_in(tmp()); }

 private:
  const std::time_t now_ = std::time(nullptr);

 protected:
  const TestDirectory directory_;
};

// --- The directory ---

TEST_F(BuildDirectoryTest, IsRemovedWithItsObject) {
  fs::path path;
  {
    BuildDirectory build = BuildDirectory::create(root());
    path = build.path();
    EXPECT_EQ(path.parent_path(), tmp());
    EXPECT_TRUE(is_unique_name(path.filename().string()));
    EXPECT_LE(std::abs(build.made_at() - now()), kHour);
    write_file_sync(path / "file", "x");
    BuildDirectory moved = std::move(build);
    EXPECT_EQ(moved.path(), path);
    build = BuildDirectory::create(root());  // NOLINT: assigned after the move
    EXPECT_TRUE(fs::exists(path));
    build = std::move(moved);
    EXPECT_EQ(left(), Names{path.filename().string()});
  }
  EXPECT_EQ(left(), Names{});
}

TEST_F(BuildDirectoryTest, GivenUpStays) {
  BuildDirectory build = BuildDirectory::create(root());
  build.give_up();
  build.remove();
  EXPECT_TRUE(fs::exists(build.path()));
}

TEST_F(BuildDirectoryTest, ForkedChildDoesNotRemoveIt) {
  std::optional<BuildDirectory> build = BuildDirectory::create(root());
  ChildProcess child([&] {
    build.reset();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(fs::exists(build->path()));
  age(build->path(), 2 * kHour);
  EXPECT_EQ(sweep(), 0U);  // nor did it unlock it
}

TEST_F(BuildDirectoryTest, FailureNamesPathAndReason) {
  write_file_sync(root(), "a file");
  try {
    BuildDirectory::create(root());
    FAIL() << "made in a file";
  } catch (const exception::Exception& error) {
    EXPECT_THAT(error.message,
                ::testing::AllOf(::testing::HasSubstr(root().string()),
                                 ::testing::HasSubstr("Not a directory (errno 20)")));
  }
}

// --- Sweeping ---

TEST_F(BuildDirectoryTest, SweepsWhatADeadBuilderLeft) {
  ProcessEvent built;
  ChildProcess builder([&] {
    const BuildDirectory build = BuildDirectory::create(root());
    write_file_sync(build.path() / "kernel.so", "half");
    built.signal();
    for (;;) {
      ::pause();
    }
    return 0;
  });
  built.wait();
  const Names names = left();
  ASSERT_EQ(names.size(), 1U);
  const fs::path build = tmp() / *names.begin();

  age(build, 48 * kHour);
  EXPECT_EQ(sweep(), 0U);  // however old: its builder lives
  builder.kill();
  builder.wait();
  age(build, kHour - 60);
  EXPECT_EQ(sweep(), 0U);  // dead, but young
  age(build, kHour + 60);
  EXPECT_EQ(sweep(), 1U);
  EXPECT_EQ(left(), Names{});
}

TEST_F(BuildDirectoryTest, OwnBuildsOfThisProcessAreSafe) {
  const BuildDirectory build = BuildDirectory::create(root());
  age(build.path(), 48 * kHour);
  EXPECT_EQ(sweep(), 0U);
}

TEST_F(BuildDirectoryTest, KeptDirectoryLivesAsLongAsTheProcess) {
  ProcessEvent kept;
  ChildProcess keeper([&] {
    for (int i = 0; i < 3; ++i) {
      BuildDirectory::create(root()).keep_until_exit();
    }
    kept.signal();
    for (;;) {
      ::pause();
    }
    return 0;
  });
  kept.wait();
  const Names names = left();
  EXPECT_EQ(names.size(), 3U);
  for (const std::string& name : names) {
    age(tmp() / name, 2 * kHour);
  }
  EXPECT_EQ(sweep(), 0U);
  keeper.kill();
  keeper.wait();
  EXPECT_EQ(sweep(), 3U);
}

TEST_F(BuildDirectoryTest, TouchesNothingElse) {
  abandoned(0);
  const Names young = left();
  // Not of our making, by their names.
  for (const char* name : {"mine", "1234-stale", "-00000000-00000000-00000000",
                           "1-0000000g-00000000-00000000", "1-00000000-00000000-00000000-other"}) {
    make_dirs(tmp() / name);
    age(tmp() / name, 100 * kHour);
  }
  Names expected = left();
  const std::string gone = abandoned(2 * kHour);
  EXPECT_EQ(sweep(), 1U);
  EXPECT_EQ(left(), expected);
  EXPECT_TRUE(young.size() == 1 and expected.contains(*young.begin()));
}

TEST_F(BuildDirectoryTest, NeverFollowsLinks) {
  make_dirs(directory_ / "precious/sub");
  write_file_sync(directory_ / "precious/sub/file", "x");
  age(directory_ / "precious", 100 * kHour);
  make_dirs(tmp());
  // A link instead of a build, a link in a build, and a file in the place of a build.
  const fs::path link = tmp() / unique_name();
  fs::create_directory_symlink(directory_ / "precious", link);
  age(link, 2 * kHour);
  const std::string holder = abandoned(0);
  fs::create_directory_symlink(directory_ / "precious", tmp() / holder / "link");
  fs::create_symlink("/no/such/target", tmp() / holder / "dangling");
  age(tmp() / holder, 2 * kHour);
  const fs::path file = tmp() / unique_name();
  write_file_sync(file, "x");
  age(file, 2 * kHour);
  EXPECT_EQ(sweep(), 3U);
  EXPECT_EQ(left(), Names{});
  EXPECT_EQ(read(directory_ / "precious/sub/file"), "x");

  // tmp/ itself somewhere else: whose is that?
  fs::remove(tmp());
  make_dirs(directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", tmp());
  abandoned(2 * kHour);
  EXPECT_EQ(sweep(), 0U);
  EXPECT_EQ(left().size(), 1U);
}

TEST_F(BuildDirectoryTest, WithoutLocksOnlyWhatIsADayOld) {
  make_dirs(root() / "lock");  // cannot be opened for writing: no locks here
  {
    const BuildDirectory build = BuildDirectory::create(root());
    const std::string name = build.path().filename().string();
    EXPECT_TRUE(name.ends_with("-unlocked")) << name;
    EXPECT_TRUE(is_unique_name(name.substr(0, name.size() - 9)));
  }
  const std::string young = abandoned(23 * kHour);
  const std::string young_unlocked = abandoned(23 * kHour, "-unlocked");
  abandoned(25 * kHour);
  abandoned(25 * kHour, "-unlocked");
  EXPECT_EQ(sweep(), 2U);
  EXPECT_EQ(left(), (Names{young, young_unlocked}));

  // A sweeper that has locks still knows nothing of a builder that had none.
  fs::remove(root() / "lock");
  EXPECT_EQ(sweep(), 1U);
  EXPECT_EQ(left(), Names{young_unlocked});
}

TEST_F(BuildDirectoryTest, OneSweeperAtATime) {
  abandoned(2 * kHour);
  {
    const std::optional<ByteRangeLock> other =
        ByteRangeLock::try_acquire(root() / "lock", std::int64_t{1} << 62);
    ASSERT_TRUE(other.has_value() and other->is_locked());
    EXPECT_EQ(sweep(), 0U);
  }
  EXPECT_EQ(sweep(), 1U);
}

TEST_F(BuildDirectoryTest, WorkOfOneSweepIsBounded) {
  for (std::size_t i = 0; i < kMaxRemovalsPerSweep + 10; ++i) {
    make_dirs(tmp() / unique_name());
  }
  for (const std::string& name : left()) {
    age(tmp() / name, 2 * kHour);
  }
  EXPECT_EQ(sweep(), kMaxRemovalsPerSweep);
  EXPECT_EQ(sweep(), 10U);
}

TEST_F(BuildDirectoryTest, SweepOfNothingIsSilent) {
  errno = 7;
  EXPECT_EQ(sweep(), 0U);
  EXPECT_EQ(errno, 7);
  EXPECT_FALSE(fs::exists(root()));
}

TEST_F(BuildDirectoryTest, SweepIsDueOncePerRoot) {
  EXPECT_TRUE(is_sweep_due(root()));
  EXPECT_FALSE(is_sweep_due(root()));
  EXPECT_TRUE(is_sweep_due(directory_ / "other"));
}

}  // namespace
}  // namespace deep_jit
