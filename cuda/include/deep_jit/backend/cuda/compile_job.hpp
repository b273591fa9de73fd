// SPDX-License-Identifier: MIT
//
// cuda::CompileJob: one request to a compiler, and what is the same for every compiler.
//
// What: the checks for spills and local memory on what ptxas said, the text of a failure, and the
// SASS dump.
// When not: how a cubin is made is for compiler_nvcc.hpp and compiler_nvrtc.hpp.
//
// Example:
//     check_ptxas_output(job, command, output);
//
// Errors: exception::CompileError, with the command, the whole log, the options and the source.
// Thread-safety: free functions; a job belongs to one thread.
#pragma once

#include <filesystem>
#include <format>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/backend/cuda/artifact.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"

namespace deep_jit::cuda {
namespace detail {

// Whether ptxas said `words`, in any case and with any white space between them.
inline bool mentions(std::string_view output, std::string_view words) {
  std::string plain;
  for (const char c : output) {
    const bool is_blank = std::string_view(" \t\r\n\v\f").find(c) != std::string_view::npos;
    if (!is_blank) {
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!plain.empty() && plain.back() != ' ') {
      plain += ' ';
    }
  }
  return plain.find(words) != plain.npos;
}

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

struct CompileJob {
  const std::string& source;
  const std::filesystem::path& directory;  // Private: everything is written here.
  const Env& env;
  const Config& config;
  const CompilerOptions& options;
};

[[noreturn]] void fail_compile(const CompileJob& job, const std::string& problem,
                               const std::vector<std::string>& command, const std::string& output);

// Logs the command when the user asked for that.
void print_command(const Env& env, const std::vector<std::string>& command);

// Logs what the compiler said when that was asked for, and applies the checks to it.
void check_ptxas_output(const CompileJob& job, const std::vector<std::string>& command,
                        const std::string& output);

// Fails when dump_sass is set and there is no cuobjdump. `toolkit`: a Toolkit or NvrtcLocation;
// `place`: beside what one was looked for.
template <class Tools>
void check_sass_can_be_dumped(const CompilerOptions& options, const Tools& toolkit,
                              const std::filesystem::path& place);

// Writes kernel.sass into the job's directory, of the cubin in `cubin_folder`.
void dump_sass(const CompileJob& job, const std::filesystem::path& cuobjdump,
               const std::filesystem::path& cubin_folder);

// --- Inline implementations ---

inline void fail_compile(const CompileJob& job, const std::string& problem,
                         const std::vector<std::string>& command, const std::string& output) {
  throw exception::CompileError(
      __FILE__, __LINE__,
      std::format("failed to compile {}: {}\nCommand: {}\nLog:\n{}", kSourceFileName, problem,
                  format_command(command), output),
      output, command, std::string(kSourceFileName), dump_json(job.options.to_json()), job.source);
}

inline void print_command(const Env& env, const std::vector<std::string>& command) {
  if (env.get<bool>("JIT_DEBUG", false) || env.get<bool>("JIT_PRINT_COMPILER_COMMAND", false)) {
    log(LogLevel::kInfo, "Running command: " + format_command(command));
  }
}

inline void check_ptxas_output(const CompileJob& job, const std::vector<std::string>& command,
                               const std::string& output) {
  const CompilerOptions& options = job.options;
  if (options.ptxas_verbose.value_or(false) && !output.empty()) log(LogLevel::kInfo, output);
  if (options.check_no_spills.value_or(false) &&
      detail::mentions(output, "spilled to local memory")) {
    fail_compile(job,
                 "register spills, and check_no_spills is set: use fewer registers, or give each "
                 "thread more (__launch_bounds__)",
                 command, output);
  }
  if (options.check_no_local_memory.value_or(false) &&
      detail::mentions(output, "local memory used")) {
    fail_compile(job,
                 "local memory usage, and check_no_local_memory is set: index arrays of a thread "
                 "by constants only, and unroll loops over them",
                 command, output);
  }
}

template <class Tools>
void check_sass_can_be_dumped(const CompilerOptions& options, const Tools& toolkit,
                              const std::filesystem::path& place) {
  if (!options.dump_sass.value_or(false)) return;
  DJ_HOST_ASSERT(toolkit.cuobjdump.has_value(),
                 "dump_sass needs cuobjdump, and there is none beside {}: install it (the wheel "
                 "nvidia-cuda-cuobjdump), or do not ask for SASS",
                 place.string());
}

inline void dump_sass(const CompileJob& job, const std::filesystem::path& cuobjdump,
                      const std::filesystem::path& cubin_folder) {
  const std::vector<std::string> command = {cuobjdump.string(), "--dump-sass",
                                            std::string(kCubinFileName)};
  print_command(job.env, command);
  const CommandResult result =
      run_command({.arguments = command, .working_directory = cubin_folder});
  if (!result.ok()) {
    fail_compile(job,
                 std::format("cuobjdump did not produce valid SASS: command failed with exit code "
                             "{}",
                             result.exit_code),
                 command, result.output);
  }
  if (result.output.empty()) {
    fail_compile(job, "cuobjdump did not produce valid SASS: it printed nothing", command,
                 result.output);
  }
  write_file_sync(job.directory / kSassFileName, result.output);
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
