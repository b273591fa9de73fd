// SPDX-License-Identifier: MIT
//
// Config: what an embedding library tells the runtime about itself.
//
// What: where the library lies, the prefix of its environment variables, a free signature for the
// cache key, which headers its kernels may include, and, if it does not leave that to the
// environment, where its cache and its backend's toolkit lie. The constructor validates and
// normalises.
// When not: per-kernel settings are CompilerOptions and LaunchOptions of the backend.
//
// Example:
//     Config config("/opt/mylib", "MYLIB", "mylib 1.2", {"/opt/mylib/include"}, {"mylib/"});
//
// Errors: exception::Exception for an empty or relative root, include or cache directory, for a
// relative toolkit root, and for a prefix that Env refuses.
// Thread-safety: a plain value.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"

namespace deep_jit {

// How changes of headers are noticed. kTracked: the headers under include_prefixes are found by a
// fast scanner (key/include_scanner.hpp) and are part of the key. kVerified: the compiler's own
// list of all that it has read is kept in the entry and compared by content before the entry is
// used (key/dependencies.hpp), also what a macro, a quoted or a system include brings in. It costs
// a preprocessor run more per compile, and a stat(2) per header for an entry on disk.
enum class DependencyMode { kTracked, kVerified };

struct Config {
  std::filesystem::path python_library_root;
  std::string env_prefix;
  std::string extra_signature;
  std::vector<std::filesystem::path> include_dirs;
  std::vector<std::string> include_prefixes;
  std::string python_executable;  // Asked for the ziglang wheel; empty: python3, python from PATH.
  std::vector<std::filesystem::path> cache_dirs;  // Used instead of JIT_CACHE_DIR unless empty.
  DependencyMode dependency_mode = DependencyMode::kTracked;
  std::filesystem::path toolkit_root;  // Of a vendor's backend; empty: it looks for one.

  explicit Config(std::filesystem::path root, std::string env_prefix,
                  std::string extra_signature = {},
                  std::vector<std::filesystem::path> include_dirs = {},
                  std::vector<std::string> include_prefixes = {},
                  std::string python_executable = {},
                  std::vector<std::filesystem::path> cache_dirs = {},
                  DependencyMode dependency_mode = DependencyMode::kTracked,
                  std::filesystem::path toolkit_root = {});

  // A path below the library root.
  std::filesystem::path get_python_path(const std::string& relative) const;

  // For meta.json. Holds neither prefix, interpreter, cache nor toolkit: they do not describe the
  // library.
  nlohmann::ordered_json to_json() const;
};

// --- Inline implementations ---

inline Config::Config(std::filesystem::path root, std::string env_prefix,
                      std::string extra_signature, std::vector<std::filesystem::path> include_dirs,
                      std::vector<std::string> include_prefixes, std::string python_executable,
                      std::vector<std::filesystem::path> cache_dirs, DependencyMode dependency_mode,
                      std::filesystem::path toolkit_root)
    : python_library_root(std::move(root)),
      env_prefix(std::move(env_prefix)),
      extra_signature(std::move(extra_signature)),
      include_dirs(std::move(include_dirs)),
      include_prefixes(std::move(include_prefixes)),
      python_executable(std::move(python_executable)),
      cache_dirs(std::move(cache_dirs)),
      dependency_mode(dependency_mode),
      toolkit_root(std::move(toolkit_root)) {
  const auto normalize = [](std::filesystem::path& path, const char* what) {
    if (path.empty()) DJ_PANIC("{} must not be empty: give an absolute path", what);
    if (!path.is_absolute()) {
      DJ_PANIC(
          "{} must be absolute, but is `{}`: a relative one would change its meaning with the "
          "working directory",
          what, path.string());
    }
    path = path.lexically_normal();
  };
  normalize(python_library_root, "Python library root");
  const Env validated(this->env_prefix);
  for (auto& dir : this->include_dirs) normalize(dir, "include directory");
  for (auto& dir : this->cache_dirs) normalize(dir, "cache directory");
  if (!this->toolkit_root.empty()) normalize(this->toolkit_root, "toolkit root");
}

inline std::filesystem::path Config::get_python_path(const std::string& relative) const {
  return (python_library_root / relative).lexically_normal();
}

inline nlohmann::ordered_json Config::to_json() const {
  nlohmann::ordered_json dirs = nlohmann::ordered_json::array();
  for (const auto& dir : include_dirs) dirs.push_back(dir.string());
  return {{"python_library_root", python_library_root.string()},
          {"extra_signature", extra_signature},
          {"include_dirs", std::move(dirs)},
          {"include_prefixes", include_prefixes}};
}

}  // namespace deep_jit
