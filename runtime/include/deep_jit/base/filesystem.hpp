// SPDX-License-Identifier: MIT
//
// Files and directories, with durable writes and a removal that cannot leave the tree it was given.
//
// What: whole-file reads and synced writes, recursive fsync, directory creation and removal, path
// normalisation.
//
// When not: nothing here is atomic; an entry of the cache is published by cache/disk_cache.hpp.
//
// Example:
//     make_dirs(directory);
//     write_file_sync(directory / "kernel.cc", source);
//     fsync_dir(directory);
//
// Errors: functions that are not called try_, is_ or safe_ panic with the path and the reason;
// safe_remove_all is silent.
// Thread-safety: nothing shared but the filesystem itself.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"

namespace deep_jit {

// --- Whole files ---

// All bytes of a file.
std::string read(const std::filesystem::path& path);

// All bytes of a regular file of at most `limit` bytes, into `content`. Returns 0 or the errno:
// ELOOP for a symbolic link, EINVAL for anything else that is not a regular file (never blocks on a
// FIFO), EFBIG when it is larger.
int try_read_regular(const std::filesystem::path& path, std::size_t limit, std::string& content);

// Creates or replaces a file, whose bytes may not be on the disk yet: for a directory that is
// synced as a whole afterwards.
void write_file(const std::filesystem::path& path, std::string_view data);

// The same, and returns when its bytes are on the disk. (Its name is once the directory is synced
// too.)
void write_file_sync(const std::filesystem::path& path, std::string_view data);

// --- Durability ---

// fsync of one file or one directory (not of what is in it).
void fsync_file(const std::filesystem::path& path);

// fsync of every regular file and directory below `path`, bottom up, then of `path`. Links are left
// alone.
void fsync_dir(const std::filesystem::path& path);

// --- Directories and removal ---

// Creates a directory and its parents; fine when it is there, also when another process creates it
// at the same time.
void make_dirs(const std::filesystem::path& path);

// Removes a file, a link (not what it points to) or a whole tree. Silent: what cannot be removed
// stays.
void safe_remove_all(const std::filesystem::path& path) noexcept;

// Sets access and modification time to now; false when that is not possible.
bool try_update_mtime(const std::filesystem::path& path) noexcept;

// --- Names ---

// nullopt for nullopt and the empty path; else absolute and lexically normal.
std::optional<std::filesystem::path> normalize_path(
    const std::optional<std::filesystem::path>& path);

// A regular file (or a link to one) that this process may execute.
bool is_executable(const std::filesystem::path& path) noexcept;

// --- Inline implementations ---

namespace detail {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using DirectoryHandle = std::unique_ptr<DIR, CloseDirectory>;

// Opens directory `name` below `parent_fd`, never through a link in the last component.
inline DirectoryHandle open_directory(int parent_fd, const char* name) {
  FileDescriptor fd = open_file(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (not fd.is_open()) {
    return nullptr;
  }
  DirectoryHandle directory(::fdopendir(fd.get()));
  if (directory != nullptr) {
    fd.release();
  }
  return directory;
}

// The names in a directory, without "." and ".."; 0 or errno.
inline int list_directory(DIR* directory, std::vector<std::string>& names) {
  names.clear();
  ::rewinddir(directory);
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      return errno;
    }
    const std::string_view name = entry->d_name;
    if (name != "." and name != "..") {
      names.emplace_back(name);
    }
  }
}

inline bool remove_tree(int parent_fd, const char* name) {
  if (::unlinkat(parent_fd, name, 0) == 0 or errno == ENOENT) {
    return true;
  }
  // Linux says EISDIR for a directory, POSIX EPERM, and some network filesystems EACCES.
  if (errno != EISDIR and errno != EPERM and errno != EACCES) {
    return false;
  }
  // Somebody else may add files meanwhile, and some filesystems skip names in a listing that
  // changes: look again, but not for ever.
  constexpr int kMaxPasses = 4;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (DirectoryHandle directory = open_directory(parent_fd, name)) {
      std::vector<std::string> names;
      list_directory(directory.get(), names);
      for (const std::string& child : names) {
        remove_tree(::dirfd(directory.get()), child.c_str());
      }
    }
    if (::unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 or errno == ENOENT) {
      return true;
    }
    if (errno != ENOTEMPTY and errno != EEXIST) {
      return false;
    }
  }
  return false;
}

