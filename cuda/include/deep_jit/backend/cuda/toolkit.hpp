// SPDX-License-Identifier: MIT
//
// cuda::Toolkit: the nvcc that compiles kernels, and the search for it.
//
// What: the first of Config::toolkit_root (a toolkit folder), JIT_NVCC_COMPILER (the executable
// itself), CUDA_HOME and CUDA_PATH (toolkit folders), nvcc on PATH, the nvidia-cuda-nvcc wheel of
// the Python in use (`nvidia/cu13` and the like, or the layout of the cu12 wheels), and
// /usr/local/cuda. nvcc must tell a version, 12.9 or newer; JIT_ALLOW_OLD_NVCC takes 12.3 to 12.8
// too, with a warning. Links are resolved: two spellings of one folder are one toolkit. cuobjdump,
// which is packaged apart from nvcc, may be missing.
// When not: flags of a kernel are CompilerOptions.
//
// Example:
//     cuda::Toolkit toolkit = cuda::find_toolkit(Env("MYLIB"), config);
//     // toolkit.nvcc == "/usr/local/cuda-13.0/bin/nvcc"
//
// Errors: exception::Exception that lists every candidate and why it was rejected. An option or a
// variable that is set is an order: when what it names does not work, nothing else is tried.
// Thread-safety: free functions and plain values. What an nvcc answered is remembered for as long
// as it is the same file.
#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <format>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/wheel_folders.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/identity_memo.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit::cuda {

struct NvccVersion {
  int major = 0;
  int minor = 0;
  std::string text;  // "13.0, V13.0.88"

  bool is_at_least(int wanted_major, int wanted_minor) const {
    return std::pair(major, minor) >= std::pair(wanted_major, wanted_minor);
  }
};

struct Toolkit {
  std::filesystem::path nvcc;
  std::optional<std::filesystem::path> cuobjdump = {};
  std::vector<std::filesystem::path> include_dirs = {};  // That nvcc does not know by itself.

  // The folder that nvcc's bin/ is in.
  std::filesystem::path home() const { return nvcc.parent_path().parent_path(); }
};

// nvcc of a toolkit as it is now. `identity.content` covers nvcc and what turns sources into
// machine code for it: cicc, libdevice and ptxas.
struct CompilerInfo {
  std::filesystem::path path;
  std::string version;
  CompilerIdentity identity = {};

  std::filesystem::path home() const { return path.parent_path().parent_path(); }

  nlohmann::ordered_json to_json() const {
    return {{"path", path.string()}, {"version", version}, {"content", identity.content.hex()}};
  }
};

Toolkit find_toolkit(const Env& env, const Config& config);

// Whether an option or a variable says which one to take.
bool is_toolkit_ordered(const Env& env, const Config& config);

// Runs `nvcc --version`. Fails with "failed to parse NVCC version" when it tells none.
NvccVersion ask_nvcc_version(const std::filesystem::path& nvcc);

CompilerInfo identify_toolkit(const Toolkit& toolkit);

// --- Inline implementations ---

namespace detail {

// nvcc's words, after whatever warnings and banners stand before them: "... release 13.0,
// V13.0.88".
inline std::optional<NvccVersion> parse_nvcc_version(std::string_view output) {
  constexpr std::string_view kRelease = "release ";
  for (std::size_t at = output.find(kRelease); at != output.npos;
       at = output.find(kRelease, at + 1)) {
    std::string_view text = output.substr(at + kRelease.size());
    text = text.substr(0, text.find_first_of("\r\n"));
    NvccVersion version{.text = std::string(text)};
    const char* const end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, version.major);
    if (error != std::errc() || dot == end || *dot != '.') continue;
    if (std::from_chars(dot + 1, end, version.minor).ec == std::errc()) return version;
  }
  return std::nullopt;
}

// Where a program is when links are followed; only its folder's when the link leads to a program of
// another name, which may behave by the name that it is called by.
inline std::filesystem::path resolve_program(const std::filesystem::path& program) {
  std::error_code error;
  const auto target = std::filesystem::canonical(program, error);
  if (!error && target.filename() == program.filename()) return target;
  const auto folder = std::filesystem::canonical(program.parent_path(), error);
  return error ? program : folder / program.filename();
}

