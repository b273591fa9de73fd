// SPDX-License-Identifier: MIT
//
// host::Compiler: one compiler run, from a kernel source to `kernel.so` in a directory.
//
// What: writes the prelude and the source (with its kernels registered) into the directory, runs
// the toolchain there with relative names, so that the output does not depend on where that is,
// checks what came out, and runs the post hook. With dump_asm the compiler runs once more for
// `kernel.s`, which an entry that is there already does not get: the option does not change the
// key. Under DependencyMode::kVerified the preprocessor runs first, so that the headers are known,
// by content, from before and from after the compiler has read them. When not: caching, metadata
// and publication are Runtime's work.
//
// Example:
//     Compiler compiler(find_toolchain(env, config));
//     std::vector<std::string> command = compiler.compile(source, directory, env, config, options);
//
// Errors: exception::CompileError, with the compiler's whole log, when it fails or leaves no
// output, or when the post hook does. InputsChanged as in backend_concept.hpp. Thread-safety: const
// members may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <format>
#include <optional>
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
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/dependencies.hpp"
#include "deep_jit/key/depfile.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"
#include "deep_jit/runtime/post_hook.hpp"

namespace deep_jit::host {

inline constexpr std::string_view kSourceFileName = "kernel.cc";

inline constexpr std::string_view kAssemblyFileName = "kernel.s";

class Compiler {
 public:
  // Reads the environment variables that change what a compiler makes; they count from now on.
  explicit Compiler(Toolchain toolchain);

  // As it is now: a compiler that was replaced in place has another identity.
  Toolchain toolchain() const;

  // What the binary depends on besides options, source and the compiler itself.
  void add_to_key(Key& key) const;

  // The command line; to be run in the directory of the source.
  std::vector<std::string> get_command(const Config& config, const CompilerOptions& options) const;

  // Returns the command that it ran.
  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const;

 private:
  // One request, for the steps of compile().
  struct Job {
    const std::string& source;
    const std::filesystem::path& directory;
    const Env& env;
    const Config& config;
    const CompilerOptions& options;
  };

  std::vector<std::string> get_command(const Config& config, const CompilerOptions& options,
                                       const std::vector<std::string>& mode,
                                       std::string_view output) const;
  CommandResult run(const Job& job, const std::vector<std::string>& command) const;
  void make(const Job& job, const std::vector<std::string>& command,
            const std::vector<std::string_view>& outputs) const;
  std::optional<Dependencies> preprocess(const Job& job) const;
  std::optional<Dependencies> read_dependencies(const Job& job) const;

  Toolchain toolchain_;
  std::vector<std::pair<std::string, std::string>> environment_;
};

// --- Inline implementations ---

namespace detail {

inline constexpr std::string_view kDepfileName = "kernel.d";

// The sanitizers that a command line builds with, one per line, whichever option brought them in.
inline std::string get_sanitizers(const std::vector<std::string>& command) {
  constexpr std::string_view kOption = "-fsanitize=";
  std::string found;
  for (const std::string_view name : {"address", "thread", "undefined"}) {
    for (const std::string_view argument : command) {
      if (argument.starts_with(kOption) &&
          ("," + std::string(argument.substr(kOption.size())) + ",")
                  .find("," + std::string(name) + ",") != std::string::npos) {
        found.append(name).append("\n");
        break;
      }
    }
  }
  return found;
}

}  // namespace detail

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

inline Toolchain Compiler::toolchain() const {
  Toolchain current = toolchain_;
  try {
    current.identity = identify_compiler(current.command, current.command[current.driver]);
  } catch (const exception::Interrupted&) {
    throw;
  } catch (const exception::Exception&) {
    // Gone, or half replaced: what is in the cache can still be used, and a compile tells.
  }
  return current;
}

inline std::vector<std::string> Compiler::get_command(const Config& config,
                                                      const CompilerOptions& options) const {
  std::vector<std::string> mode = {"-shared"};
  if (config.dependency_mode == DependencyMode::kVerified) {
    mode.insert(mode.end(), {"-MD", "-MF", std::string(detail::kDepfileName)});
  }
  return get_command(config, options, mode, kArtifactFileName);
}

inline std::vector<std::string> Compiler::get_command(const Config& config,
                                                      const CompilerOptions& options,
                                                      const std::vector<std::string>& mode,
                                                      std::string_view output) const {
  std::vector<std::string> command = toolchain_.command;
  command.insert(command.end(), mode.begin(), mode.end());
  command.insert(command.end(), {"-include", std::string(kPreludeFileName)});
  // Before the flags: the headers that the key was made of win over a directory given by -I.
  for (const auto& dir : config.include_dirs) command.push_back("-I" + dir.string());
  const auto flags = options.get_flags();
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"-o", std::string(output), std::string(kSourceFileName)});
  return command;
}

