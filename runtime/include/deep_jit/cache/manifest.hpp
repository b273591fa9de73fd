// SPDX-License-Identifier: MIT
//
// The manifest of a cache entry: its `.committed` file.
//
// What: an entry without a manifest was never finished; one whose files do not have the sizes and
// checksums of its manifest is damaged. Neither is used.
//
// When not: this protects against accidents (a full disk, a killed writer, a flipped bit), not
// against someone who may write to the cache root.
//
// Grammar (text; every line ends with one '\n', the last one too):
//     manifest = "deep_jit-entry " version '\n' file* "checksum " hex32 '\n'
//     file     = "file " size ' ' hex32 ' ' name '\n'  ; ascending byte order of names, none twice
//     version  = decimal number; this file describes version 1
//     size     = decimal number of bytes, without leading zeros
//     hex32    = 32 lower-case hex digits: XXH3-128 of the file's bytes; for "checksum", of all
//                bytes before that line
//     name     = path below the entry: any bytes but '\n' and NUL; parts separated by '/', none of
//                them "", "." or ".."
// History: 1 first version. tests/golden/entry_v<N>/ holds an entry of each version.
//
// Example:
//     write_file_sync(directory / kCommitFileName, Manifest::of_directory(directory).serialize());
//     std::optional<Manifest> manifest = Manifest::parse(text);
//     bool usable = manifest.has_value() and manifest->matches(directory);
//
// Errors: parse and matches say nullopt and false, whatever is wrong; of_directory throws
// CacheError, and its child UnfitBuild for what no manifest can describe.
// Thread-safety: a value; share only for reading.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"

namespace deep_jit {

inline constexpr std::string_view kCommitFileName = ".committed";
inline constexpr int kEntryFormatVersion = 1;

// Bounds on what is believed of a file that anything may have happened to.
inline constexpr std::size_t kMaxManifestBytes = 1 << 20;
inline constexpr std::size_t kMaxManifestFiles = 4096;

// What a build left behind cannot be an entry, on any disk: links, too many files.
class UnfitBuild : public exception::CacheError {
 public:
  using CacheError::CacheError;
};

struct ManifestFile {
  std::string name;
  std::uint64_t size = 0;
  Digest digest;

  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  std::vector<ManifestFile> files;  // in ascending order of the names

  // The text of the `.committed` file.
  std::string serialize() const;

  // The inverse; nullopt for anything that serialize does not write.
  static std::optional<Manifest> parse(std::string_view text);

  // True when `text` starts as a manifest of another format version: written by another DeepJIT,
  // not damaged.
  static bool is_other_version(std::string_view text);

  // Describes every file below `directory` but its own `.committed`. Links and special files are
  // refused: what they stand for could change without the manifest noticing.
  static Manifest of_directory(const std::filesystem::path& directory);

  // True when every file is there as a regular file, not through a link, with this size and these
  // bytes.
  bool matches(const std::filesystem::path& directory) const { return compare(directory) == 0; }

  // 0 when it matches, EBADMSG when it does not, else the errno that kept us from looking (EACCES,
  // EMFILE, ESTALE ...).
  int compare(const std::filesystem::path& directory) const;
};

// --- Inline implementations ---

namespace detail {

inline constexpr std::string_view kManifestMagic = "deep_jit-entry ";

inline bool is_safe_entry_name(std::string_view name) {
  if (name.empty() or name == kCommitFileName or
      name.find_first_of(std::string_view("\n\0", 2)) != name.npos) {
    return false;
  }
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() or part == "." or part == "..") {
      return false;
    }
    if (slash == name.npos) {
      return true;
    }
    name.remove_prefix(slash + 1);
  }
}

