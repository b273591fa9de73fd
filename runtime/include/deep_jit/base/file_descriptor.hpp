// SPDX-License-Identifier: MIT
//
// An owned file descriptor, and reading and writing through it until done.
//
// What: closes at the end of its scope; `read_some` and `write_all` go on after EINTR and short
// transfers.
// When not: whole files are read and written with base/filesystem.hpp.
//
// Example:
//     FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_RDONLY);
//     if (not file.is_open()) { ... errno ... }
//
// Errors: none thrown; the functions say -1 or false and leave errno set. Thread-safety: as an int.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

namespace deep_jit {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

  // True unless the kernel reports that written data was lost. Never repeated: on Linux the
  // descriptor is gone even after EINTR, and closing it again could close another thread's file.
  // Leaves errno as it was when it succeeds.
  bool close() {
    if (fd_ < 0) {
      return true;
    }
    const int saved_errno = errno;
    if (::close(release()) != 0 and errno != EINTR) {
      return false;
    }
    errno = saved_errno;
    return true;
  }

 private:
  int fd_ = -1;
};

// open(2), repeated after EINTR, always close-on-exec.
inline FileDescriptor open_file(int directory_fd, const char* path, int flags, unsigned mode = 0) {
  int fd = -1;
  do {
    fd = ::openat(directory_fd, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 and errno == EINTR);
  return FileDescriptor(fd);
}

// read(2), repeated after EINTR: bytes read, 0 at the end, -1 on error.
inline ssize_t read_some(int fd, char* buffer, std::size_t size) {
  ssize_t count = -1;
  do {
    count = ::read(fd, buffer, size);
  } while (count < 0 and errno == EINTR);
  return count;
}

// Writes all of `data`; false with errno on error.
inline bool write_all(int fd, std::string_view data) {
  while (not data.empty()) {
    const ssize_t count = ::write(fd, data.data(), data.size());
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// fsync(2), repeated after EINTR. A filesystem that cannot sync this kind of file (EINVAL:
// directories on some network filesystems) has nothing to wait for: that counts as done.
inline bool sync_file(int fd) {
  int result = -1;
  do {
    result = ::fsync(fd);
  } while (result != 0 and errno == EINTR);
  return result == 0 or errno == EINVAL or errno == EROFS;
}

}  // namespace deep_jit
