// SPDX-License-Identifier: MIT
//
// Running another program and collecting what it writes.
//
// What: starts a program from an argument vector (never through a shell), in a process group of its
// own, with standard input from /dev/null and standard output and error merged, in order, into one
// binary-safe string. Cancelled by the interrupt check (base/interrupt.hpp), which ends the whole
// group: a compiler driver and what it started.
//
// When not: for a program to talk to, or one that should outlive the call.
//
// Example:
//     CommandResult result = run_command({.arguments = {"g++", "-c", path}});
//     if (not result.ok()) { ... result.exit_code, result.output ... }
//
// Errors: an exit code is a result, not an exception (`run_checked_command` makes it one). A
// program that cannot be started panics with its name and the reason; a cancelled one throws
// exception::Interrupted when it and its group are gone.
// Thread-safety: all of it. Does not use the host program's SIGCHLD handling and does not change
// it: see base/supervisor.hpp.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/base/supervisor.hpp"

namespace deep_jit {

struct Command {
  std::vector<std::string> arguments = {};  // program first; searched on PATH unless it has a '/'
  std::optional<std::filesystem::path> working_directory = {};  // default: the caller's
  std::vector<std::pair<std::string, std::string>> environment =
      {};  // added to the inherited one, overriding it
};

struct CommandResult {
  int exit_code = 0;   // 0 to 255; 128 + signal when a signal ended it
  std::string output;  // standard output and standard error, merged

  bool ok() const { return exit_code == 0; }
};

// Runs to the end and returns the result, whatever the exit code.
CommandResult run_command(const Command& command);

// As run_command, but any exit code other than 0 panics: "command failed with exit code N", the
// command and its output.
std::string run_checked_command(const Command& command);

// The command as a person would type it into a shell, quoted where needed. For log lines and
// meta.json, never for running.
std::string format_command(const std::vector<std::string>& arguments);

// --- Inline implementations ---

namespace detail {

// A copy of `fd` that is none of 0, 1 and 2, which a host may have closed.
inline FileDescriptor above_standard(FileDescriptor fd) {
  if (fd.get() > STDERR_FILENO) {
    return fd;
  }
  FileDescriptor copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (not copy.is_open()) {
    DJ_PANIC("failed to copy a file descriptor: {}", exception::errno_text(errno));
  }
  return copy;
}

inline std::vector<char*> to_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(
        const_cast<char*>(text.c_str()));  // execve takes char* const* but does not write
  }
  pointers.push_back(nullptr);
  return pointers;
}

inline std::vector<std::string> merge_environment(const Command& command) {
  std::vector<std::string> entries = get_environment();
  for (const auto& [name, value] : command.environment) {
    DJ_HOST_ASSERT(not name.empty() and
                       name.find_first_of(std::string_view("=\0", 2)) == std::string::npos and
                       value.find('\0') == std::string::npos,
                   "environment variable '{}' for command {} must have a name without '=' and hold "
                   "no NUL byte",
                   name, format_command(command.arguments));
    const std::string start = name + "=";
    std::erase_if(entries, [&](const std::string& entry) { return entry.starts_with(start); });
    entries.push_back(start + value);
  }
  return entries;
}

// The file to execute, as execvp would find it; panics when there is none.
inline std::string find_program(const std::string& program,
                                const std::vector<std::string>& environment) {
  if (program.find('/') != std::string::npos) {
    return program;
  }
  std::string_view search =
      "/usr/local/bin:/usr/bin:/bin";  // where to look when there is no PATH at all
  for (const std::string& entry : environment) {
    if (entry.starts_with("PATH=")) {
      search = std::string_view(entry).substr(5);
    }
  }
  const std::string_view whole = search;
  bool seen_not_executable = false;
  for (;;) {
    const std::size_t colon = search.find(':');
    const std::string_view element = search.substr(0, colon);
    // Absolute, because the program may start in another directory. An empty element is the current
    // one, as always.
    std::error_code error;
    const std::filesystem::path candidate = std::filesystem::absolute(
        std::filesystem::path(element.empty() ? "." : element) / program, error);
    if (not error and is_executable(candidate)) {
      return candidate.string();
    }
    seen_not_executable =
        seen_not_executable or (not error and std::filesystem::is_regular_file(candidate, error));
    if (colon == std::string_view::npos) {
      break;
    }
    search.remove_prefix(colon + 1);
  }
  DJ_PANIC("failed to start program '{}': {} (searched PATH: {})", program,
           exception::errno_text(seen_not_executable ? EACCES : ENOENT), whole);
}

// Reads once from the pipe; false at its end.
inline bool read_pipe(int fd, std::string& output) {
  constexpr std::size_t kChunk = 64 * 1024;  // the default capacity of a pipe
  char chunk[kChunk];
  const ssize_t count = read_some(fd, chunk, kChunk);
  if (count <= 0) {
    return false;
  }
  output.append(chunk, static_cast<std::size_t>(count));
  return true;
}

// Ends the program and everything in its group: SIGTERM, so that compilers remove their temporary
// files, then SIGKILL.
inline void kill_program(Supervisor& supervisor, int ended_fd) {
  constexpr int kGraceMilliseconds = 200;
  while (not supervisor.has_started()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (supervisor.hold()) {
    supervisor.kill_group(SIGTERM);
    supervisor.kill_group(SIGCONT);  // a stopped program could not react
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(kGraceMilliseconds);
    pollfd ended{.fd = ended_fd, .events = POLLIN, .revents = 0};
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 or ::poll(&ended, 1, static_cast<int>(left.count())) >= 0 or
          errno != EINTR) {
        break;
      }
    }
    supervisor.kill_group(SIGKILL);
    supervisor.release();
  }
  supervisor.join();
}

}  // namespace detail