inline void sync_tree(int parent_fd, const char* name, const std::filesystem::path& path) {
  DirectoryHandle directory = open_directory(parent_fd, name);
  DJ_HOST_ASSERT(directory != nullptr, "failed to open directory for fsync: {}: {}", path.string(),
                 exception::errno_text(errno));
  const int fd = ::dirfd(directory.get());
  std::vector<std::string> names;
  const int error = list_directory(directory.get(), names);
  DJ_HOST_ASSERT(error == 0, "failed to list directory for fsync: {}: {}", path.string(),
                 exception::errno_text(error));
  for (const std::string& child : names) {
    struct stat status{};
    if (::fstatat(fd, child.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      DJ_PANIC("failed to stat for fsync: {}: {}", (path / child).string(),
               exception::errno_text(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      sync_tree(fd, child.c_str(), path / child);
    } else if (S_ISREG(status.st_mode)) {
      FileDescriptor file = open_file(fd, child.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      if (not file.is_open() or not sync_file(file.get())) {
        DJ_PANIC("failed to fsync: {}: {}", (path / child).string(), exception::errno_text(errno));
      }
    }
  }
  if (not sync_file(fd)) {
    DJ_PANIC("failed to fsync: {}: {}", path.string(), exception::errno_text(errno));
  }
}

// Appends everything from `fd` to `content`, but no more than `limit` bytes; 0 or errno.
inline int read_to_end(int fd, std::size_t size_hint, std::size_t limit, std::string& content) {
  // One byte more than the hint, so that the read that finds the end needs no growth.
  constexpr std::size_t kMinChunk = 4096;
  std::size_t used = 0;
  content.resize(size_hint + 1);
  for (;;) {
    if (used == content.size()) {
      content.resize(content.size() * 2 + kMinChunk);
    }
    const ssize_t count = read_some(fd, content.data() + used, content.size() - used);
    if (count < 0) {
      return errno;
    }
    if (count == 0) {
      content.resize(used);
      return 0;
    }
    used += static_cast<std::size_t>(count);
    if (used > limit) {
      return EFBIG;
    }
    if (used == size_hint and used < content.size()) {
      content.resize(used);  // A short read that ends where the file does: no need to ask again.
      return 0;
    }
  }
}

inline void write_whole_file(const std::filesystem::path& path, std::string_view data,
                             bool is_synced) {
  // 0666 as open(2) wants it: the user's umask decides.
  FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (not file.is_open()) {
    DJ_PANIC("failed to open for writing: {}: {}", path.string(), exception::errno_text(errno));
  }
  if (not write_all(file.get(), data)) {
    DJ_PANIC("failed to write {} bytes: {}: {}", data.size(), path.string(),
             exception::errno_text(errno));
  }
  if (is_synced and not sync_file(file.get())) {
    DJ_PANIC("failed to fsync: {}: {}", path.string(), exception::errno_text(errno));
  }
  if (not file.close()) {
    DJ_PANIC("failed to close after writing: {}: {}", path.string(), exception::errno_text(errno));
  }
}

}  // namespace detail

inline std::string read(const std::filesystem::path& path) {
  const FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_RDONLY);
  if (not file.is_open()) {
    DJ_PANIC("failed to open for reading: {}: {}", path.string(), exception::errno_text(errno));
  }
  struct stat status{};
  const bool has_size = ::fstat(file.get(), &status) == 0 and S_ISREG(status.st_mode);
  std::string content;
  const int error =
      detail::read_to_end(file.get(), has_size ? static_cast<std::size_t>(status.st_size) : 0,
                          content.max_size(), content);
  if (error != 0) {
    DJ_PANIC("failed to read: {}: {}", path.string(), exception::errno_text(error));
  }
  return content;
}

inline int try_read_regular(const std::filesystem::path& path, std::size_t limit,
                            std::string& content) {
  content.clear();
  const FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status{};
  if (not file.is_open() or ::fstat(file.get(), &status) != 0) {
    return errno;
  }
  if (not S_ISREG(status.st_mode)) {
    return EINVAL;
  }
  if (static_cast<std::uintmax_t>(status.st_size) > limit) {
    return EFBIG;
  }
  return detail::read_to_end(file.get(), static_cast<std::size_t>(status.st_size), limit, content);
}

inline void write_file(const std::filesystem::path& path, std::string_view data) {
  detail::write_whole_file(path, data, false);
}

inline void write_file_sync(const std::filesystem::path& path, std::string_view data) {
  detail::write_whole_file(path, data, true);
}

inline void fsync_file(const std::filesystem::path& path) {
  const FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_RDONLY);
  if (not file.is_open() or not sync_file(file.get())) {
    DJ_PANIC("failed to fsync: {}: {}", path.string(), exception::errno_text(errno));
  }
}

inline void fsync_dir(const std::filesystem::path& path) {
  detail::sync_tree(AT_FDCWD, path.c_str(), path);
}

inline void make_dirs(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  std::error_code status_error;
  const std::filesystem::file_status status = std::filesystem::status(path, status_error);
  if (std::filesystem::is_directory(status)) {
    return;
  }
  if (std::filesystem::exists(status)) {
    error = std::make_error_code(std::errc::not_a_directory);  // the libraries differ in this one
  } else if (not error) {
    error = status_error;
  }
  DJ_PANIC("failed to create directory: {}: {}", path.string(),
           exception::errno_text(error.value()));
}

inline void safe_remove_all(const std::filesystem::path& path) noexcept {
  const int saved_errno = errno;
  try {
    // "link/" would be followed in spite of O_NOFOLLOW: take the slashes off.
    std::string name = path.string();
    while (name.size() > 1 and name.back() == '/') {
      name.pop_back();
    }
    if (not name.empty()) {
      detail::remove_tree(AT_FDCWD, name.c_str());
    }
  } catch (...) {
    // Out of memory for a list of names: what is left stays, as for any other failure.
  }
  errno = saved_errno;
}

inline bool try_update_mtime(const std::filesystem::path& path) noexcept {
  // Both times: with one of them, only the owner may; with both, everyone who may write to the file
  // (a shared cache).
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0;
}

inline std::optional<std::filesystem::path> normalize_path(
    const std::optional<std::filesystem::path>& path) {
  if (not path.has_value() or path->empty()) {
    return std::nullopt;
  }
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(*path, error);
  if (error) {
    DJ_PANIC("failed to make path absolute: {}: {}", path->string(),
             exception::errno_text(error.value()));
  }
  return absolute.lexically_normal();
}

inline bool is_executable(const std::filesystem::path& path) noexcept {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) and ::access(path.c_str(), X_OK) == 0;
}

}  // namespace deep_jit
