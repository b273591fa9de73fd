// SPDX-License-Identifier: MIT
//
// One running call that several threads wait for.
//
// What: the building block of LazyInit and MemoryCache. The thread that makes a Flight does the
// work and ends it with `finish` or `fail`; others `wait` and get the same result or the same
// exception.
//
// When not: who decides which call is running, and under which lock, is up to the owner; this holds
// one call only.
//
// Example: see base/lazy_init.hpp.
//
// Errors: `wait` rethrows what the work threw, or Interrupted when the waiting thread itself is
// cancelled meanwhile. When the *working* thread was cancelled, that is none of the waiting one's
// business: it gets nullopt and starts over.
// Thread-safety: all of it. After fork the child has no thread that would end a flight of its
// parent: `is_running` is false there, and the child starts one of its own.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/interrupt.hpp"

namespace deep_jit {

template <class Value>
class Flight {
 public:
  // False in a forked child of the process that started it.
  bool is_running() const { return process_ == ::getpid(); }

  // True when the calling thread is the one that does the work: waiting would never end.
  bool is_own() const { return thread_ == std::this_thread::get_id(); }

  void finish(std::shared_ptr<Value> value) { end(std::move(value), nullptr, false); }

  // To be called in a catch block: ends with the exception that is being handled.
  void fail();

  // The result; nullopt when the thread that did the work was cancelled.
  std::optional<std::shared_ptr<Value>> wait();

 private:
  void end(std::shared_ptr<Value> value, std::exception_ptr error, bool was_cancelled);

  const pid_t process_ = ::getpid();
  const std::thread::id thread_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  bool was_cancelled_ = false;
  std::shared_ptr<Value> value_;
  std::exception_ptr error_;
};

// --- Inline implementations ---

template <class Value>
std::optional<std::shared_ptr<Value>> Flight<Value>::wait() {
  constexpr auto kInterruptPeriod = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  while (not ended_.wait_for(lock, kInterruptPeriod, [this] { return has_ended_; })) {
    lock.unlock();  // the check may run anything, such as Python's signal handlers
    throw_if_interrupted();
    lock.lock();
  }
  if (was_cancelled_) {
    return std::nullopt;
  }
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
  return value_;
}

template <class Value>
void Flight<Value>::fail() {
  try {
    throw;
  } catch (const exception::Interrupted&) {
    end(nullptr, std::current_exception(), true);
  } catch (...) {
    end(nullptr, std::current_exception(), false);
  }
}

template <class Value>
void Flight<Value>::end(std::shared_ptr<Value> value, std::exception_ptr error,
                        bool was_cancelled) {
  {
    std::lock_guard lock(mutex_);
    value_ = std::move(value);
    error_ = std::move(error);
    was_cancelled_ = was_cancelled;
    has_ended_ = true;
  }
  ended_.notify_all();
}

}  // namespace deep_jit
