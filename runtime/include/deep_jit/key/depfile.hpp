// SPDX-License-Identifier: MIT
//
// parse_depfile: the files that a compiler has read, from the rule it writes with `-MD -MF`.
//
// What: GCC, clang, nvcc and what is built on them write a rule for make, `target: file file \`,
// with blanks, `#` and `$` escaped. Only the first rule counts: those behind it are for phony
// targets and modules.
// When not: a file whose name holds a line break cannot be written in a depfile.
//
// Example:
//     for (const std::string& file : parse_depfile(read(directory / "kernel.d"))) ...
//
// Errors: none: what is no rule has no files.
// Thread-safety: a pure function.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deep_jit {

std::vector<std::string> parse_depfile(std::string_view text);

// --- Inline implementations ---

inline std::vector<std::string> parse_depfile(std::string_view text) {
  std::vector<std::string> files;
  std::size_t at = text.find(':');
  if (at == text.npos) return files;
  std::string file;
  const auto end_file = [&] {
    if (!file.empty()) files.push_back(std::move(file));
    file.clear();
  };
  for (++at; at < text.size(); ++at) {
    const char c = text[at];
    const std::string_view rest = text.substr(at + 1);
    if (c == '\n') break;
    if (c == ' ' || c == '\t' || c == '\r') {
      end_file();
    } else if (c == '\\' && (rest.starts_with('\n') || rest.starts_with("\r\n"))) {
      end_file();
      at += rest.front() == '\r' ? 2 : 1;
    } else if (c == '\\' && (rest.starts_with(' ') || rest.starts_with('\t'))) {
      // Backslashes in front of an escaped blank are doubled, and only there.
      std::size_t backslashes = 1;
      while (!file.empty() && file.back() == '\\') {
        file.pop_back();
        ++backslashes;
      }
      file.append(backslashes / 2, '\\');
      if (backslashes % 2 == 1) {
        file += rest.front();
        ++at;
      }
    } else if ((c == '\\' && rest.starts_with('#')) || (c == '$' && rest.starts_with('$'))) {
      file += rest.front();
      ++at;
    } else {
      file += c;
    }
  }
  end_file();
  return files;
}

}  // namespace deep_jit
