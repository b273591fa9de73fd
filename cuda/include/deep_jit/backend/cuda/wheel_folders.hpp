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
// Thread-safety: free functions. Each call starts the interpreter, unless a memo
// (key/identity_memo.hpp) knows the answer: until the interpreter or one of the folders changes.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/identity_memo.hpp"
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

namespace detail {

inline bool is_script(const std::filesystem::path& program) {
  const FileDescriptor file = open_file(AT_FDCWD, program.c_str(), O_RDONLY);
  char first[2] = {};
  return !file.is_open() || read_some(file.get(), first, sizeof(first)) != sizeof(first) ||
         (first[0] == '#' && first[1] == '!');
}

// A line for each: its identity and its path. Nothing when one has changed just now.
inline std::optional<std::string> describe_folders(
    const std::vector<std::filesystem::path>& folders) {
  std::string text;
  for (const auto& folder : folders) {
    const auto identity = FileIdentity::of(folder);
    if (!identity || !identity->is_settled()) return std::nullopt;
    text += identity->text() + "|" + folder.string() + "\n";
  }
  return text;
}

// The inverse; empty when one of them has changed since.
inline std::vector<std::filesystem::path> parse_folders(std::string_view text) {
  std::vector<std::filesystem::path> folders;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t bar = line.find('|');
    if (bar == line.npos) return {};
    folders.emplace_back(line.substr(bar + 1));
    const auto identity = FileIdentity::of(folders.back());
    if (!identity || identity->text() != line.substr(0, bar)) return {};
  }
  return folders;
}

}  // namespace detail

inline std::vector<std::filesystem::path> find_wheel_folders(const std::string& python,
                                                             std::string& why) {
  const auto interpreter = find_executable(python);
  if (!interpreter) {
    why = "the interpreter is not an executable file";
    return {};
  }
  const auto file = FileIdentity::of(*interpreter);
  // A script chooses an interpreter by what is elsewhere.
  const IdentityMemo* const memo = file && file->is_settled() && !detail::is_script(*interpreter)
                                       ? IdentityMemoScope::current()
                                       : nullptr;
  std::string question = "wheels " + interpreter->string();
  for (const char* name : {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}) {
    question += "\n" + get_env<std::string>(name);
  }
  if (memo != nullptr) {
    auto known = detail::parse_folders(memo->find(question, file->text()).value_or(""));
    if (!known.empty()) return known;
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
  if (folders.empty()) why = "it has no package `nvidia`";  // Not kept: one may be installed.
  if (memo != nullptr && !folders.empty()) {
    if (const auto text = detail::describe_folders(folders)) {
      memo->remember(question, file->text(), *text);
    }
  }
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
