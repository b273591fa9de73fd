// SPDX-License-Identifier: MIT
//
// ToolkitTest: a fixture with a real CUDA toolkit, and no GPU.
//
// What: CUDA_HOME is the toolkit that the BUILD file names in CUDA_TOOLKIT. nvcc needs a host
// compiler: use_host_compiler(), in SetUp(), takes the g++ on PATH with the flags that this pair
// needs, which are found by trying; where none of them works the test is skipped with nvcc's own
// words. inspect() and disassemble() read back what is in a cubin.
// When not: what can be seen with a script in place of nvcc; see cuda_test.hpp.
//
// Errors: a failed step fails the test. Thread-safety: for the test's own thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "deep_jit/backend/cuda/backend.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::testing {

class ToolkitTest : public CudaTest {
 protected:
  ToolkitTest() { set_env("CUDA_HOME", home().string()); }

  void use_host_compiler() {
    const auto& [flags, complaint] = host_flags();
    if (!flags) GTEST_SKIP() << "nvcc works with no host compiler of this machine: " << complaint;
    // Part of the key, like all that nvcc reads.
    if (!flags->empty()) set_env("NVCC_PREPEND_FLAGS", *flags);
  }

  static std::filesystem::path home() {
    return std::filesystem::canonical(get_env<std::string>("CUDA_TOOLKIT"));
  }

  // --- What is in a cubin ---

  struct Usage {
    int registers = 0;
    int stack = 0;
    int shared = 0;
    int local = 0;
  };

  // By the name of the function, as cuobjdump tells it.
  static std::map<std::string, Usage> inspect(const std::filesystem::path& cubin) {
    const std::string text = run_checked_command(
        {.arguments = {home() / "bin/cuobjdump", "--dump-resource-usage", cubin}});
    const std::regex line(R"(Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+))");
    std::map<std::string, Usage> usages;
    for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
      const auto number = [&](std::size_t i) { return std::stoi((*match)[i]); };
      usages[(*match)[1]] = {number(2), number(3), number(4), number(5)};
    }
    return usages;
  }

  static std::string disassemble(const std::filesystem::path& cubin,
                                 const std::vector<std::string>& flags = {}) {
    std::vector<std::string> command = {home() / "bin/nvdisasm", cubin};
    command.insert(command.end(), flags.begin(), flags.end());
    return run_checked_command({.arguments = std::move(command)});
  }

 private:
  // The first flags with which nvcc compiles an empty kernel; none, and why, when there are none.
  static const std::pair<std::optional<std::string>, std::string>& host_flags() {
    static const auto found = [] {
      const std::string shim =
          std::filesystem::absolute("tests/cuda/toolkit/host_shim").lexically_normal();
      const auto folder = std::filesystem::path(::testing::TempDir()) / unique_name();
      make_dirs(folder);
      write_file_sync(folder / "empty.cu", "#include <functional>\n__global__ void empty() {}\n");
      std::pair<std::optional<std::string>, std::string> result;
      for (const std::string& flags : {std::string(), std::string("-allow-unsupported-compiler"),
                                       "-allow-unsupported-compiler -I" + shim}) {
        const CommandResult run =
            run_command({.arguments = {home() / "bin/nvcc", "--cubin", "-std=c++20", "empty.cu"},
                         .working_directory = folder,
                         .environment = {{"NVCC_PREPEND_FLAGS", flags}}});
        if (run.ok()) {
          result.first = flags;
          break;
        }
        result.second = run.output;
      }
      safe_remove_all(folder);
      return result;
    }();
    return found;
  }
};

}  // namespace deep_jit::testing
