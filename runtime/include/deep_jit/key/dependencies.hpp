// SPDX-License-Identifier: MIT
//
// Dependencies: the headers that a compiler has read for an entry, by content.
//
// What: what DependencyMode::kVerified keeps in an entry, as the file `dependencies`, and compares
// with the headers of today before the entry is used. A header below an include directory is kept
// by its name there, one below the compiler's folder relative to that, so that an entry verifies in
// another place too; any other one by its absolute path. A name that another include directory
// would be searched for first is resolved again: a header that hides another one is a change.
// When not: DependencyMode::kTracked follows headers itself (include_scanner.hpp). A new header in
// a directory given by a flag, that hides one that was read, is not seen here.
//
// Example:
//     Dependencies read = Dependencies::record(parse_depfile(depfile), directory, roots);
//     write_file_sync(directory / kDependenciesFileName, read.serialize());
//     ... Dependencies::of_entry(entry)->matches(roots) ...
//
// Grammar: `deep_jit-dependencies 1`, then per header, sorted, `<32 hex> <place> <path>`, where
// place is `search` (first match over the include directories), a number (that include directory),
// `compiler` or `absolute`. Lines end with a line feed.
// History: 1 = as above.
// Errors: record() throws Exception when a header cannot be read; an entry without a readable list
// has none, and one that cannot be read today does not match.
// Thread-safety: values; contents are remembered by digest_file().
#pragma once

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/key/file_digest.hpp"

namespace deep_jit {

inline constexpr std::string_view kDependenciesFileName = "dependencies";

// The folders that may lie elsewhere on another machine.
struct DependencyRoots {
  std::vector<std::filesystem::path> include_dirs;
  std::filesystem::path compiler_home;  // May be empty.
};

class Dependencies {
 public:
  static constexpr int kVersion = 1;

  // `files`: what a compiler that ran in `directory` has read. Those inside of it are left out:
  // they are part of the entry.
  static Dependencies record(const std::vector<std::string>& files,
                             const std::filesystem::path& directory, const DependencyRoots& roots);

  // The list in the directory of an entry.
  static std::optional<Dependencies> of_entry(const std::filesystem::path& directory);

  // Of a text of this version, within bounds.
  static std::optional<Dependencies> parse(std::string_view text);
  std::string serialize() const;

  // Whether each header has the content that it had.
  bool matches(const DependencyRoots& roots) const;

  std::size_t size() const { return headers_.size(); }

  friend bool operator==(const Dependencies&, const Dependencies&) = default;

 private:
  struct Header {
    std::string place;
    std::string path;
    Digest digest;

    friend auto operator<=>(const Header&, const Header&) = default;
  };

  static Header locate(const std::string& path, const DependencyRoots& roots);
  static std::optional<std::filesystem::path> resolve(const Header& header,
                                                      const DependencyRoots& roots);

