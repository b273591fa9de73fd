// SPDX-License-Identifier: MIT
//
// cuda::Compilers: nvcc and NVRTC behind the one option `compiler`.
//
// What: "nvcc" and "nvrtc" are orders. "auto" takes NVRTC when the request allows it, because it is
// some ten times faster for a small kernel, and nvcc otherwise: for flags that NVRTC does not have,
// for the dependency mode `verified`, where there is no NVRTC, and for a source that NVRTC rejects.
// Which one it was, and why, is in meta.json. Unset is nvcc: whoever has relied on nvcc's behaviour
// keeps it.
// The key names the compiler whose output an entry can be. For a request of "auto" that either of
// them may serve these are both, with the rule: a source that NVRTC has rejected once is found on
// disk by the next process, without asking NVRTC again.
// When not: on a machine without nvcc, and without an option or variable that names one, NVRTC
// alone will do; the error about nvcc then comes with the first request that needs it.
//
// Example:
//     Compilers compilers(env, config);
//     CompileRecord record = compilers.compile(source, directory, env, config, options);
//
// Errors: as compiler_nvcc.hpp, compiler_nvrtc.hpp, toolkit.hpp and nvrtc_location.hpp.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <filesystem>
#include <format>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/artifact.hpp"
#include "deep_jit/backend/cuda/compile_job.hpp"
#include "deep_jit/backend/cuda/compiler_nvcc.hpp"
#include "deep_jit/backend/cuda/compiler_nvrtc.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/nvrtc_location.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/backend/cuda/toolkit.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit::cuda {
namespace detail {

// The first line of a log that says "error", else the first line.
inline std::string first_error(std::string_view log) {
  const std::string_view whole = log;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    if (line.find("error") != line.npos) return std::string(line);
    log.remove_prefix(line.size() + (line.size() < log.size() ? 1 : 0));
  }
  return std::string(whole.substr(0, whole.find('\n')));
}

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

class Compilers {
 public:
  // Looks for nvcc now, unless JIT_CUDA_COMPILER is nvrtc: starting nvcc and reading its programs
  // takes longer than NVRTC takes for a small kernel. What is not looked for now is when a request
  // may use it.
  Compilers(const Env& env, const Config& config);

  // Throws, with what was looked for, when there is none.
  const NvccCompiler& nvcc() const;
  const NvrtcCompiler& nvrtc() const;

  // nvcc's; empty when there is none.
  CompilerInfo info() const {
    const NvccCompiler* const found = try_nvcc();
    return found != nullptr ? found->info() : CompilerInfo{};
  }

  // Identities and flags.
  void add_to_key(Key& key, const CompilerOptions& options) const;
  // What else nvcc's output depends on.
  void add_environment_to_key(Key& key, const CompilerOptions& options) const;

  CompileRecord compile(const std::string& source, const std::filesystem::path& directory,
                        const Env& env, const Config& config, const CompilerOptions& options) const;

  // The dumps that the options ask for, by name, and that `entry` lacks; all with an empty path.
  std::vector<std::string> missing_dumps(const std::filesystem::path& entry,
                                         const CompilerOptions& options) const;

  // Makes those that a finished entry lacks, in the job's directory.
  void add_dumps(const CompileJob& job, const std::filesystem::path& entry) const;

 private:
  // Who serves a request: NVRTC, nvcc, or NVRTC and then nvcc.
  struct Plan {
    bool uses_nvrtc = false;
    bool uses_nvcc = false;
    std::string reason;
  };

  // A search, done at most once.
  template <class Compiler>
  struct Search {
    std::mutex mutex;
    bool is_done = false;
    std::optional<Compiler> found;
    std::string problem;

    // What `find` makes of it, the first time; null when it throws.
    template <class Find>
    const Compiler* get(const Find& find);
  };

  Plan plan(const CompilerOptions& options) const;
  const NvccCompiler* try_nvcc() const;
  const NvrtcCompiler* try_nvrtc() const;
  CompileRecord describe(std::vector<std::string> command, const CompilerOptions& options,
                         std::string_view compiler, nlohmann::ordered_json info,
                         const std::string& reason) const;

  Env env_;
  Config config_;
  bool is_nvrtc_ordered_;
  std::unique_ptr<Search<NvccCompiler>> nvcc_ = std::make_unique<Search<NvccCompiler>>();
  std::unique_ptr<Search<NvrtcCompiler>> nvrtc_ = std::make_unique<Search<NvrtcCompiler>>();
};

// --- Inline implementations ---

template <class Compiler>
template <class Find>
const Compiler* Compilers::Search<Compiler>::get(const Find& find) {
  const std::lock_guard lock(mutex);
  if (!is_done) {
    try {
      found.emplace(find());
    } catch (const exception::Interrupted&) {
      throw;
    } catch (const exception::Exception& failure) {
      problem = failure.error;
    }
    is_done = true;
  }
  return found ? &*found : nullptr;
}

inline Compilers::Compilers(const Env& env, const Config& config)
    : env_(env),
      config_(config),
      is_nvrtc_ordered_(env.get<std::string>("JIT_CUDA_COMPILER") == "nvrtc") {
  if (is_nvrtc_ordered_ || try_nvcc() != nullptr) return;
  // An order that cannot be followed is an error now.
  if (is_toolkit_ordered(env, config) || try_nvrtc() == nullptr) DJ_PANIC("{}", nvcc_->problem);
}

inline const NvccCompiler* Compilers::try_nvcc() const {
  return nvcc_->get([this] { return NvccCompiler(find_toolkit(env_, config_)); });
}

