// SPDX-License-Identifier: MIT
//
// The private directories that entries are built in, and the sweeping of those whose builder died.
//
// What: `<root>/tmp/<unique>/`. Its maker holds a lock on one byte of `<root>/lock` for as long as
// it needs the directory; the kernel releases that lock when the maker dies, however it dies. A
// sweep removes what has the form of such a directory, is old enough, and whose lock is free:
// - older than kSweepAge (1 hour) where locks work; the age only covers what a lock cannot say,
// such
//   as a machine that has its own idea of who holds it;
// - older than kSweepAgeWithoutLocks (24 hours) where the sweeper or the maker could take no lock
//   (the maker says so in the name: "<unique>-unlocked").
// Ages are measured against a directory made just now on the same filesystem, so that the clocks of
// two machines need not agree.
//
// When not: published entries are never swept; what limits the size of a cache is another matter.
//
// Example:
//     BuildDirectory build = BuildDirectory::create(root);
//     sweep_build_directories(root, build.made_at());
//
// Errors: `create` panics with the path and the reason. Sweeping is silent: what cannot be removed
// stays for the next sweep.
// Thread-safety: an object belongs to one thread; sweeps exclude each other, in all processes. A
// forked child neither removes nor unlocks the directories of its parent.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/unique_name.hpp"
#include "deep_jit/cache/byte_range_lock.hpp"

namespace deep_jit {

// --- Constants ---

inline constexpr std::chrono::seconds kSweepAge = std::chrono::hours(1);
inline constexpr std::chrono::seconds kSweepAgeWithoutLocks = std::chrono::hours(24);

// A process sweeps a root at its first build there and then at most this often.
inline constexpr std::chrono::seconds kSweepInterval = std::chrono::hours(1);

// Bounds on the work of one sweep, which happens in front of somebody's compile.
inline constexpr std::size_t kMaxNamesPerSweep = 4096;
inline constexpr std::size_t kMaxRemovalsPerSweep = 64;

// --- A directory to build in ---

class BuildDirectory {
 public:
  // Makes `<root>/tmp/<unique>/`, and takes its lock before.
  static BuildDirectory create(const std::filesystem::path& root);

  BuildDirectory(BuildDirectory&& other) noexcept;
  BuildDirectory& operator=(BuildDirectory&& other) noexcept;

  // Removes the directory and what is in it, unless it was given up or kept.
  ~BuildDirectory() { remove(); }

  const std::filesystem::path& path() const { return path_; }

  // When the filesystem says that it was made, in seconds.
  std::time_t made_at() const { return made_at_; }

  void remove() noexcept;

  // Somebody else's from now on: it was renamed away.
  void give_up() noexcept;

  // Stays where it is, and is not swept while this process lives.
  void keep_until_exit() noexcept;

 private:
  BuildDirectory(std::filesystem::path root, std::filesystem::path path, ByteRangeLock lock)
      : root_(std::move(root)),
        path_(std::move(path)),
        lock_(std::move(lock)),
        process_(::getpid()) {}

