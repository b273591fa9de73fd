// SPDX-License-Identifier: MIT
//
// An object that is made when it is first needed.
//
// What: holds a factory, runs it once on first use, keeps the result. Declaring one costs nothing
// and touches nothing, so a library can declare its runtime at load time and fork before it is
// used.
//
// When not: a value that is cheap to make and depends on nothing.
//
// Example:
//     inline LazyInit<Runtime<Host>> jit(nullptr);                   // set up later:
//     jit = LazyInit<Runtime<Host>>([] { return std::make_shared<Runtime<Host>>(config); });
//     jit->compile("scale", source);                                 // the runtime is made here
//
// Errors: without a factory "lazy object must be initialized before use"; a null result is an
// error; a factory that uses its own lazy object is an error, not a deadlock. What the factory
// throws reaches every thread that waited for it, and the next use tries again.
// Thread-safety: all of it, including assignment during a get. The factory runs with the GIL if the
// calling thread has it (base/gil.hpp); waiting for another thread's factory gives it away. Copies
// are handles of the same object: one factory call for all of them. A thread that was not cancelled
// never sees another one's Interrupted: it runs the factory itself.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/gil.hpp"
#include "deep_jit/base/single_flight.hpp"

namespace deep_jit {
inline namespace DJ_GIL_FORM {

template <class T>
class LazyInit {
 public:
  using Factory = std::function<std::shared_ptr<T>()>;

  // No factory yet: every use fails until one is assigned.
  explicit LazyInit(std::nullptr_t) : state_(std::make_shared<State>()) {}
  explicit LazyInit(Factory factory) : state_(std::make_shared<State>()) {
    state_->factory = std::move(factory);
  }

  LazyInit(const LazyInit& other) : state_(other.state()) {}
  LazyInit& operator=(const LazyInit& other) {
    std::shared_ptr<State> next = other.state();
    std::lock_guard lock(mutex_);
    state_.swap(next);  // the old state ends after the lock is released
    return *this;
  }

  // The object, made now if it was not. Whoever holds the result keeps it alive, also after
  // reassignment.
  std::shared_ptr<T> get() { return state()->get(); }

  // Keeps the object alive for the length of the expression, so that another thread may reassign
  // meanwhile.
  std::shared_ptr<T> operator->() { return get(); }

 private:
  struct State {
    Factory factory;
    std::mutex mutex;
    std::shared_ptr<T> value;
    std::shared_ptr<Flight<T>> flight;

    std::shared_ptr<T> get();
    std::shared_ptr<T> run(const std::shared_ptr<Flight<T>>& own);
  };

  std::shared_ptr<State> state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<State> state_;
};

// --- Inline implementations ---

template <class T>
std::shared_ptr<T> LazyInit<T>::State::get() {
  for (;;) {
    std::shared_ptr<Flight<T>> other;
    std::shared_ptr<Flight<T>> own;
    {
      std::lock_guard lock(mutex);
      if (value != nullptr) {
        return value;
      }
      DJ_HOST_ASSERT(
          factory != nullptr,
          "lazy object must be initialized before use: assign a LazyInit with a factory");
      if (flight != nullptr and flight->is_running()) {
        DJ_HOST_ASSERT(not flight->is_own(), "lazy object must not be used by its own factory");
        other = flight;
      } else {
        own = flight = std::make_shared<Flight<T>>();
      }
    }
    if (own != nullptr) {
      return run(own);
    }
    // The other thread's factory may need the GIL that this one holds.
    const GilScopedRelease released;
    if (std::optional<std::shared_ptr<T>> made = other->wait()) {
      return *std::move(made);
    }
  }
}

template <class T>
std::shared_ptr<T> LazyInit<T>::State::run(const std::shared_ptr<Flight<T>>& own) {
  try {
    std::shared_ptr<T> made = factory();
    DJ_HOST_ASSERT(made != nullptr, "lazy factory must not return nullptr");
    {
      std::lock_guard lock(mutex);
      value = made;
      flight.reset();
    }
    own->finish(made);
    return made;
  } catch (...) {
    {
      std::lock_guard lock(mutex);
      if (flight == own) {
        flight.reset();
      }
    }
    own->fail();
    throw;
  }
}

}  // namespace DJ_GIL_FORM
}  // namespace deep_jit