class ToolkitSearch {
 public:
  explicit ToolkitSearch(const Env& env)
      : allows_old_(env.get<bool>("JIT_ALLOW_OLD_NVCC", false)) {}

  // Adds a line to the list of rejected candidates unless this nvcc works.
  std::optional<Toolkit> try_nvcc(const std::string& origin, const std::filesystem::path& nvcc) {
    if (!is_executable(nvcc)) {
      return reject(origin, "NVCC compiler is not executable: " + nvcc.string());
    }
    Toolkit toolkit{.nvcc = resolve_program(nvcc)};
    try {
      const NvccVersion version = ask_nvcc_version(toolkit.nvcc);
      if (!version.is_at_least(12, 3) || (!version.is_at_least(12, 9) && !allows_old_)) {
        return reject(origin, std::format("NVCC version must be at least 12.9 (or 12.3, if "
                                          "<PREFIX>_JIT_ALLOW_OLD_NVCC is set), but {} is {}",
                                          nvcc.string(), version.text));
      }
      if (!version.is_at_least(12, 9)) warn_once(toolkit.nvcc, version);
    } catch (const exception::Interrupted&) {
      throw;
    } catch (const exception::Exception& error) {
      return reject(origin, error.error);
    }
    add_cuobjdump(toolkit, nvcc.parent_path());
    add_cuobjdump(toolkit, toolkit.nvcc.parent_path());
    return toolkit;
  }

  static void add_cuobjdump(Toolkit& toolkit, const std::filesystem::path& folder) {
    const auto program = folder / "cuobjdump";
    if (!toolkit.cuobjdump && is_executable(program)) toolkit.cuobjdump = program;
  }

  // The packages of NVIDIA's wheels, each in a folder of the namespace package `nvidia`.
  std::optional<Toolkit> try_wheels(const std::string& python) {
    const std::string origin = std::format("wheels of `{}`", python);
    std::string why;
    const auto folders = find_wheel_folders(python, why);
    if (folders.empty()) return reject(origin, why);
    for (const auto& folder : folders) {
      auto roots = list_wheel_toolkits(folder);
      roots.push_back(folder / kCu12Folder);
      for (const auto& root : roots) {
        if (!is_executable(root / "bin/nvcc")) continue;
        auto toolkit = try_nvcc(origin, root / "bin/nvcc");
        if (!toolkit) continue;
        if (root.filename() == kCu12Folder) {
          for (const char* name : {"cuda_runtime", "cuda_cccl"}) {
            std::error_code error;
            const auto include = folder / name / "include";
            if (std::filesystem::is_directory(include, error)) {
              toolkit->include_dirs.push_back(include);
            }
          }
        }
        return toolkit;
      }
    }
    return reject(origin, std::format("no bin/nvcc in nvidia/cu*/ or nvidia/{}/ below {}",
                                      kCu12Folder, folders.front().string()));
  }

  [[noreturn]] void fail() const {
    DJ_PANIC(
        "no CUDA toolkit found. Tried:\n{}Install one (or the wheel nvidia-cuda-nvcc), or set "
        "CUDA_HOME to its folder or <PREFIX>_JIT_NVCC_COMPILER to its nvcc",
        rejected_);
  }

 private:
  static constexpr std::string_view kCu12Folder = "cuda_nvcc";

  static void warn_once(const std::filesystem::path& nvcc, const NvccVersion& version) {
    static std::mutex mutex;
    static std::set<std::filesystem::path> warned;
    {
      const std::lock_guard lock(mutex);
      if (!warned.insert(nvcc).second) return;
    }
    log(LogLevel::kWarning,
        std::format("{} is {}: NVCC 12.9 or newer is recommended; older ones know no "
                    "architecture families and make slower code",
                    nvcc.string(), version.text));
  }

  std::nullopt_t reject(const std::string& origin, std::string_view reason) {
    rejected_ += std::format("  {}: {}\n", origin, reason);
    return std::nullopt;
  }

  bool allows_old_;
  std::string rejected_;
};

}  // namespace detail