// Takes `prefix` off the front of `text`; false when it is not there.
inline bool consume(std::string_view& text, std::string_view prefix) {
  if (not text.starts_with(prefix)) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

// Takes everything up to `end`, and `end`, off the front of `text`.
inline std::optional<std::string_view> consume_until(std::string_view& text, char end) {
  const std::size_t position = text.find(end);
  if (position == text.npos) {
    return std::nullopt;
  }
  const std::string_view taken = text.substr(0, position);
  text.remove_prefix(position + 1);
  return taken;
}

inline std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool has_leading_zero = text.size() > 1 and text.front() == '0';
  if (error != std::errc() or end != text.data() + text.size() or has_leading_zero) {
    return std::nullopt;
  }
  return value;
}

// EBADMSG for the errors that say that a file is not what the manifest says: gone, a link, a
// directory, or on a bad block.
inline int mismatch_or(int error) {
  const bool is_mismatch = error == ENOENT or error == ELOOP or error == ENOTDIR or
                           error == EISDIR or error == ENXIO or error == EIO;
  return is_mismatch ? EBADMSG : error;
}

// Size and digest of an open file, read to its end; 0 or errno.
inline int digest_open_file(int fd, ManifestFile& file) {
  constexpr std::size_t kChunk = 256 * 1024;
  std::string chunk(kChunk, '\0');
  Hasher hasher;
  file.size = 0;
  for (;;) {
    const ssize_t count = read_some(fd, chunk.data(), chunk.size());
    if (count < 0) {
      return errno;
    }
    if (count == 0) {
      file.digest = hasher.digest();
      return 0;
    }
    hasher.append(std::string_view(chunk.data(), static_cast<std::size_t>(count)));
    file.size += static_cast<std::uint64_t>(count);
  }
}

// Opens a file below `directory_fd`, following a link in no part of `name`.
inline FileDescriptor open_below(int directory_fd, std::string_view name, int flags) {
  FileDescriptor parent;
  int parent_fd = directory_fd;
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string part(name.substr(0, slash));
    if (slash == name.npos) {
      return open_file(parent_fd, part.c_str(), flags | O_NOFOLLOW | O_NONBLOCK);
    }
    FileDescriptor next = open_file(parent_fd, part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (not next.is_open()) {
      return next;
    }
    parent = std::move(next);
    parent_fd = parent.get();
    name.remove_prefix(slash + 1);
  }
}

