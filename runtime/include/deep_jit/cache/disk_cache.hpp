// SPDX-License-Identifier: MIT
//
// Compiled kernels on disk, shared by processes, users and machines.
//
// What: an entry is a directory, `<root>/cache/<tag>.<digest>/`. It is built in
// `<root>/tmp/<unique>/`, gets a manifest (cache/manifest.hpp), is synced and then renamed into
// place: readers see all of it or nothing. Look-ups go through several roots in order; only the
// first is written to.
//
// When not: this does not know what a kernel is, what its key is made of, or how to compile
// (runtime/runtime.hpp). Who may write to a root decides what is loaded from it: a root that
// everybody may write to is used, with a warning.
//
// Example:
//     if (std::optional<path> entry = cache.lookup(tag, digest)) { return load(*entry); }
//     ByteRangeLock lock = cache.lock(digest);  // one compile per key; then look up again
//     PendingEntry pending = cache.begin(tag, digest);
//     compile_into(pending.directory());
//     return load(pending.commit());
//
// Errors: trouble with an entry or a root is a miss and a counter, never an exception. What keeps a
// build from being published (disk full, no permission) is a CacheError that names the path and the
// reason; the build is still there then, see `use_unpublished`. Bad tags and digests panic.
// Thread-safety: DiskCache is immutable but for its counters: share it. A PendingEntry belongs to
// one thread. A forked child neither removes nor publishes its parent's pending entries by ending.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <format>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/unique_name.hpp"
#include "deep_jit/cache/build_directory.hpp"
#include "deep_jit/cache/byte_range_lock.hpp"
#include "deep_jit/cache/entry_state.hpp"
#include "deep_jit/cache/manifest.hpp"

namespace deep_jit {

// --- Counters ---

// What happened in this process since the cache object was made.
struct CacheCounters {
  std::atomic<std::uint64_t> hits = 0;
  std::atomic<std::uint64_t> misses = 0;
  std::atomic<std::uint64_t> damaged =
      0;  // entries found with a bad manifest, file size or checksum
  std::atomic<std::uint64_t> other_version =
      0;  // entries found with a manifest of another format version
  std::atomic<std::uint64_t> unreadable = 0;  // roots or entries that could not be read
  std::atomic<std::uint64_t> published = 0;   // builds renamed into place
  std::atomic<std::uint64_t> publish_races =
      0;  // builds dropped for one that another writer published first
  std::atomic<std::uint64_t> healed = 0;  // unusable entries that a build replaced
  std::atomic<std::uint64_t> kept_private =
      0;  // builds that could not be published nor found published, used from tmp/
  std::atomic<std::uint64_t> swept = 0;  // directories of dead writers removed from tmp/
};

// --- A build in the making ---

// Removes the build when it ends uncommitted.
class PendingEntry {
 public:
  // Where to build; after commit, where the entry is.
  const std::filesystem::path& directory() const { return directory_; }

  // Adds a file; CacheError when that fails.
  void write_file(std::string_view name, std::string_view content) const;

  // Publishes the build and returns the directory to use: ours, or the one of another writer who
  // was first. May be called again. On CacheError the build is still there until this object ends.
  std::filesystem::path commit();

  // For the caller that goes on with a build although `commit` failed: warns, counts, and returns
  // the build's own directory. It lives as long as this object.
  const std::filesystem::path& use_unpublished(const exception::CacheError& reason);

 private:
  friend class DiskCache;
  PendingEntry(std::filesystem::path root, BuildDirectory build, std::filesystem::path target,
               std::shared_ptr<CacheCounters> counters)
      : root_(std::move(root)),
        build_(std::move(build)),
        directory_(build_.path()),
        target_(std::move(target)),
        counters_(std::move(counters)) {}

  void write_manifest() const;
  // Renames the build into place; the path to use from now on.
  std::filesystem::path publish();
  bool replace_unusable();

