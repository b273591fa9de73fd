// SPDX-License-Identifier: MIT
//
// Cancelling work from outside: the interrupt check of a thread.
//
// What: whoever calls into the library (the Python binding, for Ctrl-C) puts an InterruptScope
// around the call. Everything that may take long (a compiler run, waiting for a lock or for another
// thread's compile) asks `is_interrupted()` about every 50 ms, cleans up and throws
// `exception::Interrupted`.
//
// When not: this does not interrupt a running kernel.
//
// Example:
//     InterruptScope scope([&] { return stop_requested.load(); });
//     runtime.compile("scale", source);  // throws Interrupted soon after the request
//
// Errors: what the check throws passes through the work, which cleans up as for Interrupted.
// Thread-safety: scopes belong to the thread that made them, and end in reverse order. The check
// runs in that thread.
#pragma once

#include <functional>
#include <utility>

#include "deep_jit/base/exception.hpp"

namespace deep_jit {

class InterruptScope {
 public:
  explicit InterruptScope(std::function<bool()> is_interrupted);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend bool is_interrupted();

  static InterruptScope*& innermost() {
    thread_local InterruptScope* scope = nullptr;
    return scope;
  }

  std::function<bool()> is_interrupted_;
  InterruptScope* outer_;
};

// Asks the innermost scope of this thread; false when there is none.
bool is_interrupted();

// Throws exception::Interrupted when is_interrupted().
void throw_if_interrupted();

// --- Inline implementations ---

inline InterruptScope::InterruptScope(std::function<bool()> is_interrupted)
    : is_interrupted_(std::move(is_interrupted)), outer_(innermost()) {
  innermost() = this;
}

inline InterruptScope::~InterruptScope() {
  innermost() = outer_;
}

inline bool is_interrupted() {
  const InterruptScope* const scope = InterruptScope::innermost();
  return scope != nullptr and scope->is_interrupted_ and scope->is_interrupted_();
}

inline void throw_if_interrupted() {
  if (is_interrupted()) {
    DJ_THROW(exception::Interrupted, "the work was cancelled by the interrupt check of its thread");
  }
}

}  // namespace deep_jit
