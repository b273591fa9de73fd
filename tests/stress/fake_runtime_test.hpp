// SPDX-License-Identifier: MIT
//
// FakeRuntimeTest: a cache root, and runtimes over FakeBackend that use it.
//
// What: what the tests of crashes, faults and races share: an expected kernel, and the states in
// which a root may be found. Each "compile" writes two files with one stamp and the process's id,
// so that files of two writers in one entry show.
// When not: tests of what a real compiler does use HostTest.
//
// Errors: a failed step fails the test. Thread-safety: for the test's own thread; fork freely.
#pragma once

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/cache/build_directory.hpp"
#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit::testing {

class FakeRuntimeTest : public ScratchTest {
 protected:
  using FakeRuntime = Runtime<FakeBackend>;

  FakeRuntimeTest() : ScratchTest(fast_directory()) {
    fake().compiles = 0;
    fake().on_compile = [this](const std::filesystem::path& directory) {
      const std::string stamp = std::to_string(::getpid());
      write_file_sync(directory / "first_stamp", stamp);
      if (on_compile_) on_compile_();
      make_dirs(directory / "sub");
      write_file_sync(directory / "sub/second_stamp", stamp);
    };
    old_sink_ = set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) warnings_.emplace_back(line);
    });
  }
  ~FakeRuntimeTest() override {
    set_log_sink(old_sink_);
    fake().on_compile = nullptr;
  }

  FakeRuntime make_runtime() const { return FakeRuntime(Config(scratch(), "TESTLIB")); }

  // In memory where that is possible: thousands of compiles take seconds there, and a minute on a
  // disk. (Tests of the Host backend and of DiskCache use the disk.)
  static std::filesystem::path fast_directory() {
    return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ::testing::TempDir();
  }

  // The content of the kernel that a new runtime gets.
  std::string compile(const std::string& source = "source") const {
    return make_runtime().compile("kernel", source)->content;
  }

  // The published entry of `source`, checked; nullopt when there is none that may be used.
  std::optional<std::filesystem::path> find(const std::string& source = "source",
                                            const std::string& tag = "kernel") const {
    auto runtime = make_runtime();
    return runtime.disk_cache.lookup(tag,
                                     runtime.cache_key(source, runtime.default_compiler_options));
  }

  // True when all files of an entry come from one writer.
  static bool has_one_writer(const std::filesystem::path& entry) {
    const std::string stamp = read(entry / "first_stamp");
    return !stamp.empty() && stamp == read(entry / "sub/second_stamp");
  }

  // What is left in tmp/ once a sweep found it old.
  std::vector<std::string> left_after_sweep() const {
    sweep_build_directories(cache_root(), std::time(nullptr) + 2 * 3600);
    return unfinished();
  }

  // Flips a byte of the published artifact.
  void damage() const {
    const auto artifact = *find() / "artifact";
    std::string content = read(artifact);
    content.back() ^= 1;
    write_file_sync(artifact, content);
  }

  // Called in the middle of each compile.
  std::function<void()> on_compile_;
  std::vector<std::string> warnings_;

 private:
  LogSink old_sink_;
};

inline constexpr std::string_view kFakeContent =
    "-O1 source";  // of "source" compiled by FakeBackend

}  // namespace deep_jit::testing