inline NvccVersion ask_nvcc_version(const std::filesystem::path& nvcc) {
  static std::mutex mutex;
  static std::map<std::pair<std::filesystem::path, FileIdentity>, NvccVersion> known;
  const auto file = FileIdentity::of(nvcc);
  if (file) {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find({nvcc, *file}); found != known.end()) return found->second;
  }
  const IdentityMemo* const memo =
      file && file->is_settled() ? IdentityMemoScope::current() : nullptr;
  const std::string question = "nvcc version " + nvcc.string();
  if (memo != nullptr) {
    const auto answer = memo->find(question, file->text());
    const auto version = detail::parse_nvcc_version("release " + answer.value_or(""));
    if (version) {
      const std::lock_guard lock(mutex);
      return known.emplace(std::pair(nvcc, *file), *version).first->second;
    }
  }
  const Command command{.arguments = {nvcc.string(), "--version"},
                        .environment = {{"LC_ALL", "C"}}};
  const CommandResult result = run_command(command);
  const std::string text = format_command(command.arguments);
  if (!result.ok()) {
    DJ_PANIC("`{}`: command failed with exit code {}: {}", text, result.exit_code, result.output);
  }
  const auto version = detail::parse_nvcc_version(result.output);
  if (!version) {
    DJ_PANIC("failed to parse NVCC version: `{}` printed no `release <major>.<minor>`: {}", text,
             result.output);
  }
  if (file && file->is_settled()) {
    if (memo != nullptr) memo->remember(question, file->text(), version->text);
    const std::lock_guard lock(mutex);
    known.emplace(std::pair(nvcc, *file), *version);
  }
  return *version;
}

inline CompilerInfo identify_toolkit(const Toolkit& toolkit) {
  CompilerInfo info{.path = toolkit.nvcc, .version = ask_nvcc_version(toolkit.nvcc).text};
  info.identity.version = "nvcc " + info.version;
  Hasher hasher;
  hasher.update(digest_file(toolkit.nvcc).hex());
  for (const char* part : {"bin/ptxas", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"}) {
    const auto file = toolkit.home() / part;
    hasher.update(FileIdentity::of(file) ? digest_file(file).hex() : "");
  }
  info.identity.content = hasher.digest();
  return info;
}

inline bool is_toolkit_ordered(const Env& env, const Config& config) {
  return !config.toolkit_root.empty() || !env.get<std::string>("JIT_NVCC_COMPILER", "").empty() ||
         !get_env<std::string>("CUDA_HOME").empty() || !get_env<std::string>("CUDA_PATH").empty();
}

inline Toolkit find_toolkit(const Env& env, const Config& config) {
  detail::ToolkitSearch search(env);
  if (!config.toolkit_root.empty()) {
    auto found = search.try_nvcc("toolkit_root", config.toolkit_root / "bin/nvcc");
    if (!found) search.fail();
    return *found;
  }
  std::vector<std::filesystem::path> folders;  // Where else cuobjdump may be.
  std::optional<std::pair<std::string, std::filesystem::path>> order;
  if (const auto nvcc = env.get<std::string>("JIT_NVCC_COMPILER"); nvcc && !nvcc->empty()) {
    order.emplace("JIT_NVCC_COMPILER", find_executable(*nvcc).value_or(*nvcc));
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::filesystem::path root = get_env<std::string>(variable);
    if (root.empty()) continue;
    folders.push_back(*normalize_path(root / "bin"));
    if (!order) order.emplace(variable, folders.back() / "nvcc");
  }
  const auto on_path = find_executable("nvcc");
  if (order) {
    auto found = search.try_nvcc(order->first, order->second);
    if (!found) search.fail();
    if (order->first == "JIT_NVCC_COMPILER") {
      // It replaces nvcc, not the rest of the toolkit.
      if (on_path) folders.push_back(detail::resolve_program(*on_path).parent_path());
      folders.emplace_back("/usr/local/cuda/bin");
      for (const auto& folder : folders) detail::ToolkitSearch::add_cuobjdump(*found, folder);
    }
    return *found;
  }
  if (auto found = search.try_nvcc("PATH", on_path.value_or("nvcc"))) return *found;
  for (const auto& python : list_pythons(config)) {
    if (auto found = search.try_wheels(python)) return *found;
  }
  if (auto found = search.try_nvcc("/usr/local/cuda", "/usr/local/cuda/bin/nvcc")) return *found;
  search.fail();
}

}  // namespace deep_jit::cuda
