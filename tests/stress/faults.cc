// SPDX-License-Identifier: MIT
//
// <sys/stat.h> and <fcntl.h> stay out: what they say of the functions below differs between C
// libraries.
#include "tests/stress/faults.hpp"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace deep_jit::testing {
namespace {

struct State {
  bool is_set = false;
  unsigned calls = 0;  // one bit each
  char path_part[256] = "";
  int error = 0;
  int skip = 0;
  int times = 0;
  int seen = 0;
  int failed = 0;
};
State state;

constexpr int kAtFdCwd = -100;
constexpr int kAtSymlinkNofollow = 0x100;
constexpr int kAtEmptyPath = 0x1000;
constexpr int kOfdSetlk = 37;

// The errno to fail with, or 0 to go on. Neither allocates nor locks.
int enter(Call call, const char* path) {
  if (not state.is_set or (state.calls & (1U << static_cast<unsigned>(call))) == 0 or
      (state.path_part[0] != '\0' and
       (path == nullptr or ::strstr(path, state.path_part) == nullptr))) {
    return 0;
  }
  const int number = state.seen++;
  if (number < state.skip or number - state.skip >= state.times) {
    return 0;
  }
  ++state.failed;
  if (state.error == 0) {
    ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGKILL);
  }
  return state.error;
}

int fail_with(int error) {
  if (error == 0) {
    return 0;
  }
  errno = error;
  return -1;
}

long run(Call call, const char* path, long number, long a = 0, long b = 0, long c = 0, long d = 0,
         long e = 0) {
  const int failure = fail_with(enter(call, path));
  return failure != 0 ? failure : ::syscall(number, a, b, c, d, e);
}

long pointer(const volatile void* p) {
  return reinterpret_cast<long>(p);
}

int stat_at(int fd, const char* path, const void* status, int flags) {
  return static_cast<int>(
      run(Call::kStat, path, SYS_newfstatat, fd, pointer(path), pointer(status), flags));
}

}  // namespace

FaultScope::FaultScope(const Fault& fault) {
  state.calls = fault.calls.empty() ? ~0U : 0U;
  for (const Call call : fault.calls) {
    state.calls |= 1U << static_cast<unsigned>(call);
  }
  ::strncpy(state.path_part, fault.path_part.c_str(), sizeof(state.path_part) - 1);
  state.error = fault.error;
  state.skip = fault.skip;
  state.times = fault.times;
  state.seen = 0;
  state.failed = 0;
  state.is_set = true;
}

FaultScope::~FaultScope() {
  state.is_set = false;
}

int FaultScope::seen() const {
  return state.seen;
}

int FaultScope::failed() const {
  return state.failed;
}

}  // namespace deep_jit::testing

// --- In the place of libc's ---

#define DJ_TAKES_THE_PLACE extern "C" __attribute__((visibility("default")))

namespace testing = deep_jit::testing;
using testing::Call;

struct stat;

DJ_TAKES_THE_PLACE int openat(int fd, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = va_arg(arguments, unsigned);
  va_end(arguments);
  return static_cast<int>(
      testing::run(Call::kOpen, path, SYS_openat, fd, testing::pointer(path), flags, mode));
}

DJ_TAKES_THE_PLACE int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command != testing::kOfdSetlk) {
    return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
  }
  return static_cast<int>(
      testing::run(Call::kLock, "", SYS_fcntl, fd, command, testing::pointer(argument)));
}

DJ_TAKES_THE_PLACE int fstatat(int fd, const char* path, struct stat* status, int flags) noexcept {
  return testing::stat_at(fd, path, status, flags);
}
DJ_TAKES_THE_PLACE int stat(const char* path, struct stat* status) noexcept {
  return testing::stat_at(testing::kAtFdCwd, path, status, 0);
}
DJ_TAKES_THE_PLACE int lstat(const char* path, struct stat* status) noexcept {
  return testing::stat_at(testing::kAtFdCwd, path, status, testing::kAtSymlinkNofollow);
}
DJ_TAKES_THE_PLACE int fstat(int fd, struct stat* status) noexcept {
  return testing::stat_at(fd, "", status, testing::kAtEmptyPath);
}
// Those of glibc before 2.33, which the pinned compiler links against.
DJ_TAKES_THE_PLACE int __fxstatat(int, int fd, const char* path, struct stat* status,
                                  int flags) noexcept {
  return testing::stat_at(fd, path, status, flags);
}
DJ_TAKES_THE_PLACE int __xstat(int, const char* path, struct stat* status) noexcept {
  return testing::stat_at(testing::kAtFdCwd, path, status, 0);
}
DJ_TAKES_THE_PLACE int __lxstat(int, const char* path, struct stat* status) noexcept {
  return testing::stat_at(testing::kAtFdCwd, path, status, testing::kAtSymlinkNofollow);
}
DJ_TAKES_THE_PLACE int __fxstat(int, int fd, struct stat* status) noexcept {
  return testing::stat_at(fd, "", status, testing::kAtEmptyPath);
}

DJ_TAKES_THE_PLACE int mkdir(const char* path, unsigned mode) noexcept {
  return static_cast<int>(testing::run(Call::kMkdir, path, SYS_mkdirat, testing::kAtFdCwd,
                                       testing::pointer(path), mode));
}

DJ_TAKES_THE_PLACE ssize_t read(int fd, void* buffer, size_t size) {
  return testing::run(Call::kRead, "", SYS_read, fd, reinterpret_cast<long>(buffer),
                      static_cast<long>(size));
}

DJ_TAKES_THE_PLACE ssize_t write(int fd, const void* buffer, size_t size) {
  return testing::run(Call::kWrite, "", SYS_write, fd, testing::pointer(buffer),
                      static_cast<long>(size));
}

DJ_TAKES_THE_PLACE int fsync(int fd) {
  return static_cast<int>(testing::run(Call::kSync, "", SYS_fsync, fd));
}

DJ_TAKES_THE_PLACE int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(testing::run(Call::kRename, from, SYS_renameat2, testing::kAtFdCwd,
                                       testing::pointer(from), testing::kAtFdCwd,
                                       testing::pointer(to), 0));
}

DJ_TAKES_THE_PLACE int renameat2(int from_fd, const char* from, int to_fd, const char* to,
                                 unsigned flags) noexcept {
  return static_cast<int>(testing::run(Call::kExchange, from, SYS_renameat2, from_fd,
                                       testing::pointer(from), to_fd, testing::pointer(to), flags));
}

DJ_TAKES_THE_PLACE int unlinkat(int fd, const char* path, int flags) noexcept {
  return static_cast<int>(
      testing::run(Call::kRemove, path, SYS_unlinkat, fd, testing::pointer(path), flags));
}
