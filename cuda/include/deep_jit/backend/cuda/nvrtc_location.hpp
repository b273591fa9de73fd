// SPDX-License-Identifier: MIT
//
// cuda::NvrtcLocation: where NVRTC is, and the search for it.
//
// What: the first of JIT_NVRTC_LIBRARY (the file itself), the toolkit that nvcc was found in (or
// Config::toolkit_root), the wheel nvidia-cuda-nvrtc of the Python in use, and what the dynamic
// loader finds by name. With it come the folders of CUDA's own headers: those beside the library,
// or the toolkit's. Nothing is opened, but by the last way.
// When not: opening is nvrtc_library.hpp's work.
//
// Example:
//     const NvrtcLocation place = find_nvrtc(env, config, &toolkit);
//     // place.library == "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libnvrtc.so.13"
//
// Errors: exception::Exception that lists every candidate and why it was rejected.
// Thread-safety: free functions and plain values.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/toolkit.hpp"
#include "deep_jit/backend/cuda/wheel_folders.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit::cuda {

struct NvrtcLocation {
  std::filesystem::path library;                    // libnvrtc.so.<major>, links followed.
  std::vector<std::filesystem::path> include_dirs;  // CUDA's own headers.
  std::optional<std::filesystem::path> cuobjdump = {};

  // As it is now: version is the library's name, content covers it and its builtins.
  CompilerIdentity identity() const;
};

// `toolkit`: where nvcc is; null without one, or when nvcc was not looked for: then CUDA_HOME,
// CUDA_PATH and the place of an nvcc on PATH are tried as they are.
NvrtcLocation find_nvrtc(const Env& env, const Config& config, const Toolkit* toolkit);

// --- Inline implementations ---

namespace detail {

class NvrtcSearch {
 public:
  // The newest libnvrtc in a folder.
  bool try_folder(const std::string& origin, const std::filesystem::path& folder) {
    constexpr std::string_view kPrefix = "libnvrtc.so.";
    std::pair<int, std::filesystem::path> newest(-1, "");
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      int number = 0;
      const char* const end = name.data() + name.size();
      // Not libnvrtc.so.13.0.88, which libnvrtc.so.13 leads to.
      if (std::from_chars(name.data() + kPrefix.size(), end, number).ptr != end) continue;
      if (number > newest.first) newest = {number, entry.path()};
    }
    if (newest.first < 0)
      return reject(origin, std::format("no libnvrtc.so.* in {}", folder.string()));
    return try_file(origin, newest.second);
  }

  bool try_file(const std::string& origin, const std::filesystem::path& file) {
    std::error_code error;
    const auto library = std::filesystem::canonical(file, error);
    if (error || !std::filesystem::is_regular_file(library, error)) {
      return reject(origin, "not a file: " + file.string());
    }
    found_.library = library;
    return true;
  }

  bool try_root(const std::string& origin, const std::filesystem::path& root) {
    for (const char* folder : {"lib64", "lib"}) {
      if (!try_folder(origin, root / folder)) continue;
      add_cuobjdump(root / "bin/cuobjdump");
      return true;
    }
    return false;
  }

  // The include folders of a toolkit, or of a wheel.
  void add_includes(const std::filesystem::path& root) {
    for (const char* name : {"include", "include/cccl"}) {
      std::error_code error;
      const auto folder = root / name;
      const bool is_known =
          std::ranges::find(found_.include_dirs, folder) != found_.include_dirs.end();
      if (!is_known && std::filesystem::is_directory(folder, error)) {
        found_.include_dirs.push_back(folder);
      }
    }
  }

  void add_cuobjdump(const std::filesystem::path& program) {
    if (!found_.cuobjdump && is_executable(program)) found_.cuobjdump = program;
  }

  bool reject(const std::string& origin, std::string_view reason) {
    rejected_ += std::format("  {}: {}\n", origin, reason);
    return false;
  }

