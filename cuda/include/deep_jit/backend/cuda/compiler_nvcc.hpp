// SPDX-License-Identifier: MIT
//
// cuda::NvccCompiler: one nvcc run, from a kernel source to `kernel.cubin` in a directory.
//
// What: writes `kernel.cu`, runs nvcc there with relative names, so that the output does not depend
// on where that is, applies the checks for spills and local memory to what ptxas says, and makes
// sure that there is a cubin. Then the post hook, and the dumps: `kernel.ptx` by a second nvcc run,
// `kernel.sass` by cuobjdump. Under DependencyMode::kVerified the headers are listed before and
// after the compiler has read them.
// When not: caching, metadata and publication are Runtime's work.
//
// Example:
//     NvccCompiler compiler(find_toolkit(env, config));
//     std::vector<std::string> command = compiler.compile(source, directory, env, config, options);
//
// Errors: exception::CompileError, with nvcc's whole log, when it fails, leaves no output, or a
// check does not hold; exception::Exception for options that this toolkit cannot serve;
// exception::LaunchError, naming the kernel, while the calling thread's stream records a graph.
// InputsChanged as in backend_concept.hpp.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <algorithm>
#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/backend/cuda/artifact.hpp"
#include "deep_jit/backend/cuda/capture.hpp"
#include "deep_jit/backend/cuda/compile_job.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/host_compiler.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/backend/cuda/toolkit.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/dependencies.hpp"
#include "deep_jit/key/depfile.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"
#include "deep_jit/runtime/post_hook.hpp"

namespace deep_jit::cuda {

namespace detail {

inline constexpr std::string_view kDepfileName = "kernel.d";

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

class NvccCompiler {
 public:
  // Reads the environment variables that change what nvcc makes; they count from now on.
  explicit NvccCompiler(Toolkit toolkit);

  const Toolkit& toolkit() const { return toolkit_; }

  // As it is now: a compiler that was replaced in place has another identity.
  CompilerInfo info() const;

  // What the binary depends on besides options, source and nvcc itself.
  void add_to_key(Key& key) const;

  // The command line; to be run in the directory of the source.
  std::vector<std::string> get_command(const Config& config, const CompilerOptions& options) const;

  // Returns the command that made the cubin.
  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const;

  // Writes kernel.ptx; kernel.cu is in the job's directory already.
  void dump_ptx(const CompileJob& job) const;

 private:
  std::vector<std::string> get_command(const Config& config, const CompilerOptions& options,
                                       const std::vector<std::string>& mode) const;
  void check_options(const CompilerOptions& options) const;
  CommandResult run(const CompileJob& job, const std::vector<std::string>& command) const;
  std::string explain_architecture(const CompileJob& job, const std::string& log) const;
  std::string make(const CompileJob& job, const std::vector<std::string>& command,
                   std::string_view output, std::string_view complaint) const;
  std::optional<Dependencies> preprocess(const CompileJob& job) const;
  std::optional<Dependencies> read_dependencies(const CompileJob& job) const;

