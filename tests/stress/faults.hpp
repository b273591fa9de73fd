// SPDX-License-Identifier: MIT
//
// System calls that fail, or kill the process, when a test says so.
//
// What: a test that links this library calls its open, write, rename and the like in the place of
// libc's. They do the real thing until a fault is set; then every call that matches, from the
// `skip`-th on and `times` times, fails with `error` or ends the process with SIGKILL, as a power
// cut or the OOM killer would.
// When not: programs that a test starts are not affected. Set faults only where one thread runs.
//
// Example:
//     const FaultScope full_disk({.calls = {Call::kWrite}, .error = ENOSPC});
//
// Errors: none of its own. Thread-safety: none.
#pragma once

#include <string>
#include <vector>

namespace deep_jit::testing {

enum class Call { kOpen, kLock, kStat, kMkdir, kRead, kWrite, kSync, kRename, kExchange, kRemove };

struct Fault {
  std::vector<Call> calls = {};  // none: all of them
  std::string path_part = "";    // of the path as the call got it; "" matches every call
  int error = 0;                 // errno; 0: SIGKILL before the call
  int skip = 0;
  int times = 1 << 30;
};

// Sets a fault for its lifetime; one at a time.
class FaultScope {
 public:
  explicit FaultScope(const Fault& fault);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

  // Calls that matched, and those that failed.
  int seen() const;
  int failed() const;
};

}  // namespace deep_jit::testing