inline CommandResult run_command(const Command& command) {
  DJ_HOST_ASSERT(not command.arguments.empty() and not command.arguments.front().empty(),
                 "command must not be empty");
  for (const std::string& argument : command.arguments) {
    DJ_HOST_ASSERT(argument.find('\0') == std::string::npos,
                   "argument of a command must not hold a NUL byte: {}",
                   format_command(command.arguments));
  }
  throw_if_interrupted();

  const std::vector<std::string> environment = detail::merge_environment(command);
  const std::string path = detail::find_program(command.arguments.front(), environment);
  const std::vector<char*> argument_pointers = detail::to_pointers(command.arguments);
  const std::vector<char*> environment_pointers = detail::to_pointers(environment);
  const std::string directory = command.working_directory.value_or("").string();

  const auto check = [&](bool done, const char* what) {
    DJ_HOST_ASSERT(done, "failed to start program '{}': {}: {}", command.arguments.front(), what,
                   exception::errno_text(errno));
  };
  const FileDescriptor input = detail::above_standard(open_file(AT_FDCWD, "/dev/null", O_RDONLY));
  check(input.is_open(), "cannot open /dev/null");
  int pipe_fds[2] = {-1, -1};
  check(::pipe2(pipe_fds, O_CLOEXEC) == 0, "cannot create a pipe");
  FileDescriptor read_end(pipe_fds[0]);
  FileDescriptor write_end = detail::above_standard(FileDescriptor(pipe_fds[1]));
  const FileDescriptor ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  check(ended.is_open(), "cannot create an event");

  const detail::Supervisor::Program program{
      .path = path.c_str(),
      .arguments = argument_pointers.data(),
      .environment = environment_pointers.data(),
      .working_directory = command.working_directory.has_value() ? directory.c_str() : nullptr,
      .input_fd = input.get(),
      .output_fd = write_end.get(),
  };
  CommandResult result;
  detail::Supervisor supervisor(program, ended.get());
  try {
    constexpr auto kInterruptPeriod = std::chrono::milliseconds(50);
    auto next_check = std::chrono::steady_clock::now() + kInterruptPeriod;
    bool has_ended = false;
    while (not has_ended) {
      pollfd events[2] = {{.fd = ended.get(), .events = POLLIN, .revents = 0},
                          {.fd = read_end.get(), .events = POLLIN, .revents = 0}};
      const int count = ::poll(events, 2, static_cast<int>(kInterruptPeriod.count()));
      if (count < 0 and errno != EINTR) {
        DJ_PANIC("failed to wait for program '{}': {}", command.arguments.front(),
                 exception::errno_text(errno));
      }
      if (write_end.is_open() and supervisor.has_started()) {
        write_end.close();  // the program has its own: now its end is the end of the pipe
      }
      if (count > 0) {
        has_ended = events[0].revents != 0;
        if (events[1].revents != 0 and not detail::read_pipe(read_end.get(), result.output)) {
          read_end.close();  // poll ignores descriptor -1
        }
      }
      if (const auto now = std::chrono::steady_clock::now(); now >= next_check) {
        throw_if_interrupted();
        next_check = now + kInterruptPeriod;
      }
    }
    // What the program wrote is in the pipe by now. Read once, not to the end: a process that it
    // left behind may hold the pipe open, and write for ever.
    int left = 0;
    if (read_end.is_open() and ::ioctl(read_end.get(), FIONREAD, &left) == 0 and left > 0) {
      const std::size_t size = result.output.size();
      result.output.resize(size + static_cast<std::size_t>(left));
      const ssize_t count =
          read_some(read_end.get(), result.output.data() + size, static_cast<std::size_t>(left));
      result.output.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
  } catch (...) {
    detail::kill_program(supervisor, ended.get());
    throw;
  }
  supervisor.join();

  switch (supervisor.failed_step()) {
    case detail::Supervisor::Step::kNone:
      break;
    case detail::Supervisor::Step::kClone:
      DJ_PANIC("failed to start program '{}': cannot create a process: {}",
               command.arguments.front(), exception::errno_text(supervisor.error_number()));
    case detail::Supervisor::Step::kDirectory:
      DJ_PANIC("failed to start program '{}': cannot enter working directory {}: {}",
               command.arguments.front(), directory,
               exception::errno_text(supervisor.error_number()));
    case detail::Supervisor::Step::kExec:
      DJ_PANIC("failed to start program '{}' ({}): {}", command.arguments.front(), path,
               exception::errno_text(supervisor.error_number()));
  }
  result.exit_code = supervisor.exit_code();
  return result;
}

inline std::string run_checked_command(const Command& command) {
  CommandResult result = run_command(command);
  if (not result.ok()) {
    DJ_PANIC("command failed with exit code {}: {}\n{}", result.exit_code,
             format_command(command.arguments), result.output);
  }
  return std::move(result.output);
}

inline std::string format_command(const std::vector<std::string>& arguments) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-";
  std::string text;
  for (const std::string& argument : arguments) {
    const bool is_first = text.empty() and &argument == &arguments.front();
    if (not is_first) {
      text += ' ';
    }
    // "NAME=value" as the first word would be an assignment; anywhere else '=' is plain.
    const bool is_plain = not argument.empty() and std::ranges::all_of(argument, [&](char c) {
      return kPlain.find(c) != std::string_view::npos or (c == '=' and not is_first);
    });
    if (is_plain) {
      text += argument;
      continue;
    }
    text += '\'';
    for (const char c : argument) {
      if (c == '\'') {
        text += "'\\''";
      } else {
        text += c;
      }
    }
    text += '\'';
  }
  return text;
}

}  // namespace deep_jit
