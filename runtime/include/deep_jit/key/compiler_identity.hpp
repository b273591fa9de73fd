// SPDX-License-Identifier: MIT
//
// CompilerIdentity: what tells one compiler from another, wherever it is installed.
//
// What: identify_compiler() runs `<command> --version` and keeps the line that holds the version
// number (and clang's `Target:` line), and digests the content of the executable. Two copies of one
// compiler in different folders have the same identity; an upgrade or a patched binary has another.
// When not: it does not follow what the executable loads or starts (cc1plus, libLLVM);
// distributions put their package version into the version line, which covers these.
//
// Example:
//     CompilerIdentity gcc = identify_compiler({"/usr/bin/g++"}, "/usr/bin/g++");
//     // gcc.version == "g++ (Debian 16.2.0-4) 16.2.0"
//
// Errors: exception::Exception naming the command when it fails or tells no version.
// Thread-safety: free functions, callable from any thread. The answer is remembered for the
// process, as long as the executables are the same files (FileIdentity): asking again, to notice a
// compiler that was replaced in place, costs two stat(2) calls. Where there is a memo
// (identity_memo.hpp) it is kept between processes, too.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/identity_memo.hpp"

namespace deep_jit {

struct CompilerIdentity {
  std::string version;
  Digest content;
};

// The part of `--version` output that belongs into a key; empty when no line has a version number.
// Lines that are warnings or errors, which loaders and wrappers print first, are never taken.
std::string parse_compiler_version(std::string_view output);

// `command`: how the compiler is started, with its fixed arguments; `executable`: the file whose
// content counts (for `ccache g++` that is g++).
CompilerIdentity identify_compiler(const std::vector<std::string>& command,
                                   const std::filesystem::path& executable);

// --- Inline implementations ---

namespace detail {

// A number with a dot that starts a word, as in `release 13.0,` or `(GCC) 16.2.0` but not in
// `libfoo.so.1.2`.
inline bool has_version_number(std::string_view line) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!is_digit(line[i]) ||
        (i > 0 && std::string_view(" \t(vV").find(line[i - 1]) == std::string_view::npos)) {
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && is_digit(line[end])) ++end;
    if (end + 1 < line.size() && line[end] == '.' && is_digit(line[end + 1])) return true;
  }
  return false;
}

inline bool is_diagnostic(std::string_view line) {
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("warning") != lower.npos || lower.find("error:") != lower.npos;
}

}  // namespace detail

inline std::string parse_compiler_version(std::string_view output) {
  std::string version;
  while (!output.empty()) {
    std::string_view line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (version.empty()) {
      if (detail::has_version_number(line) && !detail::is_diagnostic(line)) version = line;
    } else if (line.starts_with("Target:")) {
      version.append("\n").append(line);
    }
  }
  return version;
}

namespace detail {

inline CompilerIdentity run_for_identity(const std::vector<std::string>& command,
                                         const std::filesystem::path& executable) {
  Command version_command{.arguments = command, .environment = {{"LC_ALL", "C"}}};
  version_command.arguments.push_back("--version");
  const CommandResult result = run_command(version_command);
  const std::string text = format_command(version_command.arguments);
  if (!result.ok()) {
    DJ_PANIC("`{}` failed with exit code {}: {}", text, result.exit_code, result.output);
  }
  CompilerIdentity identity{parse_compiler_version(result.output), digest_file(executable)};
  if (identity.version.empty()) {
    DJ_PANIC("failed to parse the compiler version: `{}` printed no line with a version number: {}",
             text, result.output);
  }
  return identity;
}

}  // namespace detail

inline CompilerIdentity identify_compiler(const std::vector<std::string>& command,
                                          const std::filesystem::path& executable) {
  using Executables = std::vector<FileIdentity>;
  static std::mutex mutex;
  static std::map<std::pair<std::vector<std::string>, Executables>, CompilerIdentity> known;
  Executables executables;
  bool is_settled = true;
  for (const std::filesystem::path& file :
       {std::filesystem::path(command.empty() ? "" : command.front()), executable}) {
    const auto identity = FileIdentity::of(file);
    is_settled = is_settled && identity && identity->is_settled();
    if (identity) executables.push_back(*identity);
  }
  auto question = std::pair(command, std::move(executables));
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(question); found != known.end()) return found->second;
  }
  const IdentityMemo* const memo = is_settled ? IdentityMemoScope::current() : nullptr;
  std::string asked = "compiler";
  for (const auto& word : command) asked += '\0' + word;
  std::string state;
  for (const auto& file : question.second) state += file.text();
  CompilerIdentity identity;
  const auto answer = memo != nullptr ? memo->find(asked, state) : std::nullopt;
  if (const auto content =
          answer ? Digest::from_hex(answer->substr(0, answer->find(' '))) : std::nullopt) {
    identity = {answer->substr(content->hex().size() + 1), *content};
  } else {
    identity = detail::run_for_identity(command, executable);
    if (memo != nullptr) {
      memo->remember(asked, state, identity.content.hex() + " " + identity.version);
    }
  }
  if (is_settled) {
    const std::lock_guard lock(mutex);
    known.emplace(std::move(question), identity);
  }
  return identity;
}

}  // namespace deep_jit
