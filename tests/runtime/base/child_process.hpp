// SPDX-License-Identifier: MIT
//
// A forked copy of the test that runs one function.
//
// What: what must be tested in another process (locks, races, killed writers) or with process-wide
// settings that the test itself must not have (signal handling, closed descriptors).
// When not: GoogleTest assertions do not reach the parent; the function returns its verdict.
//
// Example:
//     ChildProcess child([] { return work() == 42 ? 0 : 1; });
//     EXPECT_EQ(child.wait(), 0);
//
// Errors: an exception in the child is printed and becomes exit code 99.
// Thread-safety: fork only while no other thread holds what the child needs.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

namespace deep_jit {

class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& run) : pid_(::fork()) {
    if (pid_ != 0) {
      return;
    }
    int code = 99;
    try {
      code = run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in child: %s\n", error.what());
    }
    ::_exit(code);
  }
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~ChildProcess() {
    if (pid_ > 0) {
      kill();
      wait();
    }
  }

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }

  // Exit code; 128 + signal.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0) {
      if (errno != EINTR) {
        return -1;
      }
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// A pipe as an event between processes: wait() returns when signal() was called as often.
class ProcessEvent {
 public:
  ProcessEvent() {
    if (::pipe(fds_) != 0) {
      std::terminate();
    }
  }
  ~ProcessEvent() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  ProcessEvent(const ProcessEvent&) = delete;
  ProcessEvent& operator=(const ProcessEvent&) = delete;

  void signal(int count = 1) const {
    for (int i = 0; i < count; ++i) {
      while (::write(fds_[1], "x", 1) < 0 and errno == EINTR) {
      }
    }
  }
  void wait(int count = 1) const {
    for (int i = 0; i < count; ++i) {
      char byte = 0;
      while (::read(fds_[0], &byte, 1) < 0 and errno == EINTR) {
      }
    }
  }

 private:
  int fds_[2];
};

}  // namespace deep_jit