  Toolkit toolkit_;
  CompilerInfo info_;
  std::optional<HostCompiler> host_compiler_;
  std::vector<std::pair<std::string, std::string>> environment_;
};

// --- Inline implementations ---

inline NvccCompiler::NvccCompiler(Toolkit toolkit)
    : toolkit_(std::move(toolkit)),
      info_(identify_toolkit(toolkit_)),
      host_compiler_(find_host_compiler()) {
  for (const char* name : {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "CPLUS_INCLUDE_PATH",
                           "COMPILER_PATH", "GCC_EXEC_PREFIX"}) {
    if (auto value = try_get_env<std::string>(name)) environment_.emplace_back(name, *value);
  }
}

inline CompilerInfo NvccCompiler::info() const {
  try {
    return identify_toolkit(toolkit_);
  } catch (const exception::Interrupted&) {
    throw;
  } catch (const exception::Exception&) {
    // Gone, or half replaced: what is in the cache can still be used, and a compile tells.
    return info_;
  }
}

inline void NvccCompiler::add_to_key(Key& key) const {
  for (const auto& [name, value] : environment_) key.add("environment " + name, value);
  if (host_compiler_) host_compiler_->add_to_key(key);
}

inline std::vector<std::string> NvccCompiler::get_command(const Config& config,
                                                          const CompilerOptions& options) const {
  std::vector<std::string> mode = {"--cubin", "--output-file", std::string(kCubinFileName)};
  if (config.dependency_mode == DependencyMode::kVerified) {
    mode.insert(mode.end(), {"-MD", "-MF", std::string(detail::kDepfileName)});
  }
  return get_command(config, options, mode);
}

inline std::vector<std::string> NvccCompiler::get_command(
    const Config& config, const CompilerOptions& options,
    const std::vector<std::string>& mode) const {
  std::vector<std::string> command = {toolkit_.nvcc.string(), std::string(kSourceFileName)};
  command.insert(command.end(), mode.begin(), mode.end());
  const auto flags = options.get_flags();
  const auto has_compiler = [&flags] {
    for (const std::string_view flag : flags) {
      if (flag.starts_with("-ccbin") || flag.starts_with("--compiler-bindir")) return true;
    }
    return false;
  };
  if (host_compiler_ && !has_compiler()) {  // nvcc takes one only.
    command.insert(command.end(), {"-ccbin", host_compiler_->program});
    for (const auto& word : host_compiler_->arguments) {
      command.push_back("--compiler-options=" + word);
    }
  }
  // Before the flags: the headers that the key was made of win over a directory given by -I.
  for (const auto& dir : config.include_dirs) {
    command.insert(command.end(), {"--include-path", dir.string()});
  }
  command.insert(command.end(), flags.begin(), flags.end());
  for (const auto& dir : toolkit_.include_dirs) {
    command.insert(command.end(), {"-isystem", dir.string()});
  }
  return command;
}

inline void NvccCompiler::check_options(const CompilerOptions& options) const {
  check_sass_can_be_dumped(options, toolkit_, toolkit_.nvcc);
  if (options.arch && options.arch->ends_with('f')) {
    const NvccVersion version = ask_nvcc_version(toolkit_.nvcc);
    if (!version.is_at_least(12, 9)) {
      DJ_PANIC(
          "architecture {} is a family, which needs NVCC 12.9 or newer, but {} is {}: set arch to "
          "{}a, or use a newer toolkit",
          *options.arch, toolkit_.nvcc.string(), version.text,
          options.arch->substr(0, options.arch->size() - 1));
    }
  }
}

inline CommandResult NvccCompiler::run(const CompileJob& job,
                                       const std::vector<std::string>& command) const {
  print_command(job.env, command);
  return run_command(
      {.arguments = command, .working_directory = job.directory, .environment = environment_});
}

// nvcc says that it does not know an architecture, but neither who it is nor what it knows.
inline std::string NvccCompiler::explain_architecture(const CompileJob& job,
                                                      const std::string& log) const {
  if (!detail::mentions(log, "unsupported gpu architecture")) return "";
  const CommandResult known =
      run_command({.arguments = {toolkit_.nvcc.string(), "--list-gpu-code"}});
  std::string names = known.ok() ? known.output : "";
  std::ranges::replace(names, '\n', ' ');
  return std::format("; NVCC {} does not know sm_{}: take a newer one{}{}", info_.version,
                     job.options.arch.value_or(""),
                     names.empty() ? "" : ", or set arch to one that it knows: ", names);
}

// Runs a command that shall leave the file `output`, and returns what it said.
inline std::string NvccCompiler::make(const CompileJob& job,
                                      const std::vector<std::string>& command,
                                      std::string_view output, std::string_view complaint) const {
  CommandResult result = run(job, command);
  if (!result.ok()) {
    fail_compile(job,
                 std::format("command failed with exit code {}{}", result.exit_code,
                             explain_architecture(job, result.output)),
                 command, result.output);
  }
  const auto file = job.directory / output;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    fail_compile(job, std::format("{}: it wrote no {}", complaint, output), command, result.output);
  }
  if (const auto size = std::filesystem::file_size(file, error); error || size == 0) {
    fail_compile(job, std::format("{}: {} is empty", complaint, output), command, result.output);
  }
  return std::move(result.output);
}

// The headers before the compiler runs. Nothing when the preprocessor fails: the compiler will too,
// and says it better.
inline std::optional<Dependencies> NvccCompiler::preprocess(const CompileJob& job) const {
  const auto command =
      get_command(job.config, job.options, {"-M", "-MF", std::string(detail::kDepfileName)});
  return run(job, command).ok() ? read_dependencies(job) : std::nullopt;
}

// Nothing when a header is gone since the compiler has read it.
inline std::optional<Dependencies> NvccCompiler::read_dependencies(const CompileJob& job) const {
  const auto depfile = job.directory / detail::kDepfileName;
  std::optional<Dependencies> dependencies;
  try {
    dependencies = Dependencies::record(
        parse_depfile(read(depfile)), job.directory,
        {.include_dirs = job.config.include_dirs, .compiler_home = toolkit_.home()});
  } catch (const exception::Exception&) {
  }
  std::error_code ignored;
  std::filesystem::remove(depfile, ignored);
  return dependencies;
}

inline std::vector<std::string> NvccCompiler::compile(const std::string& source,
                                                      const std::filesystem::path& directory,
                                                      const Env& env, const Config& config,
                                                      const CompilerOptions& options) const {
  const CompileJob job{source, directory, env, config, options};
  check_options(options);
  refuse_during_capture("compile", find_kernel_name(source));
  write_file(directory / kSourceFileName, source);
  auto command = get_command(config, options);
  const bool is_verified = config.dependency_mode == DependencyMode::kVerified;
  const auto before = is_verified ? preprocess(job) : std::nullopt;
  const std::string output =
      make(job, command, kCubinFileName, "NVCC did not produce a valid CUBIN");
  check_ptxas_output(job, command, output);
  if (is_verified) {
    const auto after = read_dependencies(job);
    if (!after || before != after) throw InputsChanged{};
    write_file(directory / kDependenciesFileName, after->serialize());
  }
  run_post_hook(config, env, options.post_hook, directory / kCubinFileName, source,
                options.to_json());
  if (options.dump_ptx.value_or(false)) dump_ptx(job);
  if (options.dump_sass.value_or(false)) dump_sass(job, *toolkit_.cuobjdump, directory);
  return command;
}

inline void NvccCompiler::dump_ptx(const CompileJob& job) const {
  make(job,
       get_command(job.config, job.options, {"--ptx", "--output-file", std::string(kPtxFileName)}),
       kPtxFileName, "NVCC did not produce a valid PTX");
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