inline const NvccCompiler& Compilers::nvcc() const {
  const NvccCompiler* const found = try_nvcc();
  if (found == nullptr) {
    DJ_PANIC("{}{}", nvcc_->problem,
             try_nvrtc() == nullptr ? ""
                                    : "; there is NVRTC: with the option compiler, or "
                                      "<PREFIX>_JIT_CUDA_COMPILER, set to auto it is used");
  }
  return *found;
}

inline const NvrtcCompiler* Compilers::try_nvrtc() const {
  return nvrtc_->get([this] {
    const NvccCompiler* const nvcc = is_nvrtc_ordered_ ? nullptr : try_nvcc();
    return NvrtcCompiler(find_nvrtc(env_, config_, nvcc ? &nvcc->toolkit() : nullptr));
  });
}

inline const NvrtcCompiler& Compilers::nvrtc() const {
  const NvrtcCompiler* const found = try_nvrtc();
  if (found == nullptr) DJ_PANIC("{}", nvrtc_->problem);
  return *found;
}

inline auto Compilers::plan(const CompilerOptions& options) const -> Plan {
  switch (parse_compiler_choice(options.compiler)) {
    case CompilerChoice::kNvcc:
      return {.uses_nvcc = true, .reason = "asked for"};
    case CompilerChoice::kNvrtc:
      return {.uses_nvrtc = true, .reason = "asked for"};
    case CompilerChoice::kAuto:
      break;
  }
  std::string reason = NvrtcCompiler::why_not(config_, options);
  if (!reason.empty()) return {.uses_nvcc = true, .reason = std::move(reason)};
  if (try_nvrtc() == nullptr) return {.uses_nvcc = true, .reason = "there is no NVRTC"};
  if (try_nvcc() == nullptr) return {.uses_nvrtc = true, .reason = "there is no nvcc"};
  return {.uses_nvrtc = true, .uses_nvcc = true, .reason = "NVRTC takes the source"};
}

inline void Compilers::add_to_key(Key& key, const CompilerOptions& options) const {
  const Plan chosen = plan(options);
  if (chosen.uses_nvrtc && chosen.uses_nvcc) key.add("compiler rule", "nvrtc, then nvcc");
  if (chosen.uses_nvrtc) nvrtc().add_to_key(key, options);
  if (chosen.uses_nvcc) {
    const CompilerIdentity identity = nvcc().info().identity;
    key.add("compiler version", identity.version).add("compiler content", identity.content.hex());
    for (const auto& flag : options.get_flags()) key.add("flag", flag);
  }
}

inline void Compilers::add_environment_to_key(Key& key, const CompilerOptions& options) const {
  if (plan(options).uses_nvcc) nvcc().add_to_key(key);
}

// Without the option, as it always was.
inline CompileRecord Compilers::describe(std::vector<std::string> command,
                                         const CompilerOptions& options, std::string_view compiler,
                                         nlohmann::ordered_json info,
                                         const std::string& reason) const {
  if (options.compiler) {
    info["compiler"] = compiler;
    info["reason"] = reason;
  }
  return {std::move(command), std::move(info)};
}

inline CompileRecord Compilers::compile(const std::string& source,
                                        const std::filesystem::path& directory, const Env& env,
                                        const Config& config,
                                        const CompilerOptions& options) const {
  Plan chosen = plan(options);
  if (chosen.uses_nvrtc) {
    try {
      auto command = nvrtc().compile(source, directory, env, config, options);
      return describe(std::move(command), options, "nvrtc", nvrtc().to_json(), chosen.reason);
    } catch (const NvrtcRejected& rejection) {
      if (!chosen.uses_nvcc) throw;
      chosen.reason = "NVRTC does not take the source: " +
                      detail::first_error(rejection.log.empty() ? rejection.error : rejection.log);
    }
  }
  auto command = nvcc().compile(source, directory, env, config, options);
  return describe(std::move(command), options, "nvcc", nvcc().info().to_json(), chosen.reason);
}

inline std::vector<std::string> Compilers::missing_dumps(const std::filesystem::path& entry,
                                                         const CompilerOptions& options) const {
  std::vector<std::string> missing;
  const auto add = [&](const std::optional<bool>& is_wanted, std::string_view name) {
    std::error_code ignored;
    if (is_wanted.value_or(false) &&
        (entry.empty() || !std::filesystem::exists(entry / name, ignored))) {
      missing.emplace_back(name);
    }
  };
  add(options.dump_ptx, kPtxFileName);
  add(options.dump_sass, kSassFileName);
  return missing;
}

inline void Compilers::add_dumps(const CompileJob& job, const std::filesystem::path& entry) const {
  const Plan chosen = plan(job.options);
  for (const auto& name : missing_dumps(entry, job.options)) {
    if (name == kSassFileName) {
      if (const auto* const nvcc = chosen.uses_nvcc ? try_nvcc() : nullptr; nvcc != nullptr) {
        check_sass_can_be_dumped(job.options, nvcc->toolkit(), nvcc->toolkit().nvcc);
        dump_sass(job, *nvcc->toolkit().cuobjdump, entry);
      } else {
        check_sass_can_be_dumped(job.options, nvrtc().place(), nvrtc().place().library);
        dump_sass(job, *nvrtc().place().cuobjdump, entry);
      }
      continue;
    }
    write_file_sync(job.directory / kSourceFileName, job.source);
    if (chosen.uses_nvrtc) {
      try {
        nvrtc().dump_ptx(job);
        continue;
      } catch (const NvrtcRejected&) {
        if (!chosen.uses_nvcc) throw;
      }
    }
    nvcc().dump_ptx(job);
  }
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
