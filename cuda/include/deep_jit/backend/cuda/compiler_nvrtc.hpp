// SPDX-License-Identifier: MIT
//
// cuda::NvrtcCompiler: one NVRTC run, in this process, from a source to `kernel.cubin`.
//
// What: no host compiler and no process are started, which makes a small kernel a matter of tens of
// milliseconds. The flags are nvcc's, translated (nvrtc_flags.hpp); all code is device code unless
// it says otherwise; the standard library is libcu++'s (nvrtc_headers.hpp). The include directories
// of the library come first, then those of the flags, then CUDA's own. Checks, post hook and dumps
// are as with nvcc; NVRTC gives the PTX of the same run. A template is requested as with nvcc, by
// one explicit instantiation in the source: the binary holds exactly one kernel, so that no name
// has to be looked up, however it is spelt.
// When not: DependencyMode::kVerified: NVRTC does not tell which headers it has read.
//
// Example:
//     NvrtcCompiler compiler(find_nvrtc(env, config, nullptr));
//     std::vector<std::string> command = compiler.compile(source, directory, env, config, options);
//
// Errors: NvrtcRejected, a CompileError with NVRTC's whole log, when it does not compile the
// source, and when the library cannot be opened; CompileError when a check does not hold;
// exception::Exception for flags and modes that it cannot serve; exception::LaunchError, naming the
// kernel, while the calling thread's stream records a graph. Interrupted, but only between the
// phases of a compile (and of CUDA 12.8 or newer): NVRTC does not ask within one, and a large
// template source may be half a minute in the front end.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <format>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/artifact.hpp"
#include "deep_jit/backend/cuda/capture.hpp"
#include "deep_jit/backend/cuda/compile_job.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/nvrtc_flags.hpp"
#include "deep_jit/backend/cuda/nvrtc_headers.hpp"
#include "deep_jit/backend/cuda/nvrtc_library.hpp"
#include "deep_jit/backend/cuda/nvrtc_location.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"
#include "deep_jit/runtime/post_hook.hpp"

namespace deep_jit::cuda {

// NVRTC, and not a check or a hook, said no: another compiler may take the source.
class NvrtcRejected : public exception::CompileError {
 public:
  using CompileError::CompileError;
};

namespace detail {

// A program of a library, destroyed at the end.
class NvrtcRun {
 public:
  NvrtcRun(const NvrtcLibrary& library, const std::string& source) : api_(library.api()) {
    // Messages and __FILE__ show what #line says.
    const std::string text =
        std::format("{}#line 1 \"{}\"\n", kNvrtcPrelude, kSourceFileName) + source;
    std::vector<const char*> names;
    std::vector<const char*> texts;
    for (const NvrtcHeader& header : nvrtc_headers()) {
      names.push_back(header.name.c_str());
      texts.push_back(header.text.c_str());
    }
    const NvrtcResult result =
        api_.nvrtcCreateProgram(&program_, text.c_str(), kProgramName,
                                static_cast<int>(names.size()), texts.data(), names.data());
    if (result != kNvrtcSuccess) {
      DJ_PANIC("NVRTC could not begin a program: {}", library.describe(result));
    }
  }
  NvrtcRun(const NvrtcRun&) = delete;
  NvrtcRun& operator=(const NvrtcRun&) = delete;
  ~NvrtcRun() { api_.nvrtcDestroyProgram(&program_); }

  // Throws when the calling thread is interrupted meanwhile.
  NvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    for (const auto& option : options) words.push_back(option.c_str());
    Interruption interruption;
    if (api_.nvrtcSetFlowCallback != nullptr) {
      api_.nvrtcSetFlowCallback(program_, &Interruption::ask, &interruption);
    }
    const NvrtcResult result =
        api_.nvrtcCompileProgram(program_, static_cast<int>(words.size()), words.data());
    if (interruption.thrown) std::rethrow_exception(interruption.thrown);
    return result;
  }