  std::filesystem::path root_;
  BuildDirectory build_;
  std::filesystem::path directory_;
  std::filesystem::path target_;
  std::shared_ptr<CacheCounters> counters_;
  bool is_committed_ = false;
};

// --- The cache ---

class DiskCache {
 public:
  // Roots in the order of look-up, made absolute and normal.
  const std::vector<std::filesystem::path> paths;

  // Touches no directory. `setting` is what a user changes to have other roots, for error texts.
  explicit DiskCache(std::vector<std::filesystem::path> roots,
                     std::string setting = "the list of cache directories");

  // Roots from <PREFIX>_JIT_CACHE_DIR or DJ_JIT_CACHE_DIR, separated by ':'; else $HOME/.dj.
  static DiskCache from_env(const Env& env);

  // The directory of a whole, checked entry.
  std::optional<std::filesystem::path> lookup(const std::string& tag,
                                              const std::string& digest) const;

  // Starts a build for the first root. Now and then sweeps what dead writers left there.
  PendingEntry begin(const std::string& tag, const std::string& digest) const;

  // The lock of a key in the first root; waits for it. May hold nothing (see ByteRangeLock).
  ByteRangeLock lock(const std::string& digest) const;

  const CacheCounters& counters() const { return *counters_; }

 private:
  std::string setting_;
  std::shared_ptr<CacheCounters> counters_ = std::make_shared<CacheCounters>();
};

// --- Inline implementations ---

namespace detail {

inline bool is_cache_name(std::string_view name) {
  return not name.empty() and std::ranges::all_of(name, [](char c) {
    return (c >= 'a' and c <= 'z') or (c >= 'A' and c <= 'Z') or (c >= '0' and c <= '9') or
           c == '_';
  });
}

inline std::string entry_name(const std::string& tag, const std::string& digest) {
  DJ_HOST_ASSERT(is_cache_name(tag),
                 "cache tag must contain only letters, digits, or underscores, got '{}'", tag);
  DJ_HOST_ASSERT(is_cache_name(digest),
                 "cache digest must contain only letters, digits, or underscores, got '{}'",
                 digest);
  return tag + "." + digest;
}

inline std::vector<std::filesystem::path> normalize_roots(
    std::vector<std::filesystem::path> roots) {
  for (std::filesystem::path& root : roots) {
    const std::optional<std::filesystem::path> normal = normalize_path(root);
    DJ_HOST_ASSERT(normal.has_value(),
                   "list of cache directories contains an empty path (entry {} of {})",
                   &root - roots.data() + 1, roots.size());
    root = *normal;
  }
  return roots;
}

// Warns, once per process and root, when everybody may put entries into a root: a binary from there
// is as trustworthy as any user of this machine.
inline void warn_of_strangers(const std::filesystem::path& root) {
  struct Warned {
    std::mutex mutex;
    std::set<std::string> roots;
  };
  static Warned* const warned = new Warned();  // never destroyed: threads may compile at exit
  {
    // Somebody who asks at the same moment does without; also a child forked at that moment.
    const std::unique_lock guard(warned->mutex, std::try_to_lock);
    if (not guard.owns_lock() or not warned->roots.insert(root.string()).second) {
      return;
    }
  }
  // A sticky root keeps others from replacing what is in it, but not cache/ from taking new files.
  struct stat status{};
  const bool is_open_root = ::stat(root.c_str(), &status) == 0 and
                            (status.st_mode & S_IWOTH) != 0 and (status.st_mode & S_ISVTX) == 0;
  const bool is_open_cache =
      ::stat((root / "cache").c_str(), &status) == 0 and (status.st_mode & S_IWOTH) != 0;
  if (is_open_root or is_open_cache) {
    log(LogLevel::kWarning,
        std::format("everybody may write to the kernel cache {}, and what is in it is loaded and "
                    "run: take the permission away (chmod o-w), or use another directory",
                    (is_open_root ? root : root / "cache").string()));
  }
}

// Runs `work`, turning what filesystem functions throw into a CacheError.
template <class Work>
void with_cache_error(Work&& work) {
  try {
    work();
  } catch (const exception::CacheError&) {
    throw;
  } catch (const exception::Exception& failure) {
    DJ_THROW(exception::CacheError, "{}", failure.error);
  }
}

}  // namespace detail

inline void PendingEntry::write_file(std::string_view name, std::string_view content) const {
  detail::with_cache_error([&] { deep_jit::write_file(directory_ / name, content); });
}

inline std::filesystem::path PendingEntry::commit() {
  if (not is_committed_) {
    detail::with_cache_error([&] {
      write_manifest();
      make_dirs(target_.parent_path());
      directory_ = publish();
    });
    is_committed_ = true;
  }
  return directory_;
}

inline const std::filesystem::path& PendingEntry::use_unpublished(
    const exception::CacheError& reason) {
  ++counters_->kept_private;
  log(LogLevel::kWarning,
      std::format("a compiled kernel is used without being kept in the cache: {}", reason.error));
  return directory_;
}

inline void PendingEntry::write_manifest() const {
  const std::filesystem::path marker = directory_ / kCommitFileName;
  safe_remove_all(marker);  // whatever a build left under this name, most of all a link
  const std::string text = Manifest::of_directory(directory_).serialize();
  if (text.size() > kMaxManifestBytes) {
    DJ_THROW(UnfitBuild, "the manifest of a cache entry must have at most {} bytes, got {} for {}",
             kMaxManifestBytes, text.size(), directory_.string());
  }
  deep_jit::write_file(marker, text);
  fsync_dir(directory_);
}

inline std::filesystem::path PendingEntry::publish() {
  // Each pass but the last means that another writer changed the target between two system calls of
  // ours.
  constexpr int kMaxAttempts = 8;
  const std::filesystem::path parent = target_.parent_path();
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    int error = ::rename(directory_.c_str(), target_.c_str()) == 0 ? 0 : errno;
    bool is_healed = false;
    if (error != 0) {
      if (check_entry(target_) == EntryState::kValid) {
        build_.remove();
        ++counters_->publish_races;
        return target_;
      }
      const bool is_taken =
          error == EEXIST or error == ENOTEMPTY or error == ENOTDIR or error == EISDIR;
      struct stat status{};
      if (is_taken and ::lstat(target_.c_str(), &status) != 0) {
        continue;  // there for rename, but not to be seen: gone again, or hidden by a network
                   // filesystem's cache
      }
      if (error == ENOENT and ::lstat(directory_.c_str(), &status) == 0) {
        make_dirs(parent);  // somebody removed the cache directory
        continue;
      }
      if (is_taken) {
        error = replace_unusable() ? 0 : errno;
        if (error == ENOENT or error == EEXIST or error == ENOTEMPTY) {
          continue;
        }
        is_healed = error == 0;
      }
      if (error != 0) {
        DJ_THROW(exception::CacheError, "failed to rename {} to {}: {}", directory_.string(),
                 target_.string(), exception::errno_text(error));
      }
    }
    build_.give_up();
    ++(is_healed ? counters_->healed : counters_->published);
    // Not a reason to fail: the entry is in place, and a crash now can at worst lose it.
    const FileDescriptor directory = open_file(AT_FDCWD, parent.c_str(), O_RDONLY | O_DIRECTORY);
    if (directory.is_open()) {
      sync_file(directory.get());
    }
    return target_;
  }
  // The winner's entry cannot be seen (a network filesystem remembers that it was not there). Ours
  // is whole: use it.
  build_.keep_until_exit();
  ++counters_->kept_private;
  return directory_;
}

