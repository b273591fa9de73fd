// SPDX-License-Identifier: MIT
//
// A directory of its own for one test, removed with everything in it.
//
// What: below ::testing::TempDir(), under a name that no other test process uses.
// When not: a test that needs to see what is left after a crash makes its own.
//
// Example:
//     const TestDirectory directory;
//     write_file_sync(directory / "a", "text");
//
// Errors: std::filesystem's. Thread-safety: immutable.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "deep_jit/base/unique_name.hpp"

namespace deep_jit {

class TestDirectory {
 public:
  TestDirectory()
      : path_(std::filesystem::canonical(::testing::TempDir()) / ("test-" + unique_name())) {
    std::filesystem::create_directories(path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Names in a directory; none when it does not exist.
inline std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; not error and entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  return names;
}

}  // namespace deep_jit
