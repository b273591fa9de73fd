// SPDX-License-Identifier: MIT
//
// IdentityMemo: what was found out about files, kept between processes.
//
// What: telling a compiler from another means reading it, some hundred megabytes for nvcc or NVRTC,
// and asking it for its version. The answers are kept in `<root>/identities/<user>/`, one small
// file per question, together with what stat(2) says of the files that were asked about, down to
// the nanosecond of their last change. An answer counts only for files that have not changed since.
// IdentityMemoScope makes a memo the one that digest_file() and identify_compiler() use.
// When not: nothing here is needed: without a memo, or with one that cannot be written or trusted,
// everything is found out again, and is only slower.
//
// Trust: an answer decides which binaries are loaded. One that someone else could have written is
// not taken: the root must not be writable by everybody, the folder and the file must belong to
// this user and be writable by no one else. Format of a file: "deep_jit-identity 1 " checksum '\n',
// then question, state and answer, each as its size in decimal, '\n', its bytes, '\n'. The checksum
// is of all bytes behind the first line.
//
// Example:
//     IdentityMemo memo("/var/cache/mylib");
//     const IdentityMemoScope scope(memo);
//     digest_file("/usr/local/cuda/nvvm/bin/cicc");
//     memo.flush();
//
// Errors: none.
// Thread-safety: a memo: all of it. A scope belongs to the thread that made it, and scopes end in
// reverse order.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/unique_name.hpp"

namespace deep_jit {

class IdentityMemo {
 public:
  // `root`: of a cache. Touches nothing.
  explicit IdentityMemo(std::filesystem::path root)
      : root_(std::move(root)),
        folder_(root_ / "identities" / std::to_string(::geteuid())),
        pending_(std::make_shared<Pending>()) {}

  // The answer to `question` for files of that `state`.
  std::optional<std::string> find(std::string_view question, std::string_view state) const;

  // Kept in memory until flush().
  void remember(std::string_view question, std::string_view state, std::string_view answer) const;

  // Writes what was remembered, once the root is there: a memo alone is no reason to make one.
  void flush() const noexcept;

 private:
  struct Pending {
    std::mutex mutex;
    std::map<std::string, std::string> texts;  // By file name.
  };

  // Whether only this user can have put something there.
  bool is_trusted() const;

  std::filesystem::path root_;
  std::filesystem::path folder_;
  std::shared_ptr<Pending> pending_;
};

class IdentityMemoScope {
 public:
  explicit IdentityMemoScope(const IdentityMemo& memo) : outer_(innermost()) {
    innermost() = &memo;
  }
  IdentityMemoScope(const IdentityMemoScope&) = delete;
  IdentityMemoScope& operator=(const IdentityMemoScope&) = delete;
  ~IdentityMemoScope() { innermost() = outer_; }

  // The memo of the thread's innermost scope, or null.
  static const IdentityMemo* current() { return innermost(); }

 private:
  static const IdentityMemo*& innermost() {
    thread_local const IdentityMemo* memo = nullptr;
    return memo;
  }

  const IdentityMemo* outer_;
};

// --- Inline implementations ---

namespace detail {

inline constexpr std::size_t kMaxMemoBytes = std::size_t{1} << 16;

inline std::string frame(std::string_view value) {
  return std::to_string(value.size()).append("\n").append(value).append("\n");
}

inline std::string first_memo_line(std::string_view payload) {
  return "deep_jit-identity 1 " + hash_bytes(payload).hex() + "\n";
}

// What is in a file that only this user can have written.
inline std::optional<std::string> read_own_file(const std::filesystem::path& path) {
  const FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status{};
  if (not file.is_open() or ::fstat(file.get(), &status) != 0 or not S_ISREG(status.st_mode) or
      status.st_uid != ::geteuid() or (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 or
      static_cast<std::size_t>(status.st_size) > kMaxMemoBytes) {
    return std::nullopt;
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read_some(file.get(), text.data() + size, text.size() - size);
    if (count <= 0) return std::nullopt;
    size += static_cast<std::size_t>(count);
  }
  return text;
}

}  // namespace detail

inline bool IdentityMemo::is_trusted() const {
  struct stat root{};
  struct stat folder{};
  return ::stat(root_.c_str(), &root) == 0 and (root.st_mode & S_IWOTH) == 0 and
         ::lstat(folder_.c_str(), &folder) == 0 and S_ISDIR(folder.st_mode) and
         folder.st_uid == ::geteuid() and (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

inline std::optional<std::string> IdentityMemo::find(std::string_view question,
                                                     std::string_view state) const {
  const auto text = detail::read_own_file(folder_ / hash_bytes(question).hex());
  if (not text.has_value() or not is_trusted()) return std::nullopt;
  std::string_view rest = *text;
  const std::size_t first = rest.find('\n');
  if (first == rest.npos) return std::nullopt;
  const std::string_view line = rest.substr(0, first + 1);
  rest.remove_prefix(line.size());
  const std::string known = detail::frame(question) + detail::frame(state);
  if (line != detail::first_memo_line(rest) or not rest.starts_with(known)) return std::nullopt;
  rest.remove_prefix(known.size());
  const std::size_t size_end = rest.find('\n');
  if (size_end == rest.npos or rest.size() < size_end + 2) return std::nullopt;
  const std::string_view answer = rest.substr(size_end + 1, rest.size() - size_end - 2);
  if (rest != detail::frame(answer)) return std::nullopt;
  return std::string(answer);
}

inline void IdentityMemo::remember(std::string_view question, std::string_view state,
                                   std::string_view answer) const {
  const std::string payload =
      detail::frame(question) + detail::frame(state) + detail::frame(answer);
  const std::lock_guard lock(pending_->mutex);
  pending_->texts.insert_or_assign(hash_bytes(question).hex(),
                                   detail::first_memo_line(payload) + payload);
}

inline void IdentityMemo::flush() const noexcept {
  try {
    const std::lock_guard lock(pending_->mutex);
    struct stat status{};
    if (pending_->texts.empty() or ::stat(root_.c_str(), &status) != 0) return;
    const auto texts = std::exchange(pending_->texts, {});
    if ((status.st_mode & S_IWOTH) != 0) return;
    make_dirs(folder_.parent_path());
    ::mkdir(folder_.c_str(), S_IRWXU);
    if (not is_trusted()) return;
    for (const auto& [name, text] : texts) {
      const auto part = folder_ / unique_name();
      const bool is_written = [&] {
        const FileDescriptor file =
            open_file(AT_FDCWD, part.c_str(), O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
        return file.is_open() and write_all(file.get(), text);
      }();
      // Not synced: a file that a crash has left half written does not have its checksum.
      if (not is_written or ::rename(part.c_str(), (folder_ / name).c_str()) != 0) {
        ::unlink(part.c_str());
      }
    }
  } catch (...) {
    // A full disk, no memory: it stays slower.
  }
}

}  // namespace deep_jit