  std::string log() const {
    std::string log = read(api_.nvrtcGetProgramLogSize, api_.nvrtcGetProgramLog);
    const std::string_view name = kProgramName;
    for (std::size_t at = log.find(name); at != log.npos; at = log.find(name, at)) {
      log.replace(at, name.size(), kSourceFileName);
    }
    return log;
  }
  std::string cubin() const { return read(api_.nvrtcGetCUBINSize, api_.nvrtcGetCUBIN, false); }
  std::string ptx() const { return read(api_.nvrtcGetPTXSize, api_.nvrtcGetPTX); }

 private:
  // The folder of a program's name is searched for quoted includes: one that cannot be there, and
  // not the working directory.
  static constexpr const char* kProgramName = "/dev/null/kernel.cu";

  // NVRTC is C: nothing may be thrown through it.
  struct Interruption {
    std::exception_ptr thrown;

    static int ask(void* payload, void*) noexcept {
      auto& self = *static_cast<Interruption*>(payload);
      if (self.thrown) return 1;
      try {
        throw_if_interrupted();
        return 0;
      } catch (...) {
        self.thrown = std::current_exception();
        return 1;
      }
    }
  };

  std::string read(NvrtcResult (*get_size)(NvrtcProgram, std::size_t*),
                   NvrtcResult (*get)(NvrtcProgram, char*), bool is_text = true) const {
    std::size_t size = 0;
    if (get_size(program_, &size) != kNvrtcSuccess || size == 0) return "";
    std::string bytes(size, '\0');
    if (get(program_, bytes.data()) != kNvrtcSuccess) return "";
    if (is_text && bytes.back() == '\0') bytes.pop_back();
    return bytes;
  }

  const NvrtcApi& api_;
  NvrtcProgram program_ = nullptr;
};

// "90" of "90a"; 0 when it does not begin with a number.
inline int base_architecture(const std::string& arch) {
  int number = 0;
  for (const char c : arch) {
    if (c < '0' || c > '9') break;
    number = number * 10 + (c - '0');
  }
  return number;
}

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

class NvrtcCompiler {
 public:
  // Opens nothing.
  explicit NvrtcCompiler(NvrtcLocation place) : place_(std::move(place)) {}

  const NvrtcLocation& place() const { return place_; }

  // Why this compiler cannot serve a request; empty: it may. Opens nothing.
  static std::string why_not(const Config& config, const CompilerOptions& options);

  // Identity, flags, and what else the binary depends on, but for the source and its headers.
  void add_to_key(Key& key, const CompilerOptions& options) const;

  nlohmann::ordered_json to_json() const;

  // What nvrtcCompileProgram gets.
  std::vector<std::string> get_options(const Config& config, const CompilerOptions& options) const;

  // Returns the library, the source's name and the options.
  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const;

  // Writes kernel.ptx alone.
  void dump_ptx(const CompileJob& job) const;

 private:
  struct Output {
    std::vector<std::string> command;
    std::string cubin;
    std::string ptx;
    std::string log;
  };

  Output run(const CompileJob& job) const;

