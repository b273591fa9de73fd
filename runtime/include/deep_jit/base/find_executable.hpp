// SPDX-License-Identifier: MIT
//
// Looking for a program as a shell would.
//
// What: find_executable() gives the absolute path of a program that is named, and looked for on
// PATH, or given by path.
// When not: to run a program that must be there, run_command() looks it up itself.
//
// Example:
//     if (const auto python = find_executable("python3")) run_command({.arguments = {*python}});
//
// Errors: none; what cannot be executed is not found. Empty entries of PATH, which would mean the
// working directory, are skipped.
// Thread-safety: reads the environment; see base/env.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/filesystem.hpp"

namespace deep_jit {

std::optional<std::filesystem::path> find_executable(const std::string& program);

// --- Inline implementations ---

inline std::optional<std::filesystem::path> find_executable(const std::string& program) {
  if (program.empty()) return std::nullopt;
  if (program.find('/') != std::string::npos) {
    const auto path = *normalize_path(program);
    return is_executable(path) ? std::optional(path) : std::nullopt;
  }
  const std::string search = get_env<std::string>("PATH") + ':';
  for (std::size_t begin = 0; begin < search.size();) {
    const std::size_t end = search.find(':', begin);
    const std::filesystem::path directory = search.substr(begin, end - begin);
    begin = end + 1;
    if (directory.empty()) continue;
    const auto path = *normalize_path(directory / program);
    if (is_executable(path)) return path;
  }
  return std::nullopt;
}

}  // namespace deep_jit
