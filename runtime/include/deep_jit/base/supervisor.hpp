// SPDX-License-Identifier: MIT
//
// One running program, started and waited for whatever the host program does with SIGCHLD.
//
// What: the process part of base/subprocess.hpp: starts a program in a process group of its own,
// says when it ended and how, and kills the group without ever hitting a stranger.
//
// When not: to run a program, call run_command (base/subprocess.hpp), which also reads its output.
//
// Why not posix_spawn and waitpid: a host that ignores SIGCHLD makes the kernel drop the exit
// status, and one that calls waitpid(-1) in a loop takes it away. A special exit signal (clone)
// does not help: execve sets it back to SIGCHLD. So the program is the child not of the host but of
// a small supervisor process, which never calls execve, has signal handling of its own, and whose
// own exit signal 0 hides it from the host's waits:
//
//     calling thread          reads the output, asks the interrupt check, kills the group
//       helper thread         suspended in the kernel (CLONE_VFORK) while the supervisor lives
//         supervisor process  shares memory and files; waits for the program, notes how it ended
//           program           in a process group of its own
//
// The supervisor runs on the helper thread's thread-local storage (errno), which is its own while
// that thread is suspended, exactly as between vfork and exec. When the host dies, the kernel kills
// the supervisor and then the program (PR_SET_PDEATHSIG): no compiler goes on for nobody.
//
// Example:
//     Supervisor supervisor(program, event_fd);  // readable when the program has ended
//     supervisor.join();
//     int exit_code = supervisor.exit_code();
//
// Errors: the constructor panics when no thread can be made; what goes wrong later is in
// failed_step.
// Thread-safety: one object belongs to one thread. Everything a Program points to must outlive
// join().
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <thread>

#include "deep_jit/base/exception.hpp"

namespace deep_jit::detail {

// clone(2). ThreadSanitizer puts a clone of its own before libc's, which takes every new process
// for one with memory of its own; libc's other name for it is left alone.
#if defined(__SANITIZE_THREAD__)
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);
inline int clone_process(int (*run)(void*), void* stack, int flags, void* argument) {
  return __clone(run, stack, flags, argument);
}
#else
inline int clone_process(int (*run)(void*), void* stack, int flags, void* argument) {
  return ::clone(run, stack, flags, argument);
}
#endif

// A stack for a process that shares our memory, with a guard page below.
class ChildStack {
 public:
  ChildStack() {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    // Room for a signal-set loop and a system call; the kernel pushes a signal frame at most
    // (AVX-512 state: ~3 KiB).
    size_ = 64 * 1024 + page;
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED) {
      DJ_PANIC("failed to map {} bytes for the stack of a new process: {}", size_,
               exception::errno_text(errno));
    }
    ::mprotect(memory_, page, PROT_NONE);
  }
  ~ChildStack() { ::munmap(memory_, size_); }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;

  void* top() const { return static_cast<char*>(memory_) + size_; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

// Blocks every signal in this thread for its scope: threads and processes made meanwhile start with
// them blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old_mask_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t old_mask_;
};

class Supervisor {
 public:
  // All pointers must stay good until join().
  struct Program {
    const char* path = nullptr;
    char* const* arguments = nullptr;
    char* const* environment = nullptr;
    const char* working_directory = nullptr;  // null: the caller's
    int input_fd = -1;
    int output_fd = -1;
  };

  enum class Step { kNone, kClone, kDirectory, kExec };

