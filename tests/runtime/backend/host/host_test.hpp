// SPDX-License-Identifier: MIT
//
// HostTest: a fixture with a Host configuration and the machine's real C++ compiler.
//
// What: adds to ScratchTest a Config whose environment prefix is TESTLIB, and a wrapper around the
// real compiler that counts compilations, and kernels without a Runtime around them. When not:
// tests that compile nothing use ScratchTest.
//
// Errors: fails the test when no compiler is found. Thread-safety: for the test's own thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit::testing {

class HostTest : public ScratchTest {
 protected:
  Config config() const {
    return Config(scratch(), "TESTLIB", "", {scratch() / "include"}, {"lib/"});
  }
  Env env() const { return Env("TESTLIB"); }

  std::shared_ptr<Runtime<Host>> make_runtime() const {
    return std::make_shared<Runtime<Host>>(config());
  }

  // A directory with the compiled source.
  std::filesystem::path compile_kernel(const std::string& source,
                                       const host::CompilerOptions& overrides = {}) const {
    const auto directory = scratch() / unique_name();
    make_dirs(directory);
    const auto options = host::CompilerOptions::default_options(env(), host::Device())
                             .override_with({.optimize_level = "1"})
                             .override_with(overrides);
    host::Compiler(host::find_toolchain(env(), config()))
        .compile(source, directory, env(), config(), options);
    return directory;
  }
  std::shared_ptr<host::Kernel> make_kernel(const std::string& source,
                                            const host::CompilerOptions& overrides = {}) const {
    return host::Kernel::load(compile_kernel(source, overrides), env());
  }
  static host::LaunchOptions dims(host::Dim3 grid, host::Dim3 block, int num_threads = 4) {
    return {.grid_dim = grid, .block_dim = block, .num_threads = num_threads};
  }

  // The real compiler, as a shell script would start it.
  std::string real_compiler() const {
    return format_command(host::find_toolchain(Env("NOBODY"), config()).command);
  }

  // Makes TESTLIB use the real compiler, counted. `before`: shell text that runs first.
  void count_compilations(const std::string& before = "") {
    const auto script =
        write_script("counting_compiler", "case \"$*\" in *--version*) ;; *)\necho run >> '" +
                                              count_file().string() + "'\n" + before +
                                              "\n;; esac\nexec " + real_compiler() + " \"$@\"\n");
    set_env("TESTLIB_JIT_CXX_COMPILER", script.string());
  }
  std::filesystem::path count_file() const { return scratch() / "count"; }
  std::size_t compilations() const { return count_lines(count_file()); }

  // Makes TESTLIB use a stand-in whose compilations run `body`.
  void fake_compiler(const std::string& body) {
    const auto script =
        write_script("fake_compiler",
                     "case \"$*\" in *--version*) echo 'fake 1.0'; exit 0;; esac\n" + body + "\n");
    set_env("TESTLIB_JIT_CXX_COMPILER", script.string());
  }
};

}  // namespace deep_jit::testing
