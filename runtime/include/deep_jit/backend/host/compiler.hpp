// SPDX-License-Identifier: MIT
//
// host::Compiler: one compiler run, from a kernel source to `kernel.so` in a directory.
//
// What: writes the prelude and the source (with its kernels registered) into the directory, runs
// the toolchain there with relative names, so that the output does not depend on where that is, and
// checks what came out.
// When not: caching, metadata and publication are Runtime's work.
//
// Example:
//     Compiler compiler(find_toolchain(env, config));
//     std::vector<std::string> command = compiler.compile(source, directory, env, config, options);
//
// Errors: KernelCompileError, with the compiler's whole log, when it fails or leaves no output.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <format>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/backend/host/kernel_abi.hpp"
#include "deep_jit/backend/host/options.hpp"
#include "deep_jit/backend/host/prelude.hpp"
#include "deep_jit/backend/host/source_rewriter.hpp"
#include "deep_jit/backend/host/toolchain.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"

namespace deep_jit::host {

inline constexpr std::string_view kSourceFileName = "kernel.cc";

// A CompileError that also keeps the kernel's source as it was given: the directory that
// `source_path` was in is gone when this is caught.
class KernelCompileError : public exception::CompileError {
 public:
  using CompileError::CompileError;

  std::string source;
};

class Compiler {
 public:
  // Reads the environment variables that change what a compiler makes; they count from now on.
  explicit Compiler(Toolchain toolchain);

  const Toolchain& toolchain() const { return toolchain_; }

  // What the binary depends on besides options, source and the compiler itself.
  void add_to_key(Key& key) const;

  // The command line; to be run in the directory of the source.
  std::vector<std::string> get_command(const Config& config, const CompilerOptions& options) const;

  // Returns the command that it ran.
  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const;

 private:
  Toolchain toolchain_;
  std::vector<std::pair<std::string, std::string>> environment_;
};

// --- Inline implementations ---

inline Compiler::Compiler(Toolchain toolchain) : toolchain_(std::move(toolchain)) {
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
                           "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"}) {
    if (auto value = try_get_env<std::string>(name)) environment_.emplace_back(name, *value);
  }
}

inline void Compiler::add_to_key(Key& key) const {
  for (const auto& argument : toolchain_.arguments()) key.add("compiler argument", argument);
  for (const auto& [name, value] : environment_) key.add("environment " + name, value);
  key.add("source rewriter", std::to_string(kSourceRewriterVersion));
  key.add("prelude", hash_bytes(get_prelude()).hex());
}

inline std::vector<std::string> Compiler::get_command(const Config& config,
                                                      const CompilerOptions& options) const {
  std::vector<std::string> command = toolchain_.command;
  command.insert(command.end(), {"-shared", "-include", std::string(kPreludeFileName)});
  // Before the flags: the headers that the key was made of win over a directory given by -I.
  for (const auto& dir : config.include_dirs) command.push_back("-I" + dir.string());
  const auto flags = options.get_flags();
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(),
                 {"-o", std::string(kArtifactFileName), std::string(kSourceFileName)});
  return command;
}

inline std::vector<std::string> Compiler::compile(const std::string& source,
                                                  const std::filesystem::path& directory,
                                                  const Env& env, const Config& config,
                                                  const CompilerOptions& options) const {
  write_file_sync(directory / kPreludeFileName, get_prelude());
  write_file_sync(directory / kSourceFileName, register_kernels(source));
  auto command = get_command(config, options);
  const std::string text = format_command(command);
  if (env.get<bool>("JIT_DEBUG", false) || env.get<bool>("JIT_PRINT_COMPILER_COMMAND", false)) {
    log(LogLevel::kInfo, "Running command: " + text);
  }
  const CommandResult result = run_command(
      {.arguments = command, .working_directory = directory, .environment = environment_});

  std::string problem;
  const auto artifact = directory / kArtifactFileName;
  std::error_code error;
  if (!result.ok()) {
    problem = std::format("command failed with exit code {}", result.exit_code);
  } else if (!std::filesystem::is_regular_file(artifact, error)) {
    problem = std::format("the compiler reported success but wrote no {}", kArtifactFileName);
  } else if (const auto size = std::filesystem::file_size(artifact, error); error || size == 0) {
    problem = std::format("the compiler reported success but {} is empty", kArtifactFileName);
  }
  if (!problem.empty()) {
    KernelCompileError failure(__FILE__, __LINE__,
                               std::format("failed to compile {}: {}\nCommand: {}\nLog:\n{}",
                                           kSourceFileName, problem, text, result.output),
                               result.output, std::move(command), std::string(kSourceFileName),
                               dump_json(options.to_json()));
    failure.source = source;
    throw failure;
  }
  return command;
}

}  // namespace deep_jit::host
