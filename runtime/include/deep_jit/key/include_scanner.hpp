// SPDX-License-Identifier: MIT
//
// IncludeScanner: which library headers a kernel source pulls in, by content.
//
// What: scan() looks at the #include lines of a source and returns one digest over the contents of
// every tracked header, followed through the headers that those include. A header is tracked when
// its name starts with one of the include prefixes; it is the first match over the include
// directories, in order. The digest depends on contents only, never on where the directories lie.
// When not: this is no preprocessor. It works by line: an include inside `#if 0` or a block comment
// counts; an include made by a macro, broken over lines or hidden behind a comment does not.
//
// Example:
//     IncludeScanner scanner({"/opt/mylib/include"}, {"mylib/"});
//     Digest digest = scanner.scan("#include <mylib/scale.hpp>\n...");
//
// `#include "x.hpp"` is tracked when it lies beside the tracked header that includes it, or when
// the include directories hold it under a tracked prefix; any other quoted include is an error,
// because an edit of that file would go unseen. Errors: exception::Exception with "non-standard
// include", "failed to open" or "circular include may occur", each naming the header.
// Thread-safety: all members may be called from any thread. A header is read once and remembered
// until forget().
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"

namespace deep_jit {

// --- One #include line ---

struct IncludeLine {
  std::string_view name;
  bool quoted = false;
};

// The include on `line` (without its line end), or nothing when the line is not a plain include.
// Throws for a name that is not closed or is padded with blanks: `< a.hpp>`, `<a.hpp"`.
std::optional<IncludeLine> parse_include_line(std::string_view line);

// --- The scanner ---

class IncludeScanner {
 public:
  IncludeScanner(std::vector<std::filesystem::path> include_dirs,
                 std::vector<std::string> include_prefixes)
      : include_dirs(std::move(include_dirs)), include_prefixes(std::move(include_prefixes)) {}

  // The digest of all tracked headers that `source` reaches, in order; not of `source` itself.
  Digest scan(std::string_view source);

  // Forgets every remembered header, so that the next scan reads the files as they are now.
  void forget();

  const std::vector<std::filesystem::path> include_dirs;
  const std::vector<std::string> include_prefixes;

 private:
  using Chain = std::vector<std::filesystem::path>;  // The headers being read, outermost first.

  bool is_tracked(std::string_view name) const;
  std::optional<std::filesystem::path> find_in_dirs(std::string_view name) const;
  std::optional<std::filesystem::path> resolve(const IncludeLine& include,
                                               const Chain& chain) const;
  void scan_text(std::string_view text, Chain& chain, Hasher& hasher);
  Digest scan_header(const std::filesystem::path& header, Chain& chain);

  std::mutex mutex_;  // Held over a whole scan: two threads must not remember different contents.
  std::map<std::filesystem::path, Digest> headers_;
};

// --- Inline implementations ---

inline std::optional<IncludeLine> parse_include_line(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\f\v";
  const std::string_view whole = line.substr(0, line.find_last_not_of("\r") + 1);
  const auto trim_left = [&line, kBlanks] {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  };
  constexpr std::string_view kInclude = "include";
  trim_left();
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(1);
  trim_left();
  if (!line.starts_with(kInclude)) return std::nullopt;
  line.remove_prefix(kInclude.size());
  trim_left();
  if (!line.starts_with('<') && !line.starts_with('"')) return std::nullopt;

  const bool quoted = line.front() == '"';
  line.remove_prefix(1);
  const auto end = line.find(quoted ? '"' : '>');
  const std::string_view name = line.substr(0, end);
  const auto is_blank = [kBlanks](char c) { return kBlanks.find(c) != kBlanks.npos; };
  if (end == line.npos || name.empty() || is_blank(name.front()) || is_blank(name.back())) {
    DJ_PANIC("non-standard include: `{}`: write `#include <name>` with no blanks around the name",
             whole);
  }
  return IncludeLine{name, quoted};
}

inline bool IncludeScanner::is_tracked(std::string_view name) const {
  return std::any_of(include_prefixes.begin(), include_prefixes.end(),
                     [name](const std::string& prefix) { return name.starts_with(prefix); });
}

inline std::optional<std::filesystem::path> IncludeScanner::find_in_dirs(
    std::string_view name) const {
  for (const auto& dir : include_dirs) {
    auto candidate = (dir / name).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
  }
  return std::nullopt;
}

// The file of a tracked include, nothing for an untracked one.
inline std::optional<std::filesystem::path> IncludeScanner::resolve(const IncludeLine& include,
                                                                    const Chain& chain) const {
  const bool tracked = is_tracked(include.name);
  if (include.quoted) {
    if (!chain.empty()) {
      auto beside = (chain.back().parent_path() / include.name).lexically_normal();
      std::error_code ignored;
      if (std::filesystem::is_regular_file(beside, ignored)) return beside;
    }
    auto found = tracked ? find_in_dirs(include.name) : std::nullopt;
    if (!found) {
      DJ_PANIC(
          "non-standard include: \"{}\"{} is neither beside a tracked header nor under a tracked "
          "prefix in an include directory, so an edit of it would go unseen: write "
          "`#include <{}>`, or add its prefix to include_prefixes",
          include.name, chain.empty() ? "" : " in " + chain.back().string(), include.name);
    }
    return found;
  }
  if (!tracked) return std::nullopt;
  auto found = find_in_dirs(include.name);
  if (!found) {
    std::string dirs;
    for (const auto& dir : include_dirs) dirs += (dirs.empty() ? "" : ", ") + dir.string();
    DJ_PANIC("failed to open tracked header <{}>{}: it is in none of the include directories [{}]",
             include.name, chain.empty() ? "" : " included by " + chain.back().string(), dirs);
  }
  return found;
}

inline void IncludeScanner::scan_text(std::string_view text, Chain& chain, Hasher& hasher) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto include = parse_include_line(line);
    if (!include) continue;
    if (const auto header = resolve(*include, chain)) {
      hasher.update(scan_header(*header, chain).hex());
    }
  }
}

inline Digest IncludeScanner::scan_header(const std::filesystem::path& header, Chain& chain) {
  if (const auto known = headers_.find(header); known != headers_.end()) return known->second;
  if (std::find(chain.begin(), chain.end(), header) != chain.end()) {
    DJ_PANIC("circular include may occur: {} includes itself through {}; break the cycle",
             header.string(), chain.back().string());
  }
  chain.push_back(header);
  const std::string content = read(header);
  Hasher hasher;
  hasher.update(content);
  scan_text(content, chain, hasher);
  chain.pop_back();
  return headers_.emplace(header, hasher.digest()).first->second;
}

inline Digest IncludeScanner::scan(std::string_view source) {
  const std::lock_guard lock(mutex_);
  Chain chain;
  Hasher hasher;
  scan_text(source, chain, hasher);
  return hasher.digest();
}

inline void IncludeScanner::forget() {
  const std::lock_guard lock(mutex_);
  headers_.clear();
}

}  // namespace deep_jit
