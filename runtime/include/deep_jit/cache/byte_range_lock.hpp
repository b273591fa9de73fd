// SPDX-License-Identifier: MIT
//
// One lock per key, across threads and processes, without one file per key.
//
// What: an open-file-description lock (F_OFD_SETLK) on a single byte of one file, at an offset made
// from the key. The kernel releases it when the holder dies. Byte ranges need no file per key that
// someone would have to clean up (and cleaning up lock files is a race of its own); two keys that
// share an offset (62 bits) merely wait for each other.
//
// When not: nothing may depend on the lock for being right, only for being fast. Where the
// filesystem has no locks, or the file cannot be made, `try_acquire` and `acquire` return an object
// that holds none.
//
// Example:
//     ByteRangeLock lock = ByteRangeLock::acquire(root / "lock", ByteRangeLock::offset_of(digest));
//
// Errors: `acquire` throws Interrupted when its thread is cancelled while it waits. Everything else
// means "no lock".
// Thread-safety: locks exclude threads and processes alike; one object belongs to one thread at a
// time. A forked child that inherits a lock does not release it. There is no time-out: a holder
// that lives is at work.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/interrupt.hpp"

namespace deep_jit {

class ByteRangeLock {
 public:
  // Holds nothing.
  ByteRangeLock() = default;
  ByteRangeLock(ByteRangeLock&&) noexcept = default;
  ByteRangeLock& operator=(ByteRangeLock&& other) noexcept {
    if (this != &other) {
      release();
      file_ = std::move(other.file_);
      offset_ = other.offset_;
      process_ = other.process_;
    }
    return *this;
  }
  ~ByteRangeLock() { release(); }

  // The byte of a key: the largest file offset is 2^63 - 1, and a range must end before it.
  static std::int64_t offset_of(const Digest& digest) {
    return static_cast<std::int64_t>(digest.low >> 2);
  }

  // nullopt only when somebody else holds the lock.
  static std::optional<ByteRangeLock> try_acquire(const std::filesystem::path& file,
                                                  std::int64_t offset);

  // Waits for the lock.
  static ByteRangeLock acquire(const std::filesystem::path& file, std::int64_t offset);

  // Locks until this process ends, without an object and with one file descriptor for all bytes of
  // a file. Best effort. A forked child holds the lock too.
  static void hold_until_exit(const std::filesystem::path& file, std::int64_t offset) noexcept;

  // False when there is no lock to hold (see above), and after release.
  bool is_locked() const { return file_.is_open(); }

  void release() noexcept;

 private:
  ByteRangeLock(FileDescriptor file, std::int64_t offset)
      : file_(std::move(file)), offset_(offset), process_(::getpid()) {}

  static bool set_lock(int fd, short type, std::int64_t offset) {
    struct flock range{};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(offset);
    range.l_len = 1;
    int result = -1;
    do {
      result = ::fcntl(fd, F_OFD_SETLK, &range);
    } while (result != 0 and errno == EINTR);
    return result == 0;
  }

  FileDescriptor file_;
  std::int64_t offset_ = 0;
  pid_t process_ = 0;
};

// --- Inline implementations ---

inline std::optional<ByteRangeLock> ByteRangeLock::try_acquire(const std::filesystem::path& file,
                                                               std::int64_t offset) {
  FileDescriptor fd = open_file(AT_FDCWD, file.c_str(), O_RDWR | O_CREAT, 0666);
  if (not fd.is_open()) {
    return ByteRangeLock();
  }
  if (set_lock(fd.get(), F_WRLCK, offset)) {
    return ByteRangeLock(std::move(fd), offset);
  }
  if (errno == EAGAIN) {  // what Linux says for "somebody else has it"
    return std::nullopt;
  }
  // ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS ...: this filesystem has no such locks. EACCES, which POSIX
  // would allow for the above, is a security module that forbids them: waiting would be for ever.
  return ByteRangeLock();
}

inline ByteRangeLock ByteRangeLock::acquire(const std::filesystem::path& file,
                                            std::int64_t offset) {
  // Polled, because a waiting F_OFD_SETLKW would not notice that the user wants to stop. 50 ms at
  // most: against a compile of a second that is nothing.
  constexpr auto kFirstPause = std::chrono::milliseconds(1);
  constexpr auto kLongestPause = std::chrono::milliseconds(50);
  auto pause = kFirstPause;
  for (;;) {
    if (std::optional<ByteRangeLock> lock = try_acquire(file, offset)) {
      return *std::move(lock);
    }
    throw_if_interrupted();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

inline void ByteRangeLock::hold_until_exit(const std::filesystem::path& file,
                                           std::int64_t offset) noexcept {
  struct Holders {
    std::mutex mutex;
    std::map<std::string, FileDescriptor> files;
  };
  static Holders* const holders = new Holders();  // never destroyed, nor are its files closed
  try {
    std::lock_guard guard(holders->mutex);
    FileDescriptor& holder = holders->files[file.string()];
    if (not holder.is_open()) {
      holder = open_file(AT_FDCWD, file.c_str(), O_RDWR | O_CREAT, 0666);
    }
    if (holder.is_open()) {
      set_lock(holder.get(), F_WRLCK, offset);
    }
  } catch (...) {
    // Out of memory: no lock, as on a filesystem that has none.
  }
}

inline void ByteRangeLock::release() noexcept {
  // Unlocked before it is closed: a child forked meanwhile has the same open file, and would keep
  // the lock alive. The reverse, that child unlocking what its parent holds, must not happen
  // either.
  if (file_.is_open() and process_ == ::getpid()) {
    set_lock(file_.get(), F_UNLCK, offset_);
  }
  file_.close();
}

}  // namespace deep_jit