inline void describe_tree(int parent_fd, const char* name, const std::filesystem::path& path,
                          const std::string& prefix, std::vector<ManifestFile>& files) {
  const DirectoryHandle directory = open_directory(parent_fd, name);
  std::vector<std::string> names;
  const int list_error = directory == nullptr ? errno : list_directory(directory.get(), names);
  if (list_error != 0) {
    DJ_THROW(exception::CacheError, "failed to list {} for its manifest: {}", path.string(),
             exception::errno_text(list_error));
  }
  const int fd = ::dirfd(directory.get());
  for (const std::string& child : names) {
    if (prefix.empty() and child == kCommitFileName) {
      continue;
    }
    const std::filesystem::path child_path = path / child;
    struct stat status{};
    if (::fstatat(fd, child.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      DJ_THROW(exception::CacheError, "failed to stat {} for the manifest: {}", child_path.string(),
               exception::errno_text(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      describe_tree(fd, child.c_str(), child_path, prefix + child + "/", files);
      continue;
    }
    if (not S_ISREG(status.st_mode) or not is_safe_entry_name(child)) {
      DJ_THROW(UnfitBuild,
               "a cache entry must hold only regular files whose names have no newline, got {} "
               "(file mode {:#o}): the "
               "compiler or a hook must not leave it behind",
               child_path.string(), status.st_mode);
    }
    ManifestFile file{.name = prefix + child, .size = 0, .digest = {}};
    const FileDescriptor content = open_file(fd, child.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const int error = content.is_open() ? digest_open_file(content.get(), file) : errno;
    if (error != 0) {
      DJ_THROW(exception::CacheError, "failed to read {} for the manifest: {}", child_path.string(),
               exception::errno_text(error));
    }
    files.push_back(std::move(file));
  }
}

}  // namespace detail

inline std::string Manifest::serialize() const {
  std::string text = std::format("{}{}\n", detail::kManifestMagic, kEntryFormatVersion);
  for (const ManifestFile& file : files) {
    text += std::format("file {} {} {}\n", file.size, file.digest.hex(), file.name);
  }
  text += std::format("checksum {}\n", hash_bytes(text).hex());
  return text;
}

inline bool Manifest::is_other_version(std::string_view text) {
  if (not detail::consume(text, detail::kManifestMagic)) {
    return false;
  }
  const std::optional<std::string_view> version = detail::consume_until(text, '\n');
  const std::optional<std::uint64_t> number =
      version.has_value() ? detail::parse_decimal(*version) : std::nullopt;
  return number.has_value() and *number != static_cast<std::uint64_t>(kEntryFormatVersion);
}

inline std::optional<Manifest> Manifest::parse(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return std::nullopt;
  }
  const std::string_view whole = text;
  if (not detail::consume(text,
                          std::format("{}{}\n", detail::kManifestMagic, kEntryFormatVersion))) {
    return std::nullopt;
  }
  Manifest manifest;
  while (detail::consume(text, "file ")) {
    const std::optional<std::string_view> size_text = detail::consume_until(text, ' ');
    const std::optional<std::string_view> digest_text =
        size_text.has_value() ? detail::consume_until(text, ' ') : std::nullopt;
    const std::optional<std::string_view> name =
        digest_text.has_value() ? detail::consume_until(text, '\n') : std::nullopt;
    if (not name.has_value() or not detail::is_safe_entry_name(*name)) {
      return std::nullopt;
    }
    const std::optional<std::uint64_t> size = detail::parse_decimal(*size_text);
    const std::optional<Digest> digest = Digest::from_hex(*digest_text);
    const bool is_in_order = manifest.files.empty() or manifest.files.back().name < *name;
    if (not size.has_value() or not digest.has_value() or not is_in_order or
        manifest.files.size() == kMaxManifestFiles) {
      return std::nullopt;
    }
    manifest.files.push_back({.name = std::string(*name), .size = *size, .digest = *digest});
  }
  const std::string_view checked = whole.substr(0, whole.size() - text.size());
  if (text != std::format("checksum {}\n", hash_bytes(checked).hex())) {
    return std::nullopt;
  }
  return manifest;
}

inline Manifest Manifest::of_directory(const std::filesystem::path& directory) {
  Manifest manifest;
  detail::describe_tree(AT_FDCWD, directory.c_str(), directory, "", manifest.files);
  std::ranges::sort(manifest.files, {}, &ManifestFile::name);
  if (manifest.files.size() > kMaxManifestFiles) {
    DJ_THROW(UnfitBuild, "a cache entry must hold at most {} files, got {} in {}",
             kMaxManifestFiles, manifest.files.size(), directory.string());
  }
  return manifest;
}

inline int Manifest::compare(const std::filesystem::path& directory) const {
  const FileDescriptor root = open_file(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (not root.is_open()) {
    return detail::mismatch_or(errno);
  }
  for (const ManifestFile& expected : files) {
    if (not detail::is_safe_entry_name(expected.name)) {
      return EBADMSG;
    }
    const FileDescriptor file = detail::open_below(root.get(), expected.name, O_RDONLY);
    struct stat status{};
    if (not file.is_open() or ::fstat(file.get(), &status) != 0) {
      return detail::mismatch_or(errno);
    }
    if (not S_ISREG(status.st_mode) or
        static_cast<std::uint64_t>(status.st_size) != expected.size) {
      return EBADMSG;
    }
    ManifestFile found{.name = expected.name, .size = 0, .digest = {}};
    if (const int error = detail::digest_open_file(file.get(), found); error != 0) {
      return detail::mismatch_or(error);
    }
    if (found != expected) {
      return EBADMSG;
    }
  }
  return 0;
}

}  // namespace deep_jit
