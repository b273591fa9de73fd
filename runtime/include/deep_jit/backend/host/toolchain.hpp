// SPDX-License-Identifier: MIT
//
// host::Toolchain: the C++ compiler that builds Host kernels, and the search for it.
//
// What: the first that works of JIT_CXX_COMPILER, CXX, clang++, g++ and c++ on PATH, and the zig of
// the `ziglang` wheel. The two variables may hold arguments ("g++ -m64") or a compiler launcher
// ("ccache g++"). A compiler works when it answers `--version`.
// When not: flags of a kernel are CompilerOptions; the toolchain has only what belongs to the
// command.
//
// Example:
//     Toolchain toolchain = find_toolchain(Env("MYLIB"), config);
//     // toolchain.command == {"/usr/bin/g++"}
//
// Errors: exception::Exception that lists every candidate and why it was rejected. JIT_CXX_COMPILER
// is an order: when it does not work, nothing else is tried.
// Thread-safety: a free function and a plain value.
#pragma once

#include <sys/utsname.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit::host {

struct Toolchain {
  std::vector<std::string> command;  // Programs by absolute path, then arguments.
  std::size_t driver = 0;            // Which word is the compiler; those before are launchers.
  CompilerIdentity identity;

  // The words behind the compiler: they change its output, the paths before do not.
  std::vector<std::string> arguments() const {
    return {command.begin() + static_cast<std::ptrdiff_t>(driver) + 1, command.end()};
  }

  // The folder that the compiler is installed in, which holds its own headers or is above them.
  std::filesystem::path home() const;

  nlohmann::ordered_json to_json() const {
    return {
        {"command", command}, {"version", identity.version}, {"content", identity.content.hex()}};
  }
};

Toolchain find_toolchain(const Env& env, const Config& config);

// --- Inline implementations ---

namespace detail {

class ToolchainSearch {
 public:
  // Adds a line to the list of rejected candidates unless `words` start a compiler that works.
  std::optional<Toolchain> try_command(const std::string& origin, std::vector<std::string> words) {
    Toolchain toolchain;
    const std::string text = format_command(words);
    for (std::size_t i = 0;; ++i) {
      const auto program = find_executable(words[i]);
      if (!program) {
        return reject(origin,
                      std::format("`{}`: `{}` is not an executable file{}", text, words[i],
                                  words[i].find('/') == std::string::npos ? " on PATH" : ""));
      }
      words[i] = program->string();
      toolchain.driver = i;
      if (!is_launcher(*program) || i + 1 == words.size()) break;
    }
    toolchain.command = std::move(words);
    try {
      toolchain.identity =
          identify_compiler(toolchain.command, toolchain.command[toolchain.driver]);
    } catch (const exception::Interrupted&) {
      throw;
    } catch (const exception::Exception& error) {
      return reject(origin, error.error);
    }
    return toolchain;
  }

  // A variable's value: one program with blanks in its path, or words.
  std::optional<Toolchain> try_variable(const std::string& name, const std::string& value) {
    if (find_executable(value)) return try_command(name, {value});
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < value.size();) {
      const std::size_t end = std::min(value.find_first_of(" \t", begin), value.size());
      if (end > begin) words.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
    if (words.empty()) return reject(name, "holds only blanks");
    return try_command(name, std::move(words));
  }

  std::optional<Toolchain> try_zig(const std::string& python) {
    const std::string origin = std::format("ziglang wheel of `{}`", python);
    const auto interpreter = find_executable(python);
    if (!interpreter) return reject(origin, "the interpreter is not an executable file");
    const auto result = run_command(
        {.arguments =
             {interpreter->string(), "-c",
              "import os, ziglang; print(os.path.dirname(os.path.abspath(ziglang.__file__)))"},
         .working_directory = "/"});
    if (!result.ok()) return reject(origin, "it cannot `import ziglang`");
    std::string_view output = result.output;  // Warnings come first, the path last.
    output = output.substr(0, output.find_last_not_of("\r\n") + 1);
    output.remove_prefix(output.rfind('\n') + 1);
    // Without a target zig builds for this very CPU and kernel version, which must not enter a
    // cache that other machines share. 2.28 is the glibc that all of DeepJIT is built for.
    struct utsname machine{};
    ::uname(&machine);
    return try_command(
        origin, {(std::filesystem::path(output) / "zig").string(), "c++", "-target",
                 std::format("{}-linux-gnu.2.28", machine.machine), "-fno-sanitize=undefined"});
  }

  [[noreturn]] void fail() const {
    DJ_PANIC(
        "found no C++ compiler for Host kernels; tried:\n{}Install one, or set "
        "<PREFIX>_JIT_CXX_COMPILER to its command",
        rejected_);
  }

 private:
  static bool is_launcher(const std::filesystem::path& program) {
    constexpr std::string_view kLaunchers[] = {"ccache", "sccache", "distcc", "icecc"};
    return std::ranges::find(kLaunchers, program.filename().string()) != std::end(kLaunchers);
  }

  std::nullopt_t reject(const std::string& origin, std::string_view reason) {
    rejected_ += std::format("  {}: {}\n", origin, reason);
    return std::nullopt;
  }

  std::string rejected_;
};

}  // namespace detail

inline std::filesystem::path Toolchain::home() const {
  std::error_code ignored;
  const auto directory = std::filesystem::weakly_canonical(command[driver], ignored).parent_path();
  return directory.filename() == "bin" ? directory.parent_path() : directory;
}

inline Toolchain find_toolchain(const Env& env, const Config& config) {
  detail::ToolchainSearch search;
  if (const auto value = env.get<std::string>("JIT_CXX_COMPILER"); value && !value->empty()) {
    if (auto found = search.try_variable("JIT_CXX_COMPILER", *value)) return *found;
    search.fail();
  }
  if (const auto value = get_env<std::string>("CXX"); !value.empty()) {
    if (auto found = search.try_variable("CXX", value)) return *found;
  }
  for (const char* name : {"clang++", "g++", "c++"}) {
    if (auto found = search.try_command("PATH", {name})) return *found;
  }
  const auto pythons = config.python_executable.empty()
                           ? std::vector<std::string>{"python3", "python"}
                           : std::vector<std::string>{config.python_executable};
  for (const auto& python : pythons) {
    if (auto found = search.try_zig(python)) return *found;
  }
  search.fail();
}

}  // namespace deep_jit::host
