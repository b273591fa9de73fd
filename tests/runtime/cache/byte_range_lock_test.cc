// SPDX-License-Identifier: MIT
#include "deep_jit/cache/byte_range_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace {
// While not 0, setting a lock fails with this error: a filesystem without locks.
int injected_lock_error = 0;
}  // namespace

// Takes the place of libc's in this test.
extern "C" int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command == F_OFD_SETLK and injected_lock_error != 0) {
    errno = injected_lock_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}

namespace deep_jit {
namespace {

class ByteRangeLockTest : public ::testing::Test {
 protected:
  bool is_taken(std::int64_t offset) const {
    return not ByteRangeLock::try_acquire(file_, offset).has_value();
  }
  // As another process sees it.
  bool is_taken_elsewhere(std::int64_t offset) const {
    ChildProcess child([&] { return is_taken(offset) ? 1 : 0; });
    return child.wait() == 1;
  }

  const TestDirectory directory_;
  const std::filesystem::path file_ = directory_ / "lock";
};

TEST_F(ByteRangeLockTest, ExcludesOthersUntilReleased) {
  std::optional<ByteRangeLock> lock = ByteRangeLock::try_acquire(file_, 5);
  ASSERT_TRUE(lock.has_value());
  EXPECT_TRUE(lock->is_locked());
  EXPECT_TRUE(is_taken(5));
  EXPECT_TRUE(is_taken_elsewhere(5));
  lock->release();
  EXPECT_FALSE(lock->is_locked());
  EXPECT_FALSE(is_taken(5));
  EXPECT_FALSE(is_taken_elsewhere(5));
  lock->release();
}

TEST_F(ByteRangeLockTest, KeysAreIndependentAndShareOneFile) {
  const std::int64_t largest = ByteRangeLock::offset_of({.high = 0, .low = UINT64_MAX});
  EXPECT_LT(largest, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ByteRangeLock::offset_of({.high = 7, .low = 20}), 5);
  const ByteRangeLock a = ByteRangeLock::acquire(file_, 0);
  const ByteRangeLock b = ByteRangeLock::acquire(file_, 1);
  const ByteRangeLock c = ByteRangeLock::acquire(file_, largest);
  EXPECT_TRUE(a.is_locked() and b.is_locked() and c.is_locked());
  EXPECT_TRUE(is_taken(largest));
  EXPECT_FALSE(is_taken(largest - 1));
  EXPECT_FALSE(is_taken(2));
  EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{"lock"});
  EXPECT_EQ(std::filesystem::file_size(file_), 0U);
}

TEST_F(ByteRangeLockTest, MovesAndEndsWithItsObject) {
  {
    ByteRangeLock first = ByteRangeLock::acquire(file_, 1);
    ByteRangeLock second(std::move(first));
    EXPECT_FALSE(first.is_locked());
    EXPECT_TRUE(is_taken(1));
    ByteRangeLock third = ByteRangeLock::acquire(file_, 2);
    third = std::move(second);
    EXPECT_FALSE(is_taken(2));
    EXPECT_TRUE(is_taken(1));
  }
  EXPECT_FALSE(is_taken(1));
}

TEST_F(ByteRangeLockTest, KilledHolderReleases) {
  ProcessEvent locked;
  ChildProcess holder([&] {
    const ByteRangeLock lock = ByteRangeLock::acquire(file_, 9);
    locked.signal();
    for (;;) {
      ::pause();
    }
    return 0;
  });
  locked.wait();
  EXPECT_TRUE(is_taken(9));
  holder.kill();
  EXPECT_EQ(holder.wait(), 137);
  EXPECT_FALSE(is_taken(9));
}

TEST_F(ByteRangeLockTest, ForkedChildNeitherReleasesNorKeepsTheLock) {
  std::optional<ByteRangeLock> lock = ByteRangeLock::acquire(file_, 3);
  ChildProcess releases([&] {
    lock.reset();
    return 0;
  });
  EXPECT_EQ(releases.wait(), 0);
  EXPECT_TRUE(is_taken(3));

  ProcessEvent end;
  ChildProcess lives_on([&] {
    end.wait();
    return 0;
  });
  lock.reset();
  EXPECT_FALSE(is_taken(3));
  end.signal();
  EXPECT_EQ(lives_on.wait(), 0);
}

TEST_F(ByteRangeLockTest, HoldsUntilExitWithOneDescriptor) {
  const auto count_descriptors = [] {
    std::filesystem::directory_iterator open_files("/proc/self/fd");
    return std::distance(open_files, std::filesystem::directory_iterator());
  };
  ProcessEvent locked;
  ChildProcess holder([&] {
    const auto before = count_descriptors();
    for (std::int64_t offset = 10; offset < 40; offset += 2) {
      ByteRangeLock::hold_until_exit(file_, offset);
    }
    ByteRangeLock::hold_until_exit(directory_ / "none/lock", 1);  // nothing to hold
    if (count_descriptors() != before + 1) {
      return 1;
    }
    locked.signal();
    for (;;) {
      ::pause();
    }
    return 0;
  });
  locked.wait();
  EXPECT_TRUE(is_taken(10));
  EXPECT_FALSE(is_taken(11));
  EXPECT_TRUE(is_taken(38));
  holder.kill();
  EXPECT_EQ(holder.wait(), 137);
  EXPECT_FALSE(is_taken(10));
}

TEST_F(ByteRangeLockTest, AcquireWaitsForItsTurn) {
  // Each process adds 1 to a number in a file, 50 times, in two steps that only the lock protects.
  const std::filesystem::path number = directory_ / "number";
  constexpr int kProcesses = 4;
  constexpr int kRounds = 50;
  {
    open_file(AT_FDCWD, number.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  std::vector<ChildProcess> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const ByteRangeLock lock = ByteRangeLock::acquire(file_, 4);
        const FileDescriptor file = open_file(AT_FDCWD, number.c_str(), O_RDWR);
        std::int64_t value = 0;
        ::pread(file.get(), &value, sizeof(value), 0) == 0 ? value = 0 : value;
        std::this_thread::yield();
        ++value;
        if (::pwrite(file.get(), &value, sizeof(value), 0) != sizeof(value)) {
          return 1;
        }
      }
      return 0;
    });
  }
  for (ChildProcess& child : children) {
    EXPECT_EQ(child.wait(), 0);
  }
  std::int64_t value = 0;
  const FileDescriptor file = open_file(AT_FDCWD, number.c_str(), O_RDONLY);
  ASSERT_EQ(::pread(file.get(), &value, sizeof(value), 0), 8);
  EXPECT_EQ(value, kProcesses * kRounds);
}

TEST_F(ByteRangeLockTest, WaitCanBeCancelled) {
  const ByteRangeLock lock = ByteRangeLock::acquire(file_, 6);
  int asked = 0;
  const InterruptScope scope([&] { return ++asked == 3; });
  EXPECT_THROW(ByteRangeLock::acquire(file_, 6), exception::Interrupted);
  EXPECT_EQ(asked, 3);
}

TEST_F(ByteRangeLockTest, NoLockWhereThereIsNone) {
  const ByteRangeLock no_directory = ByteRangeLock::acquire(directory_ / "none/lock", 1);
  EXPECT_FALSE(no_directory.is_locked());
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS, EACCES}) {
    injected_lock_error = error;
    const std::optional<ByteRangeLock> lock = ByteRangeLock::try_acquire(file_, 1);
    injected_lock_error = 0;
    ASSERT_TRUE(lock.has_value()) << error;
    EXPECT_FALSE(lock->is_locked()) << error;
  }
  EXPECT_FALSE(ByteRangeLock().is_locked());
}

}  // namespace
}  // namespace deep_jit