  std::vector<Header> headers_;
};

// --- Inline implementations ---

namespace detail {

// A list of headers is some hundred kilobytes at most: what is far larger is damaged.
inline constexpr std::size_t kMaxDependenciesBytes = std::size_t{16} << 20;

inline std::optional<std::size_t> parse_index(std::string_view text) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

// The rest of `path` below `root`; nothing when it is elsewhere. Compares texts: `..` and links
// keep their meaning.
inline std::optional<std::string> path_below(const std::string& path,
                                             const std::filesystem::path& root) {
  std::string prefix = root.string();
  if (prefix.empty()) return std::nullopt;
  if (!prefix.ends_with('/')) prefix += '/';
  if (!path.starts_with(prefix)) return std::nullopt;
  const auto name = path.find_first_not_of('/', prefix.size());
  return name == path.npos ? std::nullopt : std::optional(path.substr(name));
}

}  // namespace detail

inline Dependencies Dependencies::record(const std::vector<std::string>& files,
                                         const std::filesystem::path& directory,
                                         const DependencyRoots& roots) {
  Dependencies recorded;
  for (const std::string& file : files) {
    std::string path = file;
    if (!std::filesystem::path(file).is_absolute()) {
      path = (directory / file).lexically_normal().string();
    }
    if (detail::path_below(path, directory)) continue;
    recorded.headers_.push_back(locate(path, roots));
    recorded.headers_.back().digest = digest_file(path);
  }
  std::ranges::sort(recorded.headers_);
  const auto repeated = std::ranges::unique(recorded.headers_);
  recorded.headers_.erase(repeated.begin(), repeated.end());
  return recorded;
}

inline auto Dependencies::locate(const std::string& path, const DependencyRoots& roots) -> Header {
  for (std::size_t i = 0; i < roots.include_dirs.size(); ++i) {
    const auto name = detail::path_below(path, roots.include_dirs[i]);
    if (!name) continue;
    const auto first = resolve({"search", *name, {}}, roots);
    const bool is_first = first && *first == roots.include_dirs[i] / *name;
    return {is_first ? "search" : std::to_string(i), *name, {}};
  }
  if (const auto name = detail::path_below(path, roots.compiler_home)) {
    return {"compiler", *name, {}};
  }
  return {"absolute", path, {}};
}

inline std::optional<std::filesystem::path> Dependencies::resolve(const Header& header,
                                                                  const DependencyRoots& roots) {
  if (header.place == "absolute") return header.path;
  if (header.place == "compiler") return roots.compiler_home / header.path;
  if (header.place != "search") {
    const auto index = detail::parse_index(header.place);
    if (!index || *index >= roots.include_dirs.size()) return std::nullopt;
    return roots.include_dirs[*index] / header.path;
  }
  for (const auto& dir : roots.include_dirs) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(dir / header.path, ignored)) return dir / header.path;
  }
  return std::nullopt;
}

inline bool Dependencies::matches(const DependencyRoots& roots) const {
  return std::ranges::all_of(headers_, [&roots](const Header& header) {
    const auto file = resolve(header, roots);
    if (!file) return false;
    try {
      return digest_file(*file) == header.digest;
    } catch (const exception::Exception&) {
      return false;  // Gone or unreadable.
    }
  });
}

inline std::optional<Dependencies> Dependencies::of_entry(const std::filesystem::path& directory) {
  std::string text;
  if (try_read_regular(directory / kDependenciesFileName, detail::kMaxDependenciesBytes, text) !=
      0) {
    return std::nullopt;
  }
  return parse(text);
}

inline std::string Dependencies::serialize() const {
  std::string text = "deep_jit-dependencies " + std::to_string(kVersion) + "\n";
  for (const Header& header : headers_) {
    text += header.digest.hex() + " " + header.place + " " + header.path + "\n";
  }
  return text;
}

inline std::optional<Dependencies> Dependencies::parse(std::string_view text) {
  const std::string first = Dependencies().serialize();
  if (text.size() > detail::kMaxDependenciesBytes || !text.starts_with(first)) return std::nullopt;
  text.remove_prefix(first.size());
  Dependencies parsed;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == text.npos) return std::nullopt;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const auto digest = Digest::from_hex(line.substr(0, line.find(' ')));
    if (!digest) return std::nullopt;
    line.remove_prefix(std::min(digest->hex().size() + 1, line.size()));
    const std::string_view place = line.substr(0, line.find(' '));
    if (place != "search" && place != "compiler" && place != "absolute" &&
        !detail::parse_index(place)) {
      return std::nullopt;
    }
    line.remove_prefix(std::min(place.size() + 1, line.size()));
    if (line.empty() || line.starts_with('/') != (place == "absolute")) return std::nullopt;
    if (line.find('\0') != line.npos) return std::nullopt;
    parsed.headers_.push_back({std::string(place), std::string(line), *digest});
  }
  return parsed;
}

}  // namespace deep_jit