// Puts the build in the place of an entry that cannot be used; false with errno when that fails.
inline bool PendingEntry::replace_unusable() {
  // In one step where the filesystem can: no reader finds the place empty. Should another writer
  // have healed the entry since we looked, we replace a good entry by an equal one.
  if (::renameat2(AT_FDCWD, directory_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    safe_remove_all(directory_);
    return true;
  }
  if (errno != EINVAL and errno != ENOSYS and errno != EOPNOTSUPP) {
    return false;
  }
  const std::filesystem::path aside = root_ / "tmp" / unique_name();
  if (::rename(target_.c_str(), aside.c_str()) != 0) {
    return false;
  }
  const int error = ::rename(directory_.c_str(), target_.c_str()) == 0 ? 0 : errno;
  safe_remove_all(aside);
  errno = error;
  return error == 0;
}

inline DiskCache::DiskCache(std::vector<std::filesystem::path> roots, std::string setting)
    : paths(detail::normalize_roots(std::move(roots))), setting_(std::move(setting)) {
  DJ_HOST_ASSERT(not this->paths.empty(), "a disk cache needs at least one directory");
}

inline DiskCache DiskCache::from_env(const Env& env) {
  constexpr std::string_view kSuffix = "JIT_CACHE_DIR";
  const std::string setting = std::format("{}_{}", env.prefix, kSuffix);
  const std::optional<std::string> list = env.get<std::string>(kSuffix);
  if (not list.has_value()) {
    const std::string home_path = get_env<std::string>("HOME");
    DJ_HOST_ASSERT(not home_path.empty(),
                   "HOME environment variable must not be empty: set it, or {} to a directory for "
                   "compiled kernels",
                   setting);
    return DiskCache({std::filesystem::path(home_path) / ".dj"}, setting);
  }
  std::vector<std::filesystem::path> roots;
  std::string_view rest = *list;
  for (;;) {
    const std::size_t colon = rest.find(':');
    DJ_HOST_ASSERT(colon != 0 and not rest.empty(),
                   "{} contains an empty path: '{}' (expected DIR or DIR:DIR...)", kSuffix, *list);
    roots.emplace_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) {
      return DiskCache(std::move(roots), setting);
    }
    rest.remove_prefix(colon + 1);
  }
}

