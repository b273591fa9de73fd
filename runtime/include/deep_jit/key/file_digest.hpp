// SPDX-License-Identifier: MIT
//
// digest_file: the digest of a file's content, remembered as long as the file is the same.
//
// What: files that keys depend on (compilers, hooks, headers) are asked for again and again. The
// digest is remembered for the process by FileIdentity: where the file is, its size, and its times.
// The time of the last change cannot be set by a program, so that a file with new content and old
// times is seen. A file that was changed just now is read again each time: a second change in the
// same tick of the clock would look like the first. A large file's digest is also kept between
// processes where there is a memo (identity_memo.hpp).
// When not: for bytes in memory use base/hash.hpp.
//
// Example:
//     key.add("post hook content", digest_file(hook).hex());
//
// Errors: exception::Exception with "failed to open for reading" or "failed to read", the path and
// the reason.
// Thread-safety: callable from any thread; no lock is held while a file is read.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/key/identity_memo.hpp"

namespace deep_jit {

// What stat(2) says of a file's content. Equal identities mean equal content if the earlier one was
// settled.
class FileIdentity {
 public:
  explicit FileIdentity(const struct stat& status);

  // Of the file that `path` leads to, through links; nothing when there is none.
  static std::optional<FileIdentity> of(const std::filesystem::path& path);

  // Whether the last change is so long ago that another one would have another time.
  bool is_settled() const;

  // All of it, for a memo.
  std::string text() const;

  long long size() const { return values_[2]; }

  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;

 private:
  std::array<long long, 7> values_;  // Device, inode, size, modified s and ns, changed s and ns.
};

// Digest of a whole file, read piece by piece (a compiler may be hundreds of megabytes).
Digest digest_file(const std::filesystem::path& file);

// --- Inline implementations ---

inline FileIdentity::FileIdentity(const struct stat& status)
    : values_{static_cast<long long>(status.st_dev),
              static_cast<long long>(status.st_ino),
              static_cast<long long>(status.st_size),
              status.st_mtim.tv_sec,
              status.st_mtim.tv_nsec,
              status.st_ctim.tv_sec,
              status.st_ctim.tv_nsec} {}

inline std::optional<FileIdentity> FileIdentity::of(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity(status);
}

inline bool FileIdentity::is_settled() const {
  // File systems take their times from a clock that ticks every 10 ms at worst, or count in seconds
  // (two of them, on FAT).
  constexpr long long kBillion = 1'000'000'000;
  constexpr long long kFine = kBillion / 10;
  constexpr long long kCoarse = 2 * kBillion;
  const long long seconds = values_[5];
  const long long nanoseconds = values_[6];
  struct timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const long long age = (now.tv_sec - seconds) * kBillion + now.tv_nsec - nanoseconds;
  return age > (nanoseconds == 0 ? kCoarse : kFine);
}

inline std::string FileIdentity::text() const {
  std::string text;
  for (const long long value : values_) text += std::to_string(value) + " ";
  return text;
}

inline Digest digest_file(const std::filesystem::path& file) {
  constexpr long long kLarge = 1 << 20;  // Below, a digest costs no more than a look at a memo.
  static std::mutex mutex;
  static std::map<FileIdentity, Digest> known;
  const auto find_known = [](const FileIdentity& identity) -> std::optional<Digest> {
    const std::lock_guard lock(mutex);
    const auto found = known.find(identity);
    return found == known.end() ? std::nullopt : std::optional(found->second);
  };
  const auto keep = [](const FileIdentity& identity, const Digest& digest) {
    const std::lock_guard lock(mutex);
    known.emplace(identity, digest);
  };
  const IdentityMemo* const memo = IdentityMemoScope::current();
  const std::string question = "digest " + file.string();
  if (const auto identity = FileIdentity::of(file)) {
    if (const auto digest = find_known(*identity)) return *digest;
    if (memo != nullptr && identity->size() >= kLarge) {
      const auto answer = memo->find(question, identity->text());
      if (const auto digest = answer ? Digest::from_hex(*answer) : std::nullopt) {
        keep(*identity, *digest);
        return *digest;
      }
    }
  }

  const FileDescriptor descriptor = open_file(AT_FDCWD, file.c_str(), O_RDONLY);
  struct stat status{};
  if (!descriptor.is_open() || ::fstat(descriptor.get(), &status) != 0) {
    DJ_PANIC("failed to open for reading: {}: {}", file.string(), exception::errno_text(errno));
  }
  const FileIdentity identity(status);
  const bool is_settled = identity.is_settled();
  Hasher hasher;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const ssize_t count = read_some(descriptor.get(), piece.data(), piece.size());
    if (count < 0) {
      DJ_PANIC("failed to read: {}: {}", file.string(), exception::errno_text(errno));
    }
    if (count == 0) break;
    hasher.append(std::string_view(piece.data(), static_cast<std::size_t>(count)));
  }
  const Digest digest = hasher.digest();
  if (is_settled && ::fstat(descriptor.get(), &status) == 0 && FileIdentity(status) == identity) {
    keep(identity, digest);
    if (memo != nullptr && identity.size() >= kLarge) {
      memo->remember(question, identity.text(), digest.hex());
    }
  }
  return digest;
}

}  // namespace deep_jit
