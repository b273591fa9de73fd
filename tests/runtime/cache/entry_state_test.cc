// SPDX-License-Identifier: MIT
#include "deep_jit/cache/entry_state.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/cache/manifest.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

namespace fs = std::filesystem;

class EntryStateTest : public ::testing::Test {
 protected:
  fs::path make_entry() const {
    fs::remove_all(entry_);
    make_dirs(entry_ / "sub");
    write_file_sync(entry_ / "kernel.so", "binary");
    write_file_sync(entry_ / "sub/kernel.s", "text");
    write_file_sync(entry_ / kCommitFileName, Manifest::of_directory(entry_).serialize());
    return entry_;
  }

  const TestDirectory directory_;
  const fs::path entry_ = directory_ / "entry";
};

TEST_F(EntryStateTest, AbsentAndUncommitted) {
  EXPECT_EQ(check_entry(entry_), EntryState::kAbsent);
  make_dirs(entry_);
  EXPECT_EQ(check_entry(entry_), EntryState::kUncommitted);
  EXPECT_EQ(check_entry(directory_ / "entry/below"), EntryState::kAbsent);
}

TEST_F(EntryStateTest, WholeEntryIsValidAndUntouched) {
  const fs::path entry = make_entry();
  const auto before = fs::last_write_time(entry / kCommitFileName);
  EXPECT_EQ(check_entry(entry), EntryState::kValid);
  EXPECT_EQ(fs::last_write_time(entry / kCommitFileName), before);
  write_file_sync(entry / "notes.txt", "not in the manifest");
  EXPECT_EQ(check_entry(entry), EntryState::kValid);
}

TEST_F(EntryStateTest, OtherVersions) {
  const fs::path marker = make_entry() / kCommitFileName;
  const std::string text = read(marker);
  for (const char* version : {"0", "2", "999"}) {
    std::string other = text;
    other.replace(other.find(" 1\n"), 3, std::string(" ") + version + "\n");
    write_file_sync(marker, other);
    EXPECT_EQ(check_entry(entry_), EntryState::kOtherVersion) << version;
  }
}

TEST_F(EntryStateTest, DamageOfEveryKind) {
  const auto expect_damaged = [&](auto&& damage) {
    make_entry();
    damage();
    EXPECT_EQ(check_entry(entry_), EntryState::kDamaged);
  };
  expect_damaged([&] { write_file_sync(entry_ / "kernel.so", "binarY"); });
  expect_damaged([&] { write_file_sync(entry_ / "kernel.so", "binar"); });
  expect_damaged([&] { fs::remove(entry_ / "kernel.so"); });
  expect_damaged([&] {
    fs::remove(entry_ / "kernel.so");
    make_dirs(entry_ / "kernel.so");
  });
  expect_damaged([&] {
    fs::rename(entry_ / "kernel.so", directory_ / "moved");
    fs::create_symlink(directory_ / "moved", entry_ / "kernel.so");
  });
  expect_damaged([&] {
    fs::rename(entry_ / "sub", directory_ / "sub");
    fs::create_directory_symlink(directory_ / "sub", entry_ / "sub");
  });
  expect_damaged([&] { write_file_sync(entry_ / kCommitFileName, "nonsense"); });
}

TEST_F(EntryStateTest, WhatCannotBeReadIsNotDamaged) {
  write_file_sync(directory_ / "file", "");
  EXPECT_EQ(check_entry(directory_ / "file/entry"), EntryState::kUnreadable);
}

}  // namespace
}  // namespace deep_jit
