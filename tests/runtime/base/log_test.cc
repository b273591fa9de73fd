// SPDX-License-Identifier: MIT
#include "deep_jit/base/log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/base/child_process.hpp"

namespace deep_jit {
namespace {

// What a child writes to standard output and standard error.
std::pair<std::string, std::string> outputs_of(const std::function<void()>& work) {
  int out[2];
  int err[2];
  EXPECT_EQ(::pipe(out), 0);
  EXPECT_EQ(::pipe(err), 0);
  ChildProcess child([&] {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    work();
    return 0;
  });
  ::close(out[1]);
  ::close(err[1]);
  EXPECT_EQ(child.wait(), 0);
  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    const int fd = i == 0 ? out[0] : err[0];
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(fd, buffer, sizeof(buffer))) > 0;) {
      texts[i].append(buffer, static_cast<std::size_t>(count));
    }
    ::close(fd);
  }
  return {texts[0], texts[1]};
}

TEST(LogTest, DefaultSinkWritesInfoToStdoutAndTroubleToStderr) {
  const auto [out, err] = outputs_of([] {
    log(LogLevel::kDebug, "debug");
    log(LogLevel::kInfo, "info 1");
    log(LogLevel::kWarning, "warning");
    log(LogLevel::kError, "error");
    log(LogLevel::kInfo, "");
    log(LogLevel::kInfo, std::string_view("nul \0 byte", 10));
  });
  EXPECT_EQ(out, std::string("info 1\n\nnul \0 byte\n", 19));
  EXPECT_EQ(err, "warning\nerror\n");
}

TEST(LogTest, ClosedReaderDoesNotKillNorLeaveASignal) {
  ChildProcess child([] {
    ::signal(SIGPIPE, SIG_DFL);
    int fds[2];
    if (::pipe(fds) != 0) {
      return 1;
    }
    ::dup2(fds[1], STDOUT_FILENO);
    ::close(fds[0]);
    ::close(fds[1]);
    errno = 123;
    log(LogLevel::kInfo, "nobody reads this");
    sigset_t pending;
    sigset_t mask;
    ::sigpending(&pending);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (sigismember(&pending, SIGPIPE) or sigismember(&mask, SIGPIPE)) {
      return 2;
    }
    return errno == 123 ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(LogTest, SinkGetsLinesAndTheOldOneComesBack) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const auto keep = [&](LogLevel level, std::string_view line) { lines.emplace_back(level, line); };
  LogSink before = set_log_sink(keep);
  log(LogLevel::kDebug, "one");
  log(LogLevel::kError, "two");
  LogSink mine = set_log_sink(nullptr);
  log(LogLevel::kDebug, "dropped by the default sink");
  EXPECT_FALSE(set_log_sink(std::move(before)));
  ASSERT_TRUE(mine);
  mine(LogLevel::kInfo, "three");
  EXPECT_EQ(lines,
            (std::vector<std::pair<LogLevel, std::string>>{
                {LogLevel::kDebug, "one"}, {LogLevel::kError, "two"}, {LogLevel::kInfo, "three"}}));
}

TEST(LogTest, SinkMayLogAndReplaceItself) {
  std::vector<std::string> lines;
  LogSink before = set_log_sink([&](LogLevel, std::string_view line) {
    lines.emplace_back(line);
    if (line == "first") {
      log(LogLevel::kInfo, "nested");
      set_log_sink(
          [&](LogLevel, std::string_view later) { lines.push_back("new " + std::string(later)); });
    }
  });
  log(LogLevel::kInfo, "first");
  log(LogLevel::kInfo, "second");
  set_log_sink(std::move(before));
  EXPECT_EQ(lines, (std::vector<std::string>{"first", "nested", "new second"}));
}

TEST(LogTest, EveryLineOfEveryThreadArrivesWhileSinksChange) {
  std::atomic<int> count = 0;
  const LogSink sink = [&](LogLevel, std::string_view line) {
    if (line == "line") {
      ++count;
    }
  };
  LogSink before = set_log_sink(sink);
  constexpr int kThreads = 8;
  constexpr int kLines = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kLines; ++j) {
        log(LogLevel::kInfo, "line");
        if (j % 50 == 0) {
          set_log_sink(sink);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  set_log_sink(std::move(before));
  EXPECT_EQ(count, kThreads * kLines);
}

}  // namespace
}  // namespace deep_jit
