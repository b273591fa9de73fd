// SPDX-License-Identifier: MIT
#include "deep_jit/base/subprocess.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/file_descriptor.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

CommandResult run_shell(const std::string& script) {
  return run_command({.arguments = {"sh", "-c", script}});
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const exception::Exception& error) {
    return error.message;
  }
  return "nothing thrown";
}

// A FIFO tells when the last process that holds it open for writing is gone: reading ends.
class DeathWatch {
 public:
  explicit DeathWatch(const std::filesystem::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    read_end_ = open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK);
    EXPECT_EQ(::fcntl(read_end_.get(), F_SETFL, 0), 0);
  }
  // Everything written to the FIFO, once nobody can write any more.
  std::string wait() {
    std::string text;
    char buffer[256];
    for (ssize_t count = 0; (count = read_some(read_end_.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  FileDescriptor read_end_;
};

TEST(SubprocessTest, MergesOutputInOrder) {
  const CommandResult result = run_shell("echo one; echo two >&2; echo three; echo four >&2");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output, "one\ntwo\nthree\nfour\n");
}

TEST(SubprocessTest, EightMebibytesOfAnyBytes) {
  const TestDirectory directory;
  std::string data(8 << 20, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<char>((i * 2654435761U) >> 13);
  }
  ASSERT_NE(data.find('\0'), std::string::npos);
  ASSERT_NE(data.find('\xff'), std::string::npos);
  write_file_sync(directory / "data", data);
  const CommandResult result = run_command({.arguments = {"cat", directory / "data"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.size(), data.size());
  EXPECT_TRUE(result.output == data);
}

TEST(SubprocessTest, ExitCodesAndSignals) {
  EXPECT_EQ(run_shell("exit 7").exit_code, 7);
  EXPECT_EQ(run_shell("exit 255").exit_code, 255);
  EXPECT_EQ(run_shell("echo last words; kill -TERM $$").exit_code, 143);
  EXPECT_EQ(run_shell("echo last words; kill -KILL $$").output, "last words\n");
  EXPECT_FALSE(run_shell("exit 1").ok());
}

TEST(SubprocessTest, CheckedCommand) {
  EXPECT_EQ(run_checked_command({.arguments = {"echo", "fine"}}), "fine\n");
  EXPECT_THAT(
      error_of([] { run_checked_command({.arguments = {"sh", "-c", "echo why; exit 7"}}); }),
      AllOf(HasSubstr("command failed with exit code 7"), HasSubstr("sh -c 'echo why; exit 7'"),
            HasSubstr("\nwhy\n")));
  EXPECT_THAT(error_of([] { run_checked_command({.arguments = {"sh", "-c", "kill -TERM $$"}}); }),
              HasSubstr("command failed with exit code 143"));
}

TEST(SubprocessTest, EmptyCommand) {
  EXPECT_THAT(error_of([] { run_command({.arguments = {}}); }),
              HasSubstr("command must not be empty"));
  EXPECT_THAT(error_of([] { run_command({.arguments = {""}}); }),
              HasSubstr("command must not be empty"));
}

TEST(SubprocessTest, ProgramThatCannotBeStarted) {
  const TestDirectory directory;
  EXPECT_THAT(error_of([] { run_command({.arguments = {"no-such-program-anywhere", "x"}}); }),
              AllOf(HasSubstr("'no-such-program-anywhere'"), HasSubstr("No such file or directory"),
                    HasSubstr("PATH")));
  const std::string missing = directory / "none";
  EXPECT_THAT(error_of([&] { run_command({.arguments = {missing}}); }),
              AllOf(HasSubstr(missing), HasSubstr("No such file or directory")));
  write_file_sync(directory / "text", "not a program");
  EXPECT_THAT(error_of([&] { run_command({.arguments = {directory / "text"}}); }),
              HasSubstr("Permission denied"));
  EXPECT_THAT(error_of([&] {
                run_command({.arguments = {"text"}, .environment = {{"PATH", directory.path()}}});
              }),
              HasSubstr("Permission denied"));
  std::filesystem::permissions(directory / "text", std::filesystem::perms::owner_all);
  EXPECT_THAT(error_of([&] { run_command({.arguments = {directory / "text"}}); }),
              HasSubstr("Exec format error"));
  EXPECT_THAT(error_of([&] {
                run_command({.arguments = {"true"}, .working_directory = directory / "nowhere"});
              }),
              AllOf(HasSubstr("working directory"), HasSubstr((directory / "nowhere").string()),
                    HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([] { run_command({.arguments = {"true", std::string(8 << 20, 'x')}}); }),
              HasSubstr("Argument list too long"));
}

TEST(SubprocessTest, ArgumentsGoThroughNoShell) {
  const std::vector<std::string> odd = {"a b", "",  "'",  "\"", "$(exit 3)", "`x`", ";",
                                        "\\n", "*", "\n", "~",  "\xc3\xa9",  "--",  "$HOME"};
  std::vector<std::string> arguments = {"sh", "-c", "printf '<%s>' \"$@\"", "sh"};
  arguments.insert(arguments.end(), odd.begin(), odd.end());
  std::string expected;
  for (const std::string& text : odd) {
    expected += "<" + text + ">";
  }
  EXPECT_EQ(run_command({.arguments = arguments}).output, expected);
  EXPECT_THAT(error_of([] { run_command({.arguments = {"echo", std::string("a\0b", 3)}}); }),
              HasSubstr("NUL byte"));
}

TEST(SubprocessTest, FindsProgramsOnThePathOfTheCommand) {
  const TestDirectory directory;
  const std::string name = "program with blank";
  write_file_sync(directory / name, "#!/bin/sh\necho found\n");
  std::filesystem::permissions(directory / name, std::filesystem::perms::owner_all);
  const std::string path = "/no/such:" + directory.path().string() + ":/usr/bin:/bin";
  EXPECT_EQ(run_command({.arguments = {name}, .environment = {{"PATH", path}}}).output, "found\n");
}

TEST(SubprocessTest, WorkingDirectory) {
  const TestDirectory directory;
  make_dirs(directory / "a $(b)");
  EXPECT_EQ(run_command({.arguments = {"pwd"}, .working_directory = directory / "a $(b)"}).output,
            (directory / "a $(b)").string() + "\n");
  EXPECT_EQ(run_command({.arguments = {"sh", "-c", "pwd -P"}}).output,
            std::filesystem::current_path().string() + "\n");
}

TEST(SubprocessTest, EnvironmentIsInheritedAndOverridden) {
  ::setenv("EXAMPLE_KEPT", "kept", 1);
  ::setenv("EXAMPLE_CHANGED", "old", 1);
  const CommandResult result =
      run_command({.arguments = {"sh", "-c", "echo $EXAMPLE_KEPT/$EXAMPLE_CHANGED/$EXAMPLE_NEW"},
                   .environment = {{"EXAMPLE_CHANGED", "a=b"}, {"EXAMPLE_NEW", "x y"}}});
  EXPECT_EQ(result.output, "kept/a=b/x y\n");
  EXPECT_STREQ(::getenv("EXAMPLE_CHANGED"), "old");
  ::unsetenv("EXAMPLE_KEPT");
  ::unsetenv("EXAMPLE_CHANGED");
  EXPECT_THAT(error_of([] { run_command({.arguments = {"true"}, .environment = {{"A=B", "x"}}}); }),
              HasSubstr("'A=B'"));
}

TEST(SubprocessTest, StandardInputIsEmpty) {
  EXPECT_EQ(run_command({.arguments = {"cat"}}).output, "");
}

TEST(SubprocessTest, HasAProcessGroupOfItsOwn) {
  EXPECT_EQ(run_shell("read a b c d group rest < /proc/$$/stat; test $group = $$ || echo $group $$")
                .output,
            "");
}

TEST(SubprocessTest, StartsWithDefaultSignals) {
  ChildProcess child([] {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGRTMIN + 3, SIG_IGN);
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigaddset(&some, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &some, nullptr);
    const std::string output = run_command({.arguments = {"cat", "/proc/self/status"}}).output;
    if (output.find("SigBlk:\t0000000000000000") == std::string::npos) {
      return 1;
    }
    if (output.find("SigIgn:\t0000000000000000") == std::string::npos) {
      return 2;
    }
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return sigismember(&mask, SIGTERM) == 1 and sigismember(&mask, SIGINT) == 0 ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SubprocessTest, OtherFilesOfTheHostAreClosed) {
  const int leaky = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC
  ASSERT_GE(::dup2(leaky, 77), 0);
  const std::string output = run_command({.arguments = {"ls", "/proc/self/fd"}}).output;
  ::close(77);
  ::close(leaky);
  EXPECT_EQ(output, "0\n1\n2\n3\n");  // 3 is the directory that ls reads
}

TEST(SubprocessTest, WorksWhenTheHostHasClosedItsStandardFiles) {
  ChildProcess child([] {
    ::close(0);
    ::close(1);
    ::close(2);
    const CommandResult result = run_shell("echo out; echo err >&2; cat; exit 5");
    return result.output == "out\nerr\n" and result.exit_code == 5 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SubprocessTest, HostThatIgnoresSigchld) {
  ChildProcess child([] {
    ::signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 20; ++i) {
      if (run_shell("echo text; exit 7").exit_code != 7) {
        return 1;
      }
    }
    if (run_shell("kill -TERM $$").exit_code != 143) {
      return 2;
    }
    return ::signal(SIGCHLD, SIG_DFL) == SIG_IGN ? 0 : 3;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SubprocessTest, HostWithoutMemoryToSpare) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than this test leaves";
#else
  // A host of some size, that gets no more than a few MiB (we need some for output and stacks): as
  // under strict overcommit, where a copy of the host would be refused.
  constexpr rlim_t kSpare = 16 << 20;
  ChildProcess child([] {
    const std::string ballast(512 << 20, 'x');
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kSpare;
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    if (::setrlimit(RLIMIT_AS, &limits) != 0) {
      return 1;
    }
    if (::mmap(nullptr, 2 * kSpare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
        MAP_FAILED) {
      return 2;  // the limit does not bite, or this tests nothing
    }
    for (int i = 0; i < 10; ++i) {
      const CommandResult result = run_shell("echo text; exit 7");
      if (result.exit_code != 7 or result.output != "text\n") {
        return 3;
      }
    }
    return ballast.back() == 'x' ? 0 : 4;
  });
  EXPECT_EQ(child.wait(), 0);
#endif
}

TEST(SubprocessTest, ForkHandlersOfTheHostDoNotRun) {
  // They would, were the host copied with fork().
  ChildProcess child([] {
    static int forks = 0;
    ::pthread_atfork([] { ++forks; }, nullptr, [] { ++forks; });
    return run_shell("exit 7").exit_code == 7 and forks == 0 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SubprocessTest, HostThatCollectsEveryChild) {
  ChildProcess child([] {
    std::atomic<bool> stop = false;
    std::atomic<int> collected = 0;
    std::thread collector([&] {
      while (not stop) {
        if (::waitpid(-1, nullptr, WNOHANG) > 0) {
          ++collected;
        }
      }
    });
    int wrong = 0;
    for (int i = 0; i < 50; ++i) {
      wrong += run_shell("exit 7").exit_code != 7;
    }
    stop = true;
    collector.join();
    return wrong == 0 and collected == 0 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(SubprocessTest, LeavesNoChildBehindForTheHostToFind) {
  run_shell("exit 0");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(SubprocessTest, HandlersOfTheHostDoNotRunElsewhere) {
  // A signal for the whole process while a program runs goes to the host's thread, which may be
  // interrupted by it at any time.
  static std::atomic<int> received;
  received = 0;
  struct sigaction action{};
  struct sigaction old{};
  action.sa_handler = [](int) { ++received; };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);  // no SA_RESTART: system calls say EINTR
  const std::string self = std::to_string(::getpid());
  const CommandResult result = run_shell("i=0; while [ $i -lt 100 ]; do kill -USR1 " + self +
                                         "; i=$((i+1)); done; echo done; exit 4");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.output, "done\n");
  EXPECT_GT(received, 0);
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST(SubprocessTest, InterruptKillsTheWholeGroup) {
  const TestDirectory directory;
  // `trap` in the second script: a group that does not listen to SIGTERM. Both have a grandchild.
  for (const std::string trap : {"", "trap '' TERM; "}) {
    const std::filesystem::path fifo = directory / ("fifo" + std::to_string(trap.size()));
    const std::filesystem::path ready = directory / ("ready" + std::to_string(trap.size()));
    DeathWatch watch(fifo);
    const InterruptScope scope([&] { return std::filesystem::exists(ready); });
    EXPECT_THROW(run_shell(trap + "exec 9> " + fifo.string() +
                           "; sleep 1000 & sh -c 'echo here >&9; touch " + ready.string() +
                           "; sleep 1000; echo later >&9' & wait; echo done >&9"),
                 exception::Interrupted);
    EXPECT_EQ(watch.wait(), "here\n");  // returns when all of them are dead
  }
}

TEST(SubprocessTest, InterruptGivesTimeToCleanUp) {
  const TestDirectory directory;
  const std::filesystem::path ready = directory / "ready";
  const InterruptScope scope([&] { return std::filesystem::exists(ready); });
  EXPECT_THROW(run_shell("trap 'rm " + ready.string() + "; exit 1' TERM; touch " + ready.string() +
                         "; while :; do sleep 0.01; done"),
               exception::Interrupted);
  EXPECT_FALSE(std::filesystem::exists(ready));
}

TEST(SubprocessTest, InterruptedBeforeTheStart) {
  const TestDirectory directory;
  const InterruptScope scope([] { return true; });
  EXPECT_THROW(run_shell("touch " + (directory / "f").string()), exception::Interrupted);
  EXPECT_FALSE(std::filesystem::exists(directory / "f"));
}

TEST(SubprocessTest, ExceptionOfTheInterruptCheckAlsoKills) {
  const TestDirectory directory;
  DeathWatch watch(directory / "fifo");
  int asked = 0;
  const InterruptScope scope([&]() -> bool {
    if (++asked > 1 and std::filesystem::exists(directory / "ready")) {
      throw std::runtime_error("from the check");
    }
    return false;
  });
  EXPECT_THROW(run_shell("exec 9> " + (directory / "fifo").string() + "; touch " +
                         (directory / "ready").string() + "; exec sleep 1000"),
               std::runtime_error);
  EXPECT_EQ(watch.wait(), "");
}

TEST(SubprocessTest, ProcessLeftBehindDoesNotHoldUsUp) {
  const CommandResult result = run_shell("sleep 1000 & echo $!; exit 3");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.output, MatchesRegex("[0-9]+\n"));
  const pid_t left = std::atoi(result.output.c_str());
  EXPECT_EQ(::kill(left, 0), 0);  // a compiler server, say: not ours to kill
  ::kill(left, SIGKILL);
}

TEST(SubprocessTest, ProcessLeftBehindThatWritesForEver) {
  const CommandResult result = run_shell("yes & echo $! >&2; exit 3");
  EXPECT_EQ(result.exit_code, 3);
  // The number may stand anywhere between the y lines.
  std::string digits;
  for (const char c : result.output) {
    if (c >= '0' and c <= '9') {
      digits += c;
    }
  }
  ASSERT_FALSE(digits.empty());
  ::kill(std::atoi(digits.c_str()), SIGKILL);
}

TEST(SubprocessTest, ProgramThatClosesItsOutputIsWaitedFor) {
  const TestDirectory directory;
  const CommandResult result = run_shell("echo first; exec >&- 2>&-; sleep 0.2; touch " +
                                         (directory / "f").string() + "; exit 6");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.output, "first\n");
  EXPECT_TRUE(std::filesystem::exists(directory / "f"));
}

TEST(SubprocessTest, ProgramDiesWithAKilledHost) {
  const TestDirectory directory;
  DeathWatch watch(directory / "fifo");
  const std::filesystem::path ready = directory / "ready";
  ASSERT_EQ(::mkfifo(ready.c_str(), 0600), 0);
  ChildProcess host([&] {
    return run_shell("exec 9> " + (directory / "fifo").string() + "; echo > " + ready.string() +
                     "; exec sleep 1000")
        .exit_code;
  });
  EXPECT_EQ(read(ready), "\n");  // blocks until the program runs
  host.kill();
  EXPECT_EQ(host.wait(), 137);
  EXPECT_EQ(watch.wait(), "");
}

TEST(SubprocessTest, LeaksNoFileDescriptor) {
  const auto count = [] { return names_in("/proc/self/fd").size(); };
  const std::size_t before = count();
  for (int i = 0; i < 10; ++i) {
    run_shell("echo x");
    error_of([] { run_command({.arguments = {"/no/such/program"}}); });
    error_of([] { run_command({.arguments = {"no-such-program"}}); });
    error_of([] { run_command({.arguments = {"true"}, .working_directory = "/no/such"}); });
    int asked = 0;
    const InterruptScope scope([&] { return ++asked > 1; });
    EXPECT_THROW(run_shell("sleep 1000"), exception::Interrupted);
  }
  EXPECT_EQ(count(), before);
}

TEST(SubprocessTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int j = 0; j < 10; ++j) {
        const std::string text = std::to_string(i * 100 + j);
        const CommandResult result = run_shell("echo " + text + "; exit " + std::to_string(i));
        EXPECT_EQ(result.output, text + "\n");
        EXPECT_EQ(result.exit_code, i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(SubprocessTest, FormatsForAShell) {
  EXPECT_EQ(format_command({"g++", "-std=c++20", "-O3", "a/b.cc"}), "g++ -std=c++20 -O3 a/b.cc");
  EXPECT_EQ(format_command({"a b", "", "it's", "$x"}), "'a b' '' 'it'\\''s' '$x'");
  EXPECT_EQ(format_command({"A=1", "B=2"}), "'A=1' B=2");
  EXPECT_EQ(format_command({}), "");
  const std::vector<std::string> odd = {"printf", "<%s>",     "",  "a\nb", "*",     "~",
                                        "#",      "\xc3\xa9", "!", "x=y",  "'\"\\", "a;b&c|d"};
  EXPECT_EQ(run_shell(format_command(odd)).output, run_command({.arguments = odd}).output);
}

}  // namespace
}  // namespace deep_jit