inline CommandResult Compiler::run(const Job& job, const std::vector<std::string>& command) const {
  if (job.env.get<bool>("JIT_DEBUG", false) ||
      job.env.get<bool>("JIT_PRINT_COMPILER_COMMAND", false)) {
    log(LogLevel::kInfo, "Running command: " + format_command(command));
  }
  return run_command(
      {.arguments = command, .working_directory = job.directory, .environment = environment_});
}

// Runs a command that shall leave some files.
inline void Compiler::make(const Job& job, const std::vector<std::string>& command,
                           const std::vector<std::string_view>& outputs) const {
  const CommandResult result = run(job, command);
  std::string problem;
  if (!result.ok()) problem = std::format("command failed with exit code {}", result.exit_code);
  for (const std::string_view output : outputs) {
    if (!problem.empty()) break;
    const auto file = job.directory / output;
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) {
      problem = std::format("the compiler reported success but wrote no {}", output);
    } else if (const auto size = std::filesystem::file_size(file, error); error || size == 0) {
      problem = std::format("the compiler reported success but {} is empty", output);
    }
  }
  if (problem.empty()) return;
  throw exception::CompileError(
      __FILE__, __LINE__,
      std::format("failed to compile {}: {}\nCommand: {}\nLog:\n{}", kSourceFileName, problem,
                  format_command(command), result.output),
      result.output, command, std::string(kSourceFileName), dump_json(job.options.to_json()),
      job.source);
}

// The headers before the compiler runs. Nothing when the preprocessor fails: the compiler will too,
// and says it better.
inline std::optional<Dependencies> Compiler::preprocess(const Job& job) const {
  const std::vector<std::string> mode = {"-E", "-MD", "-MF", std::string(detail::kDepfileName)};
  const auto command = get_command(job.config, job.options, mode, "/dev/null");
  return run(job, command).ok() ? read_dependencies(job) : std::nullopt;
}

// Nothing when a header is gone since the compiler has read it.
inline std::optional<Dependencies> Compiler::read_dependencies(const Job& job) const {
  const auto depfile = job.directory / detail::kDepfileName;
  std::optional<Dependencies> dependencies;
  try {
    dependencies = Dependencies::record(
        parse_depfile(read(depfile)), job.directory,
        {.include_dirs = job.config.include_dirs, .compiler_home = toolchain_.home()});
  } catch (const exception::Exception&) {
  }
  std::error_code ignored;
  std::filesystem::remove(depfile, ignored);
  return dependencies;
}

inline std::vector<std::string> Compiler::compile(const std::string& source,
                                                  const std::filesystem::path& directory,
                                                  const Env& env, const Config& config,
                                                  const CompilerOptions& options) const {
  const Job job{source, directory, env, config, options};
  write_file(directory / kPreludeFileName, get_prelude());
  write_file(directory / kSourceFileName, register_kernels(source));
  auto command = get_command(config, options);
  if (config.dependency_mode == DependencyMode::kVerified) {
    const auto before = preprocess(job);
    make(job, command, {kArtifactFileName, detail::kDepfileName});
    const auto after = read_dependencies(job);
    if (!after || before != after) throw InputsChanged{};
    write_file(directory / kDependenciesFileName, after->serialize());
  } else {
    make(job, command, {kArtifactFileName});
  }
  const std::string sanitizers = detail::get_sanitizers(command);
  if (!sanitizers.empty()) write_file(directory / kSanitizersFileName, sanitizers);
  run_post_hook(config, env, options.post_hook, directory / kArtifactFileName, source,
                options.to_json());
  if (options.dump_asm.value_or(false)) {
    make(job, get_command(config, options, {"-S"}, kAssemblyFileName), {kAssemblyFileName});
  }
  return command;
}

}  // namespace deep_jit::host
