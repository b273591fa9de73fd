// SPDX-License-Identifier: MIT
//
// ScratchTest: a fixture with a folder of its own, and an environment that is put back afterwards.
//
// What: what the tests of key, runtime and backend/host share: files, scripts that stand in for
// compilers, environment variables. The variables that steer DeepJIT are unset at the start.
// When not: a test that needs neither files nor variables is a plain TEST.
//
// Errors: a failed step fails the test. Thread-safety: for the test's own thread.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/unique_name.hpp"

namespace deep_jit::testing {

class ScratchTest : public ::testing::Test {
 protected:
  explicit ScratchTest(const std::filesystem::path& parent = ::testing::TempDir())
      : scratch_(parent / unique_name()) {
    make_dirs(scratch_);
    for (const char* name :
         {"CXX", "CPATH", "DJ_JIT_DEBUG", "DJ_JIT_CXX_COMPILER", "DJ_JIT_CPP_STANDARD",
          "DJ_JIT_NUM_THREADS", "DJ_JIT_CACHE_DIR", "DJ_JIT_PRINT_COMPILER_COMMAND",
          "DJ_JIT_PRINT_LOAD_TIME", "DJ_JIT_DUMP_ASM"}) {
      unset_env(name);
    }
    set_env("TESTLIB_JIT_CACHE_DIR", cache_root().string());
    set_env("HOME", scratch_.string());
  }

  ~ScratchTest() override {
    for (const auto& [name, value] : old_environment_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
    safe_remove_all(scratch_);
  }

  const std::filesystem::path& scratch() const { return scratch_; }
  std::filesystem::path cache_root() const { return scratch_ / "cache_root"; }

  // --- Environment ---

  void set_env(const std::string& name, const std::string& value) {
    old_environment_.emplace(name, try_get_env<std::string>(name));
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void unset_env(const std::string& name) {
    old_environment_.emplace(name, try_get_env<std::string>(name));
    ::unsetenv(name.c_str());
  }

  // --- Files ---

  std::filesystem::path write(const std::filesystem::path& relative, std::string_view text) const {
    const auto path = scratch_ / relative;
    make_dirs(path.parent_path());
    write_file_sync(path, text);
    return path;
  }

  std::filesystem::path write_script(const std::filesystem::path& relative,
                                     std::string_view body) const {
    // Renamed into place: a file that is open for writing in a process forked meanwhile cannot be
    // executed.
    const auto part = write(relative.string() + ".part", "#!/bin/sh\n" + std::string(body));
    std::filesystem::permissions(part, std::filesystem::perms::owner_all);
    std::filesystem::rename(part, scratch_ / relative);
    return scratch_ / relative;
  }

  static std::size_t count_lines(const std::filesystem::path& path) {
    std::size_t lines = 0;
    if (std::filesystem::exists(path)) {
      for (const char c : read(path)) lines += c == '\n';
    }
    return lines;
  }

  // Names in a directory, sorted; empty when it does not exist.
  static std::vector<std::string> list(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    if (std::filesystem::exists(directory)) {
      for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        names.push_back(entry.path().filename().string());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> published() const { return list(cache_root() / "cache"); }
  std::vector<std::string> unfinished() const { return list(cache_root() / "tmp"); }

 private:
  std::filesystem::path scratch_;
  std::map<std::string, std::optional<std::string>> old_environment_;
};

// Expects `statement` to throw `Type` with a text that matches.
#define DJ_EXPECT_ERROR(Type, statement, matcher)                              \
  EXPECT_THAT([&] { statement; }, ::testing::Throws<Type>(::testing::Property( \
                                      &::deep_jit::exception::Exception::what, matcher)))

}  // namespace deep_jit::testing
