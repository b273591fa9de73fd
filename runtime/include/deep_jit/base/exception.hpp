// SPDX-License-Identifier: MIT
//
// Exception types of DeepJIT and the macros that throw them.
//
// What: every error that the library reports is an `exception::Exception` or one of its children.
// `message` is what a person reads, `error` the same text without the "<name> error
// (<file>:<line>): " in front (for wrapping).
//
// When not: an expected outcome (a cache miss, a command that exits with 1) is a return value, not
// an exception.
//
// Example:
//     DJ_HOST_ASSERT(count > 0, "kernel '{}' needs at least one block, got {}", name, count);
//     DJ_THROW(exception::CacheError, "failed to rename {}: {}", from,
//     exception::errno_text(errno));
//
// Errors: an error text says what failed, with which value, what was expected and what to do.
// Thread-safety: nothing shared.
#pragma once

#include <exception>
#include <format>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/backtrace.hpp"

namespace deep_jit::exception {

// --- Types ---

// Base of all errors. The text is "<name> error (<file>:<line>): <error>", and where traces are on
// (base/backtrace.hpp) the calls that led there.
class Exception : public std::exception {
 public:
  std::string message;
  std::string error;

  Exception(const char* name, const char* file, int line, const std::string& error)
      : message(std::format("{} error ({}:{}): {}{}", name, file, line, error, trace_text())),
        error(error) {}

  const char* what() const noexcept override { return message.c_str(); }
};

// A compiler rejected a source or did not produce what it must. The fields are for tools; the
// message holds the log too where the thrower puts it there.
class CompileError : public Exception {
 public:
  std::string log;                   // what the compiler wrote, whole
  std::vector<std::string> command;  // argument vector of the failed run
  std::string source_path;           // file that was compiled
  std::string options;               // compiler options as JSON text
  std::string source;                // the kernel's source as it was given

  CompileError(const char* file, int line, const std::string& error, std::string log = {},
               std::vector<std::string> command = {}, std::string source_path = {},
               std::string options = {}, std::string source = {})
      : Exception("Compile", file, line, error),
        log(std::move(log)),
        command(std::move(command)),
        source_path(std::move(source_path)),
        options(std::move(options)),
        source(std::move(source)) {}
};

// A build could not be published (disk full, no permission). A damaged or unreadable entry is a
// miss, never this.
class CacheError : public Exception {
 public:
  CacheError(const char* file, int line, const std::string& error)
      : Exception("Cache", file, line, error) {}
};

// A kernel could not be launched, or failed while it ran.
class LaunchError : public Exception {
 public:
  LaunchError(const char* file, int line, const std::string& error)
      : Exception("Launch", file, line, error) {}
};

// The work was cancelled by the interrupt check of this thread (base/interrupt.hpp).
class Interrupted : public Exception {
 public:
  Interrupted(const char* file, int line, const std::string& error)
      : Exception("Interrupted", file, line, error) {}
};

// --- Texts ---

// "No such file or directory (errno 2)". Thread-safe, unlike strerror(3).
inline std::string errno_text(int error_number) {
  return std::format("{} (errno {})", std::generic_category().message(error_number), error_number);
}

namespace detail {

inline std::string assertion_text(const char* condition) {
  return condition;
}

template <class... Args>
std::string assertion_text(const char* condition, std::format_string<Args...> format,
                           Args&&... args) {
  return std::string(condition) + ": " + std::format(format, std::forward<Args>(args)...);
}

}  // namespace detail
}  // namespace deep_jit::exception

// --- Macros ---

// static_assert with an optional literal.
#ifndef DJ_STATIC_ASSERT
#define DJ_STATIC_ASSERT(cond, ...) static_assert(cond __VA_OPT__(, ) __VA_ARGS__)
#endif

// Throws unless `cond` holds; the text is "<stringised cond>: <formatted text>". Give a text
// wherever a user can get there.
#ifndef DJ_HOST_ASSERT
#define DJ_HOST_ASSERT(cond, ...)                                                           \
  do {                                                                                      \
    if (not(cond)) [[unlikely]] {                                                           \
      throw ::deep_jit::exception::Exception(                                               \
          "Assertion", __FILE__, __LINE__,                                                  \
          ::deep_jit::exception::detail::assertion_text(#cond __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                       \
  } while (false)
#endif

// Throws an Exception with a std::format text.
#ifndef DJ_PANIC
#define DJ_PANIC(...) \
  throw ::deep_jit::exception::Exception("Panic", __FILE__, __LINE__, std::format(__VA_ARGS__))
#endif

// Throws `Type(file, line, text)`; for CompileError and the like.
#ifndef DJ_THROW
#define DJ_THROW(Type, ...) throw Type(__FILE__, __LINE__, std::format(__VA_ARGS__))
#endif
