// SPDX-License-Identifier: MIT
#include "deep_jit/base/filesystem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const exception::Exception& error) {
    return error.message;
  }
  return "nothing thrown";
}

std::string all_bytes(int repeats) {
  std::string bytes;
  for (int i = 0; i < repeats; ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      bytes += static_cast<char>(byte);
    }
  }
  return bytes;
}

TEST(FilesystemTest, WritesAndReadsAnyBytes) {
  const TestDirectory directory;
  for (const std::string& data : {all_bytes(257), std::string(), std::string("\0", 1)}) {
    write_file_sync(directory / "f", data);
    EXPECT_EQ(read(directory / "f"), data);
  }
}

TEST(FilesystemTest, WriteReplacesAndKeepsUmask) {
  const TestDirectory directory;
  write_file_sync(directory / "f", "a long first text");
  write_file_sync(directory / "f", "short");
  EXPECT_EQ(read(directory / "f"), "short");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat status{};
  ASSERT_EQ(::stat((directory / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

TEST(FilesystemTest, ReadsFilesWithoutASize) {
  EXPECT_THAT(read("/proc/self/status"), HasSubstr("Pid:\t" + std::to_string(::getpid())));
}

TEST(FilesystemTest, ReadAndWriteErrorsCarryPathAndReason) {
  const TestDirectory directory;
  const fs::path missing = directory / "no/such/file";
  EXPECT_THAT(error_of([&] { read(missing); }),
              AllOf(HasSubstr("failed to open for reading"), HasSubstr(missing.string()),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([&] { write_file_sync(missing, "x"); }),
              AllOf(HasSubstr("failed to open for writing"), HasSubstr(missing.string()),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([&] { read(directory.path()); }), HasSubstr("Is a directory"));
  EXPECT_THAT(error_of([] { write_file_sync("/dev/full", "x"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device")));
}

TEST(FilesystemTest, TryReadRegularRefusesEverythingElse) {
  const TestDirectory directory;
  std::string content = "old";
  write_file_sync(directory / "f", "12345");
  EXPECT_EQ(try_read_regular(directory / "f", 5, content), 0);
  EXPECT_EQ(content, "12345");
  EXPECT_EQ(try_read_regular(directory / "f", 4, content), EFBIG);
  fs::create_symlink(directory / "f", directory / "link");
  EXPECT_EQ(try_read_regular(directory / "link", 5, content), ELOOP);
  EXPECT_EQ(try_read_regular(directory.path(), 5, content), EINVAL);
  EXPECT_EQ(try_read_regular(directory / "none", 5, content), ENOENT);
  EXPECT_EQ(content, "");
  EXPECT_EQ(try_read_regular(directory / "f/below", 5, content), ENOTDIR);
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(try_read_regular(directory / "fifo", 5, content), EINVAL);  // and does not hang
}

TEST(FilesystemTest, FsyncWalksTreesAndLeavesLinksAlone) {
  const TestDirectory directory;
  make_dirs(directory / "a/b");
  write_file_sync(directory / "a/b/f", "x");
  fs::create_symlink("/no/such/target", directory / "a/dangling");
  fs::create_symlink("/proc", directory / "a/b/proc");
  EXPECT_NO_THROW(fsync_dir(directory.path()));
  EXPECT_NO_THROW(fsync_file(directory / "a/b/f"));
  EXPECT_NO_THROW(fsync_file(directory / "a"));
  EXPECT_THAT(
      error_of([&] { fsync_dir(directory / "none"); }),
      AllOf(HasSubstr((directory / "none").string()), HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([&] { fsync_file(directory / "none"); }), HasSubstr("failed to fsync"));
}

TEST(FilesystemTest, MakeDirs) {
  const TestDirectory directory;
  make_dirs(directory / "a/b/c");
  make_dirs(directory / "a/b/c");
  EXPECT_TRUE(fs::is_directory(directory / "a/b/c"));
  fs::create_directory_symlink(directory / "a", directory / "link");
  make_dirs(directory / "link/d");
  EXPECT_TRUE(fs::is_directory(directory / "a/d"));
  write_file_sync(directory / "file", "");
  EXPECT_THAT(error_of([&] { make_dirs(directory / "file"); }),
              AllOf(HasSubstr("failed to create directory"), HasSubstr("Not a directory")));
  EXPECT_THAT(error_of([&] { make_dirs(directory / "file/below"); }),
              AllOf(HasSubstr((directory / "file/below").string()), HasSubstr("Not a directory")));
}

TEST(FilesystemTest, MakeDirsFromManyThreads) {
  const TestDirectory directory;
  for (int round = 0; round < 20; ++round) {
    const fs::path path = directory / (std::to_string(round) + "/a/b/c/d");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] { EXPECT_NO_THROW(make_dirs(path)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_TRUE(fs::is_directory(path));
  }
}

TEST(FilesystemTest, RemovesTreesFilesAndNothing) {
  const TestDirectory directory;
  make_dirs(directory / "tree/a/b");
  for (int i = 0; i < 300; ++i) {
    write_file_sync(directory / ("tree/a/" + std::to_string(i)), "x");
  }
  ASSERT_EQ(::mkfifo((directory / "tree/fifo").c_str(), 0600), 0);
  write_file_sync(directory / "file", "x");
  safe_remove_all(directory / "tree/");
  safe_remove_all(directory / "file");
  safe_remove_all(directory / "none");
  safe_remove_all(directory / "none/below");
  safe_remove_all("");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{});
}

TEST(FilesystemTest, RemovalNeverFollowsLinks) {
  const TestDirectory directory;
  make_dirs(directory / "kept/sub");
  write_file_sync(directory / "kept/sub/f", "precious");
  make_dirs(directory / "tree");
  fs::create_directory_symlink(directory / "kept", directory / "tree/link");
  fs::create_symlink(directory / "kept/sub/f", directory / "tree/file_link");
  fs::create_symlink("/no/such/target", directory / "tree/dangling");
  fs::create_directory_symlink(directory / "kept", directory / "top");
  fs::create_directory_symlink(directory / "kept", directory / "top_slash");
  safe_remove_all(directory / "tree");
  safe_remove_all(directory / "top");
  safe_remove_all(directory / "top_slash/");
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"kept"});
  EXPECT_EQ(read(directory / "kept/sub/f"), "precious");
}

TEST(FilesystemTest, RemovalIsSilentAndKeepsErrno) {
  errno = 55;
  safe_remove_all("/proc/self/status");
  EXPECT_EQ(errno, 55);
  EXPECT_TRUE(fs::exists("/proc/self/status"));
}

TEST(FilesystemTest, UpdatesMtime) {
  const TestDirectory directory;
  write_file_sync(directory / "f", "x");
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory / "f").c_str(), old, 0), 0);
  EXPECT_TRUE(try_update_mtime(directory / "f"));
  struct stat status{};
  ASSERT_EQ(::stat((directory / "f").c_str(), &status), 0);
  EXPECT_GT(status.st_mtim.tv_sec, 1000);
  EXPECT_FALSE(try_update_mtime(directory / "none"));
}

TEST(FilesystemTest, NormalizesPaths) {
  EXPECT_EQ(normalize_path(std::nullopt), std::nullopt);
  EXPECT_EQ(normalize_path(fs::path()), std::nullopt);
  EXPECT_EQ(normalize_path(fs::path("/a/./b//../c")), fs::path("/a/c"));
  EXPECT_EQ(normalize_path(fs::path("x/../y")), fs::current_path() / "y");
}

TEST(FilesystemTest, IsExecutable) {
  const TestDirectory directory;
  write_file_sync(directory / "f", "#!/bin/sh\n");
  EXPECT_FALSE(is_executable(directory / "f"));
  fs::permissions(directory / "f", fs::perms::owner_all);
  EXPECT_TRUE(is_executable(directory / "f"));
  fs::create_symlink("f", directory / "link");
  EXPECT_TRUE(is_executable(directory / "link"));
  EXPECT_FALSE(is_executable(directory.path()));
  EXPECT_FALSE(is_executable(directory / "none"));
}

}  // namespace
}  // namespace deep_jit