  Supervisor(const Program& program, int ended_fd) : program_(program), ended_fd_(ended_fd) {
    const BlockSignals block_signals;  // the host's handlers must run neither in the helper nor in
                                       // the new processes
    try {
      helper_ = std::thread([this] { run_helper(); });
    } catch (const std::system_error& error) {
      DJ_PANIC("failed to start program '{}': cannot create a thread: {}", program_.path,
               error.what());
    }
  }
  ~Supervisor() { join(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // True once it is known whether the program could be started.
  bool has_started() const { return has_started_.load(std::memory_order_acquire); }

  // Ends when the program has ended (or could not be started) and has been reaped.
  void join() {
    if (helper_.joinable()) {
      helper_.join();
    }
  }

  // Keeps the program's process id from being reused (it stays a zombie when it ends) until
  // release(), so that the group can be killed safely. False when it has been reaped already, or
  // was never started.
  bool hold() {
    int expected = kFree;
    return has_started() and pid_ > 0 and hold_.compare_exchange_strong(expected, kHeld);
  }
  void release() { hold_.store(kFree); }
  void kill_group(int signal) const { ::kill(-pid_, signal); }

  // After join().
  Step failed_step() const { return failed_step_; }
  int error_number() const { return error_number_; }
  int exit_code() const { return exit_code_; }

 private:
  enum Hold : int { kFree, kHeld, kReaped };

  void run_helper() {
    // CLONE_FILES and CLONE_FS: the supervisor must not keep copies of the host's files open.
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS;
    const pid_t pid = clone_process(
        [](void* self) {
          static_cast<Supervisor*>(self)->run_supervisor();
          exit_now(0);
          return 0;
        },
        supervisor_stack_.top(), flags, this);
    if (pid < 0) {
      fail(Step::kClone, errno);
    } else {
      // Only to take the zombie away; the results are in this object already.
      while (::waitpid(pid, nullptr, __WALL) < 0 and errno == EINTR) {
      }
    }
    // Also when somebody killed the supervisor: the caller must not wait for ever.
    has_started_.store(true, std::memory_order_release);
    notify_ended();
  }

  // In the supervisor: no allocation, no exceptions, and every signal is blocked.
  void run_supervisor() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Of this process only: signal handling is not shared (no CLONE_SIGHAND).
    reset_signal(SIGCHLD);
    const pid_t pid = clone_process(
        [](void* self) {
          static_cast<Supervisor*>(self)->run_program();
          exit_now(127);
          return 0;
        },
        program_stack_.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, this);
    if (pid < 0) {
      fail(Step::kClone, errno);
      return;
    }
    if (failed_step_ == Step::kNone) {
      pid_ = pid;
    }
    has_started_.store(true, std::memory_order_release);
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 and
           errno == EINTR) {
    }
    if (failed_step_ == Step::kNone) {
      exit_code_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
      notify_ended();
    }
    for (int expected = kFree; not hold_.compare_exchange_strong(expected, kReaped);
         expected = kFree) {
      const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
      ::nanosleep(&pause, nullptr);
    }
    while (::waitpid(pid, nullptr, 0) < 0 and errno == EINTR) {
    }
  }

  // In the new process, before it becomes the program: only system calls, and it still shares our
  // memory.
  void run_program() {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int signal = 1; signal < NSIG; ++signal) {
      reset_signal(signal);  // refused for SIGKILL and SIGSTOP: nothing to do for those
    }
    if (program_.working_directory != nullptr and ::chdir(program_.working_directory) != 0) {
      fail(Step::kDirectory, errno);
      return;
    }
    // Both are above 2 (see above_standard): a copy, without the flag that closes it on exec.
    if (::syscall(SYS_dup3, program_.input_fd, STDIN_FILENO, 0) < 0 or
        ::syscall(SYS_dup3, program_.output_fd, STDOUT_FILENO, 0) < 0 or
        ::syscall(SYS_dup3, program_.output_fd, STDERR_FILENO, 0) < 0) {
      fail(Step::kExec, errno);
      return;
    }
    close_others_on_exec();
    const std::uint64_t none = 0;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kKernelSignalSetBytes);
    ::execve(program_.path, program_.arguments, program_.environment);
    fail(Step::kExec, errno);
  }

  // The kernel's calls without libc's functions around them: preloaded libraries and sanitizers put
  // code of theirs in front of those, which would note in memory that we share what is true for the
  // new process only.
  static constexpr std::size_t kKernelSignalSetBytes = 8;

  static void reset_signal(int signal) {
    const std::uint64_t action[8] = {};  // the kernel's struct, larger than any: SIG_DFL, no flags
    ::syscall(SYS_rt_sigaction, signal, action, nullptr, kKernelSignalSetBytes);
  }

  static void exit_now(int code) { ::syscall(SYS_exit_group, code); }

  // Files that the host opened without O_CLOEXEC are not the program's business.
  static void close_others_on_exec() {
    // SYS_close_range, the same on every architecture; older headers lack the name.
    constexpr long kCloseRange = 436;
    constexpr unsigned kCloseRangeCloexec = 1U << 2;
    if (::syscall(kCloseRange, 3U, ~0U, kCloseRangeCloexec) == 0) {
      return;
    }
    // Linux before 5.11. The bound keeps a limit of 2^30 descriptors from costing minutes.
    constexpr rlim_t kMaxDescriptors = 1 << 16;
    struct rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const int end = static_cast<int>(std::min(limit.rlim_cur, kMaxDescriptors));
    for (int fd = 3; fd < end; ++fd) {
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }

  void fail(Step step, int error_number) {
    failed_step_ = step;
    error_number_ = error_number;
  }

  void notify_ended() {
    const std::uint64_t one = 1;
    while (::write(ended_fd_, &one, sizeof(one)) < 0 and errno == EINTR) {
    }
  }

  const Program program_;
  const int ended_fd_;
  const ChildStack supervisor_stack_;
  const ChildStack program_stack_;
  pid_t pid_ = 0;
  // What a killed supervisor leaves behind.
  int exit_code_ = 128 + SIGKILL;
  Step failed_step_ = Step::kNone;
  int error_number_ = 0;
  std::atomic<bool> has_started_ = false;
  std::atomic<int> hold_ = kFree;
  std::thread helper_;
};

}  // namespace deep_jit::detail
