// SPDX-License-Identifier: MIT
//
// Log lines, and the sink that they go to.
//
// What: the library never prints by itself; it calls `log`, and the sink decides. The default sink
// writes kInfo to standard output (only what the user asked for by an environment variable is
// logged at kInfo), kWarning and kError to standard error, and drops kDebug.
//
// When not: errors are exceptions, not log lines.
//
// Example:
//     LogSink old = set_log_sink([](LogLevel level, std::string_view line) {
//       my_logger(level, line);
//     });
//
// Errors: the default sink ignores a closed or full standard output. What a user's sink throws
// reaches the caller of `log`.
// Thread-safety: all of it. A sink may be called from several threads at once, and still be running
// in one of them when set_log_sink returns. A sink may call `log` and `set_log_sink`.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "deep_jit/base/file_descriptor.hpp"

namespace deep_jit {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink and returns the one before (null when that was the default). Null restores the
// default.
LogSink set_log_sink(LogSink sink);

// Hands one line, without its newline, to the sink.
void log(LogLevel level, std::string_view line);

// --- Inline implementations ---

namespace detail {

struct LogState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;  // null: the default sink
};

// Never destroyed: threads may log while the program exits.
inline LogState& log_state() {
  static LogState* const state = new LogState();
  return *state;
}

// Writes without dying from SIGPIPE when the reader is gone: the signal is blocked in this thread
// only, and taken back if our write raised it. Nothing of the process changes.
inline void write_without_sigpipe(int fd, std::string_view text) {
  sigset_t sigpipe;
  sigset_t old_mask;
  sigset_t pending;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  sigemptyset(&pending);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  if (pthread_sigmask(SIG_BLOCK, &sigpipe, &old_mask) != 0) {
    return;
  }
  if (not write_all(fd, text) and errno == EPIPE and not was_pending) {
    const timespec no_wait{};
    while (sigtimedwait(&sigpipe, nullptr, &no_wait) < 0 and errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
}

inline void default_log_sink(LogLevel level, std::string_view line) {
  if (level == LogLevel::kDebug) {
    return;
  }
  const int saved_errno = errno;
  std::string text(line);
  text += '\n';  // in the same write, so that lines of several processes do not mix
  write_without_sigpipe(level == LogLevel::kInfo ? STDOUT_FILENO : STDERR_FILENO, text);
  errno = saved_errno;
}

}  // namespace detail

inline LogSink set_log_sink(LogSink sink) {
  std::shared_ptr<const LogSink> next;
  if (sink) {
    next = std::make_shared<const LogSink>(std::move(sink));
  }
  detail::LogState& state = detail::log_state();
  {
    std::lock_guard lock(state.mutex);
    state.sink.swap(next);
  }
  return next == nullptr ? LogSink() : *next;
}

inline void log(LogLevel level, std::string_view line) {
  std::shared_ptr<const LogSink> sink;
  {
    detail::LogState& state = detail::log_state();
    std::lock_guard lock(state.mutex);
    sink = state.sink;
  }
  if (sink == nullptr) {
    detail::default_log_sink(level, line);
  } else {
    (*sink)(level, line);
  }
}

}  // namespace deep_jit