  std::filesystem::path root_;
  std::filesystem::path path_;
  ByteRangeLock lock_;
  std::time_t made_at_ = 0;
  pid_t process_ = 0;
  bool is_owned_ = true;
};

// --- Sweeping ---

// Removes abandoned build directories of `root`; `now` is `made_at()` of a new one. Returns how
// many.
std::size_t sweep_build_directories(const std::filesystem::path& root, std::time_t now) noexcept;

// True when this process has not swept `root` within the last kSweepInterval; counts as a sweep.
bool is_sweep_due(const std::filesystem::path& root) noexcept;

// --- Inline implementations ---

namespace detail {

inline constexpr std::string_view kUnlockedSuffix = "-unlocked";

// Keys have the bytes below 2^62 (ByteRangeLock::offset_of); the sweeper has that one, and builds
// those above.
inline constexpr std::int64_t kSweeperByte = std::int64_t{1} << 62;

inline std::int64_t build_byte(std::string_view name) {
  return kSweeperByte + ByteRangeLock::offset_of(hash_bytes(name));
}

inline std::filesystem::path lock_file(const std::filesystem::path& root) {
  return root / "lock";
}

// Removes `name` in tmp/ when it is an abandoned build directory.
inline bool sweep_one(const std::filesystem::path& root, int tmp_fd, const std::string& name,
                      std::time_t now) {
  const bool is_unlocked = name.ends_with(kUnlockedSuffix);
  const std::string_view unique =
      std::string_view(name).substr(0, name.size() - (is_unlocked ? kUnlockedSuffix.size() : 0));
  struct stat status{};
  if (not is_unique_name(unique) or
      ::fstatat(tmp_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return false;
  }
  const std::chrono::seconds age(now - status.st_mtime);
  if (age < kSweepAge) {
    return false;
  }
  // Held while we remove, so that of several sweepers one works.
  const std::optional<ByteRangeLock> lock =
      ByteRangeLock::try_acquire(lock_file(root), build_byte(unique));
  if (not lock.has_value()) {
    return false;  // its maker lives
  }
  if ((is_unlocked or not lock->is_locked()) and age < kSweepAgeWithoutLocks) {
    return false;
  }
  return remove_tree(tmp_fd, name.c_str());
}

}  // namespace detail

inline BuildDirectory BuildDirectory::create(const std::filesystem::path& root) {
  make_dirs(root / "tmp");
  std::string name = unique_name();
  // Before the directory: a sweep never finds one that should be locked and is not yet.
  std::optional<ByteRangeLock> lock =
      ByteRangeLock::try_acquire(detail::lock_file(root), detail::build_byte(name));
  if (not lock.has_value() or not lock->is_locked()) {
    lock.emplace();
    name += detail::kUnlockedSuffix;
  }
  BuildDirectory build(root, root / "tmp" / name, *std::move(lock));
  make_dirs(build.path_);
  struct stat status{};
  if (::stat(build.path_.c_str(), &status) == 0) {
    build.made_at_ = status.st_mtime;
  }
  return build;
}

inline BuildDirectory::BuildDirectory(BuildDirectory&& other) noexcept
    : root_(std::move(other.root_)),
      path_(std::move(other.path_)),
      lock_(std::move(other.lock_)),
      made_at_(other.made_at_),
      process_(other.process_),
      is_owned_(std::exchange(other.is_owned_, false)) {}

inline BuildDirectory& BuildDirectory::operator=(BuildDirectory&& other) noexcept {
  if (this != &other) {
    remove();
    root_ = std::move(other.root_);
    path_ = std::move(other.path_);
    lock_ = std::move(other.lock_);
    made_at_ = other.made_at_;
    process_ = other.process_;
    is_owned_ = std::exchange(other.is_owned_, false);
  }
  return *this;
}

inline void BuildDirectory::remove() noexcept {
  if (is_owned_ and process_ == ::getpid()) {
    safe_remove_all(path_);
  }
  give_up();
}

inline void BuildDirectory::give_up() noexcept {
  is_owned_ = false;
  lock_.release();
}

inline void BuildDirectory::keep_until_exit() noexcept {
  if (lock_.is_locked()) {
    // Young again, so that nobody sweeps it between the two locks.
    try_update_mtime(path_);
    lock_.release();
    try {
      ByteRangeLock::hold_until_exit(detail::lock_file(root_),
                                     detail::build_byte(path_.filename().string()));
    } catch (...) {
      // Out of memory for a name: kSweepAge is what is left.
    }
  }
  give_up();
}

inline std::size_t sweep_build_directories(const std::filesystem::path& root,
                                           std::time_t now) noexcept {
  const int saved_errno = errno;
  std::size_t removed = 0;
  try {
    const std::optional<ByteRangeLock> sweeper =
        ByteRangeLock::try_acquire(detail::lock_file(root), detail::kSweeperByte);
    const detail::DirectoryHandle directory =
        sweeper.has_value() ? detail::open_directory(AT_FDCWD, (root / "tmp").c_str()) : nullptr;
    // Names first: removing from a directory that is being listed confuses some filesystems.
    std::vector<std::string> names;
    while (directory != nullptr and names.size() < kMaxNamesPerSweep) {
      const dirent* entry = ::readdir(directory.get());
      if (entry == nullptr) {
        break;
      }
      names.emplace_back(entry->d_name);
    }
    for (const std::string& name : names) {
      removed += detail::sweep_one(root, ::dirfd(directory.get()), name, now);
      if (removed == kMaxRemovalsPerSweep) {
        break;
      }
    }
  } catch (...) {
    // Out of memory: the rest stays for the next sweep.
  }
  errno = saved_errno;
  return removed;
}

inline bool is_sweep_due(const std::filesystem::path& root) noexcept {
  struct Sweeps {
    std::mutex mutex;
    std::map<std::string, std::chrono::steady_clock::time_point> last;
  };
  static Sweeps* const sweeps = new Sweeps();  // never destroyed: threads may compile at exit
  try {
    // Somebody who asks at the same moment does without; also a child forked at that moment.
    const std::unique_lock guard(sweeps->mutex, std::try_to_lock);
    if (not guard.owns_lock()) {
      return false;
    }
    const auto now = std::chrono::steady_clock::now();
    const auto [last, is_first] = sweeps->last.try_emplace(root.string(), now);
    const bool is_due = is_first or now - last->second >= kSweepInterval;
    if (is_due) {
      last->second = now;
    }
    return is_due;
  } catch (...) {
    return false;
  }
}

}  // namespace deep_jit
