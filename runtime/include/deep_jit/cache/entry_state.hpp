// SPDX-License-Identifier: MIT
//
// What a directory of the cache is worth: the one place that decides whether an entry is used.
//
// What: reads the manifest and compares every file with it. Damage of any kind, another format
// version and a directory that cannot be read are states, not errors.
//
// When not: touching, counting, healing and publishing are cache/disk_cache.hpp's work.
//
// Example:
//     if (check_entry(directory) == EntryState::kValid) { return load(directory); }
//
// Errors: none but std::bad_alloc.
// Thread-safety: nothing shared but the filesystem; an entry may be replaced at any time, by a
// rename.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/cache/manifest.hpp"

namespace deep_jit {

enum class EntryState {
  kAbsent,
  kUncommitted,   // a directory, or something else, without a manifest
  kUnreadable,    // no permission, no descriptors, a network filesystem in trouble ...
  kOtherVersion,  // written by another DeepJIT
  kDamaged,       // bad manifest, size or checksum; a link or a directory instead of a file
  kValid,
};

// Looks at an entry, changing nothing.
EntryState check_entry(const std::filesystem::path& directory);

// --- Inline implementations ---

namespace detail {

// `is_stale` becomes true when a file that we had found was replaced on the server meanwhile.
inline EntryState check_entry_once(const std::filesystem::path& directory, bool& is_stale) {
  std::string text;
  const int error = try_read_regular(directory / kCommitFileName, kMaxManifestBytes, text);
  is_stale = error == ESTALE;
  switch (error) {
    case 0:
      break;
    case ENOENT: {
      struct stat status{};
      return ::lstat(directory.c_str(), &status) == 0 ? EntryState::kUncommitted
                                                      : EntryState::kAbsent;
    }
    case ELOOP:   // a link
    case EINVAL:  // a directory, a FIFO ...
    case EFBIG:
    case EIO:
      return EntryState::kDamaged;
    default:
      return EntryState::kUnreadable;  // ENOTDIR, EACCES, ESTALE, EMFILE ...
  }
  const std::optional<Manifest> manifest = Manifest::parse(text);
  if (not manifest.has_value()) {
    return Manifest::is_other_version(text) ? EntryState::kOtherVersion : EntryState::kDamaged;
  }
  const int difference = manifest->compare(directory);
  is_stale = difference == ESTALE;
  if (difference == 0) {
    return EntryState::kValid;
  }
  return difference == EBADMSG ? EntryState::kDamaged : EntryState::kUnreadable;
}

}  // namespace detail

inline EntryState check_entry(const std::filesystem::path& directory) {
  // NFS answers ESTALE when another machine replaced the entry between two of our calls: its new
  // files are found by looking once more. A server that keeps saying so is trouble, thus a miss.
  bool is_stale = false;
  const EntryState state = detail::check_entry_once(directory, is_stale);
  return is_stale ? detail::check_entry_once(directory, is_stale) : state;
}

}  // namespace deep_jit
