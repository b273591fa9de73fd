// SPDX-License-Identifier: MIT
#include "deep_jit/base/file_descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "deep_jit/base/filesystem.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

bool is_open_fd(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(FileDescriptorTest, ClosesAtTheEndOfItsScope) {
  int fd = -1;
  {
    const FileDescriptor file = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
    fd = file.get();
    EXPECT_TRUE(file.is_open());
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_FALSE(is_open_fd(fd));
}

TEST(FileDescriptorTest, MoveTransfersAndClosesTheOldOne) {
  FileDescriptor first = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
  FileDescriptor second = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
  const int first_fd = first.get();
  const int second_fd = second.get();
  first = std::move(second);
  EXPECT_EQ(first.get(), second_fd);
  EXPECT_FALSE(second.is_open());
  EXPECT_FALSE(is_open_fd(first_fd));
  const FileDescriptor third(std::move(first));
  EXPECT_EQ(third.get(), second_fd);
}

TEST(FileDescriptorTest, ReleaseGivesItUp) {
  FileDescriptor file = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
  const int fd = file.release();
  EXPECT_FALSE(file.is_open());
  EXPECT_TRUE(file.close());
  EXPECT_TRUE(is_open_fd(fd));
  ::close(fd);
}

TEST(FileDescriptorTest, CloseReportsFailureAndKeepsErrnoOnSuccess) {
  FileDescriptor good = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
  errno = 77;
  EXPECT_TRUE(good.close());
  EXPECT_EQ(errno, 77);
  FileDescriptor bad = open_file(AT_FDCWD, "/dev/null", O_RDONLY);
  ::close(bad.get());
  EXPECT_FALSE(bad.close());
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(bad.is_open());
}

TEST(FileDescriptorTest, OpenFailureLeavesErrno) {
  const FileDescriptor file = open_file(AT_FDCWD, "/no/such/file", O_RDONLY);
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(errno, ENOENT);
}

TEST(FileDescriptorTest, WritesAndReadsBack) {
  const TestDirectory directory;
  const std::string data("a\0b\xff", 4);
  const FileDescriptor file =
      open_file(AT_FDCWD, (directory / "f").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_TRUE(write_all(file.get(), data));
  EXPECT_TRUE(sync_file(file.get()));
  ASSERT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  char buffer[8];
  EXPECT_EQ(read_some(file.get(), buffer, sizeof(buffer)), 4);
  EXPECT_EQ(std::string(buffer, 4), data);
  EXPECT_EQ(read_some(file.get(), buffer, sizeof(buffer)), 0);
  EXPECT_FALSE(write_all(-1, "x"));
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(sync_file(-1));
}

TEST(FileDescriptorTest, FullDeviceIsAnError) {
  const FileDescriptor full = open_file(AT_FDCWD, "/dev/full", O_WRONLY);
  ASSERT_TRUE(full.is_open());
  EXPECT_FALSE(write_all(full.get(), "x"));
  EXPECT_EQ(errno, ENOSPC);
}

}  // namespace
}  // namespace deep_jit