  NvrtcLocation take(const Toolkit* toolkit) {
    add_includes(found_.library.parent_path().parent_path());
    if (toolkit != nullptr) {
      if (toolkit->cuobjdump) add_cuobjdump(*toolkit->cuobjdump);
      if (found_.include_dirs.empty()) {
        add_includes(toolkit->home());
        for (const auto& dir : toolkit->include_dirs) found_.include_dirs.push_back(dir);
      }
    }
    add_cuobjdump(found_.library.parent_path().parent_path() / "bin/cuobjdump");
    return std::move(found_);
  }

  [[noreturn]] void fail() const {
    DJ_PANIC(
        "no NVRTC found. Tried:\n{}Install CUDA's NVRTC (or the wheel nvidia-cuda-nvrtc), or set "
        "<PREFIX>_JIT_NVRTC_LIBRARY to its libnvrtc.so",
        rejected_);
  }

 private:
  NvrtcLocation found_;
  std::string rejected_;
};

inline bool try_wheels(NvrtcSearch& search, const std::string& python) {
  const std::string origin = std::format("wheels of `{}`", python);
  std::string why;
  const auto folders = find_wheel_folders(python, why);
  if (folders.empty()) return search.reject(origin, why);
  for (const auto& folder : folders) {
    for (const auto& root : list_wheel_toolkits(folder)) {
      if (search.try_folder(origin, root / "lib")) return true;
    }
    if (search.try_folder(origin, folder / "cuda_nvrtc/lib")) {
      for (const char* name : {"cuda_runtime", "cuda_cccl"}) search.add_includes(folder / name);
      return true;
    }
  }
  return false;
}

// Toolkit folders that the environment names.
inline bool try_environment(NvrtcSearch& search) {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::filesystem::path root = get_env<std::string>(variable);
    if (root.empty()) continue;
    const auto folder = *normalize_path(root);
    if (search.try_root(variable, folder)) return true;
  }
  const auto nvcc = find_executable("nvcc");
  return nvcc && search.try_root("PATH", resolve_program(*nvcc).parent_path().parent_path());
}

// What this process has open already, or the loader's path has.
inline bool try_loader(NvrtcSearch& search) {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    void* const handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const reason = ::dlerror();
      search.reject("the loader's path", reason == nullptr ? name : reason);
      continue;
    }
    Dl_info info{};
    if (::dladdr(::dlsym(handle, "nvrtcVersion"), &info) != 0 && info.dli_fname != nullptr &&
        search.try_file("the loader's path", info.dli_fname)) {
      return true;  // The handle is kept: that very file is what is opened then.
    }
    ::dlclose(handle);
  }
  return false;
}

}  // namespace detail

inline NvrtcLocation find_nvrtc(const Env& env, const Config& config, const Toolkit* toolkit) {
  detail::NvrtcSearch search;
  if (const auto file = env.get<std::string>("JIT_NVRTC_LIBRARY"); file && !file->empty()) {
    if (search.try_file("JIT_NVRTC_LIBRARY", *file)) return search.take(toolkit);
    search.fail();  // An order.
  }
  if (!config.toolkit_root.empty() && search.try_root("toolkit_root", config.toolkit_root)) {
    return search.take(toolkit);
  }
  if (toolkit != nullptr) {
    if (search.try_root("nvcc's toolkit", toolkit->home())) return search.take(toolkit);
  } else if (detail::try_environment(search)) {
    return search.take(toolkit);
  }
  for (const auto& python : list_pythons(config)) {
    if (detail::try_wheels(search, python)) return search.take(toolkit);
  }
  if (toolkit == nullptr && search.try_root("/usr/local/cuda", "/usr/local/cuda")) {
    return search.take(toolkit);
  }
  if (detail::try_loader(search)) return search.take(toolkit);
  search.fail();
}

inline CompilerIdentity NvrtcLocation::identity() const {
  Hasher hasher;
  hasher.update(digest_file(library).hex());
  // By name: which one the library takes is known only when it is open.
  std::vector<std::filesystem::path> builtins;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(library.parent_path(), error)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so")) {
      builtins.push_back(entry.path());
    }
  }
  std::ranges::sort(builtins);
  for (const auto& file : builtins) hasher.update(digest_file(file).hex());
  return {"nvrtc " + library.filename().string(), hasher.digest()};
}

}  // namespace deep_jit::cuda
