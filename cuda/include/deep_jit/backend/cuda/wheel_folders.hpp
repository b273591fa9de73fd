// SPDX-License-Identifier: MIT
//
// The folders in which a Python has NVIDIA's wheels.
//
// What: asks an interpreter for the places of its namespace package `nvidia`, and lists the toolkit
// folders in there: `cu14`, `cu13`, ... for the wheels of CUDA 13 and later, which share one
// folder, newest first. The wheels of CUDA 12 have a folder each (`cuda_nvcc`, `cuda_nvrtc`, ...).
// When not: what is in these folders is for toolkit.hpp and nvrtc_location.hpp to see.
//
// Example:
//     for (const auto& folder : find_wheel_folders("/usr/bin/python3", why)) {
//       for (const auto& root : list_wheel_toolkits(folder)) ...  // .../nvidia/cu13
//     }
//
// Errors: none; what is wrong is told as a text.
// Thread-safety: free functions. Each call starts the interpreter.
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit::cuda {

// The interpreters to ask, in order.
std::vector<std::string> list_pythons(const Config& config);

// Empty when there are none; then `why` says the reason.
std::vector<std::filesystem::path> find_wheel_folders(const std::string& python, std::string& why);

std::vector<std::filesystem::path> list_wheel_toolkits(const std::filesystem::path& folder);

// --- Inline implementations ---

inline std::vector<std::string> list_pythons(const Config& config) {
  if (!config.python_executable.empty()) return {config.python_executable};
  return {"python3", "python"};
}

inline std::vector<std::filesystem::path> find_wheel_folders(const std::string& python,
                                                             std::string& why) {
  const auto interpreter = find_executable(python);
  if (!interpreter) {
    why = "the interpreter is not an executable file";
    return {};
  }
  constexpr std::string_view kMark = "deep_jit ";  // Whatever else it prints is no path.
  const auto result =
      run_command({.arguments = {interpreter->string(), "-c",
                                 "import nvidia\nfor p in nvidia.__path__: print('deep_jit ' + p)"},
                   .working_directory = "/"});
  std::vector<std::filesystem::path> folders;
  std::string_view output = result.output;
  while (!output.empty()) {
    const std::string_view line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    if (line.starts_with(kMark)) folders.emplace_back(line.substr(kMark.size()));
  }
  if (folders.empty()) why = "it has no package `nvidia`";
  return folders;
}

inline std::vector<std::filesystem::path> list_wheel_toolkits(const std::filesystem::path& folder) {
  std::vector<std::pair<int, std::filesystem::path>> numbered;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    const char* const end = name.data() + name.size();
    if (name.starts_with("cu") && std::from_chars(name.data() + 2, end, number) ==
                                      std::from_chars_result{.ptr = end, .ec = std::errc()}) {
      numbered.emplace_back(number, entry.path());
    }
  }
  std::ranges::sort(numbered, std::greater<>());
  std::vector<std::filesystem::path> roots;
  for (auto& [number, path] : numbered) roots.push_back(std::move(path));
  return roots;
}

}  // namespace deep_jit::cuda