inline std::optional<std::filesystem::path> DiskCache::lookup(const std::string& tag,
                                                              const std::string& digest) const {
  const std::string name = detail::entry_name(tag, digest);
  for (const std::filesystem::path& root : paths) {
    std::filesystem::path directory = root / "cache" / name;
    switch (check_entry(directory)) {
      case EntryState::kAbsent:
      case EntryState::kUncommitted:
        break;
      case EntryState::kUnreadable:
        ++counters_->unreadable;
        break;
      case EntryState::kOtherVersion:
        ++counters_->other_version;
        break;
      case EntryState::kDamaged:
        ++counters_->damaged;
        break;
      case EntryState::kValid:
        detail::warn_of_strangers(root);
        try_update_mtime(directory / kCommitFileName);  // recency, for whoever trims the cache
        ++counters_->hits;
        return directory;
    }
  }
  ++counters_->misses;
  return std::nullopt;
}

inline PendingEntry DiskCache::begin(const std::string& tag, const std::string& digest) const {
  const std::string name = detail::entry_name(tag, digest);
  const std::filesystem::path& root = paths.front();
  std::optional<BuildDirectory> build;
  try {
    build = BuildDirectory::create(root);
  } catch (const exception::Exception& failure) {
    DJ_THROW(exception::CacheError, "{} (set {} to a directory that this user may write to)",
             failure.error, setting_);
  }
  detail::warn_of_strangers(root);
  if (is_sweep_due(root)) {
    counters_->swept += sweep_build_directories(root, build->made_at());
  }
  return PendingEntry(root, *std::move(build), root / "cache" / name, counters_);
}

inline ByteRangeLock DiskCache::lock(const std::string& digest) const {
  const Digest key = Digest::from_hex(digest).value_or(hash_bytes(digest));
  try {
    make_dirs(paths.front());
  } catch (const exception::Exception&) {
    return ByteRangeLock();  // begin() says what is wrong with the root
  }
  return ByteRangeLock::acquire(paths.front() / "lock", ByteRangeLock::offset_of(key));
}

}  // namespace deep_jit