  NvrtcLocation place_;
};

// --- Inline implementations ---

inline std::string NvrtcCompiler::why_not(const Config& config, const CompilerOptions& options) {
  if (config.dependency_mode == DependencyMode::kVerified) {
    return "NVRTC does not tell which headers it has read, which the dependency mode `verified` "
           "needs";
  }
  return translate_flags(options.get_flags()).refused;
}

inline void NvrtcCompiler::add_to_key(Key& key, const CompilerOptions& options) const {
  const CompilerIdentity identity = place_.identity();
  key.add("compiler version", identity.version).add("compiler content", identity.content.hex());
  for (const auto& flag : translate_flags(options.get_flags()).options) key.add("flag", flag);
  Hasher hasher;
  hasher.update(kNvrtcPrelude);
  for (const NvrtcHeader& header : nvrtc_headers()) hasher.update(header.name).update(header.text);
  key.add("standard headers", hasher.digest().hex());
}

inline nlohmann::ordered_json NvrtcCompiler::to_json() const {
  const CompilerIdentity identity = place_.identity();
  return {{"path", place_.library.string()},
          {"version", NvrtcLibrary::open(place_.library).version()},
          {"content", identity.content.hex()}};
}

inline std::vector<std::string> NvrtcCompiler::get_options(const Config& config,
                                                           const CompilerOptions& options) const {
  std::vector<std::string> words;
  // Before the flags: the headers that the key was made of win over a directory given by -I.
  for (const auto& dir : config.include_dirs) words.push_back("--include-path=" + dir.string());
  const auto flags = translate_flags(options.get_flags()).options;
  words.insert(words.end(), flags.begin(), flags.end());
  for (const auto& dir : place_.include_dirs) words.push_back("--include-path=" + dir.string());
  return words;
}

inline auto NvrtcCompiler::run(const CompileJob& job) const -> Output {
  Output output{.command = {place_.library.string(), std::string(kSourceFileName)}};
  const auto options = get_options(job.config, job.options);
  output.command.insert(output.command.end(), options.begin(), options.end());
  print_command(job.env, output.command);
  const auto reject = [&](const std::string& problem) {
    throw NvrtcRejected(
        __FILE__, __LINE__,
        std::format("failed to compile {}: {}\nCommand: {}\nLog:\n{}", kSourceFileName, problem,
                    format_command(output.command), output.log),
        output.log, output.command, std::string(kSourceFileName), dump_json(job.options.to_json()),
        job.source);
  };
  const NvrtcLibrary* opened = nullptr;
  try {
    opened = &NvrtcLibrary::open(place_.library);
  } catch (const exception::Exception& failure) {
    reject(failure.error);
  }
  const NvrtcLibrary& library = *opened;
  const int arch = detail::base_architecture(job.options.arch.value_or(""));
  const auto& known = library.architectures();
  if (!known.empty() && std::ranges::find(known, arch) == known.end()) {
    std::string names;
    for (const int number : known) names += std::format("{}{}", names.empty() ? "" : ", ", number);
    reject(std::format("NVRTC {} does not know the architecture sm_{}; it knows {}",
                       library.version(), *job.options.arch, names));
  }
  detail::NvrtcRun run(library, job.source);
  const NvrtcResult result = run.compile(options);
  output.log = run.log();
  if (result != kNvrtcSuccess) {
    reject(std::format("NVRTC {}: {}", library.version(), library.describe(result)));
  }
  output.cubin = run.cubin();
  output.ptx = run.ptx();
  if (output.cubin.empty()) reject("NVRTC did not produce a valid CUBIN: it is empty");
  return output;
}

inline std::vector<std::string> NvrtcCompiler::compile(const std::string& source,
                                                       const std::filesystem::path& directory,
                                                       const Env& env, const Config& config,
                                                       const CompilerOptions& options) const {
  if (const std::string reason = why_not(config, options); !reason.empty()) {
    DJ_PANIC("{}: set compiler to \"nvcc\" or \"auto\"", reason);
  }
  const CompileJob job{source, directory, env, config, options};
  check_sass_can_be_dumped(options, place_, place_.library);
  refuse_during_capture("compile", find_kernel_name(source));
  write_file(directory / kSourceFileName, source);
  Output output = run(job);
  check_ptxas_output(job, output.command, output.log);
  write_file(directory / kCubinFileName, output.cubin);
  run_post_hook(config, env, options.post_hook, directory / kCubinFileName, source,
                options.to_json());
  if (options.dump_ptx.value_or(false)) {
    if (output.ptx.empty()) {
      fail_compile(job, "NVRTC did not produce a valid PTX: it is empty", output.command,
                   output.log);
    }
    write_file(directory / kPtxFileName, output.ptx);
  }
  if (options.dump_sass.value_or(false)) dump_sass(job, *place_.cuobjdump, directory);
  return std::move(output.command);
}

inline void NvrtcCompiler::dump_ptx(const CompileJob& job) const {
  const Output output = run(job);
  if (output.ptx.empty()) {
    fail_compile(job, "NVRTC did not produce a valid PTX: it is empty", output.command, output.log);
  }
  write_file_sync(job.directory / kPtxFileName, output.ptx);
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
