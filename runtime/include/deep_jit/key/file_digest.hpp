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
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
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

// A larger file is read in parts of this size, by several threads: its digest is that of the parts'
// digests. (A compiler may be hundreds of megabytes, and the first kernel of all waits for it.)
inline constexpr long long kDigestPart = 8 << 20;

// Digest of a whole file.
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

namespace detail {

// Of `size` bytes from `begin`, or up to the end; nothing, with errno, when reading fails.
inline std::optional<Digest> digest_part(int file, long long begin, long long size) {
  Hasher hasher;
  std::array<char, std::size_t{1} << 15> piece;  // Nothing may be thrown in a thread.
  for (long long done = 0; done < size;) {
    const auto wanted =
        static_cast<std::size_t>(std::min<long long>(size - done, std::ssize(piece)));
    const ssize_t count = ::pread(file, piece.data(), wanted, begin + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    hasher.append(std::string_view(piece.data(), static_cast<std::size_t>(count)));
    done += count;
  }
  return hasher.digest();
}

inline std::optional<Digest> digest_parts(int file, long long size) {
  // The size is that of a moment ago: read on to the end.
  if (size <= kDigestPart) return digest_part(file, 0, std::numeric_limits<long long>::max());
  std::vector<std::optional<Digest>> digests(
      static_cast<std::size_t>((size + kDigestPart - 1) / kDigestPart));
  std::atomic<std::size_t> next = 0;
  std::atomic<int> error = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < digests.size(); i = next++) {
      digests[i] = digest_part(file, static_cast<long long>(i) * kDigestPart, kDigestPart);
      if (!digests[i]) error = errno;
    }
  };
  constexpr std::size_t kMostThreads = 8;  // Memory is no faster for more.
  const std::size_t count = std::min<std::size_t>(
      {digests.size(), kMostThreads, std::max(1u, std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < count) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those that there are do it.
  }
  work();
  for (auto& thread : threads) thread.join();
  if (error != 0) {
    errno = error;
    return std::nullopt;
  }
  Hasher hasher;
  for (const auto& digest : digests) hasher.update(digest->hex());
  return hasher.digest();
}

}  // namespace detail

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
  const auto digest = detail::digest_parts(descriptor.get(), identity.size());
  if (!digest) DJ_PANIC("failed to read: {}: {}", file.string(), exception::errno_text(errno));
  if (is_settled && ::fstat(descriptor.get(), &status) == 0 && FileIdentity(status) == identity) {
    keep(identity, *digest);
    if (memo != nullptr && identity.size() >= kLarge) {
      memo->remember(question, identity.text(), digest->hex());
    }
  }
  return *digest;
}

}  // namespace deep_jit
