// SPDX-License-Identifier: MIT
//
// Letting other Python threads run while C++ code blocks.
//
// What: GilScopedRelease gives Python's global interpreter lock away for its lifetime, if Python is
// initialised and this thread holds the lock; else it does nothing. Runtime uses it around every
// piece of work that may block, so that a pybind11 extension need not think of it.
// When not: around code that touches a Python object.
//
// Two forms:
// - pybind11's, when its headers and Python's are on the include path: depend on
//   @deep_jit//runtime:python_api, or have them there. Not under Py_LIMITED_API.
// - an empty one without any Python header: everywhere else, or with DJ_DISABLE_GIL defined as
//   other than 0.
// The forms, and every template that uses one (LazyInit, Runtime), live in inline namespaces of
// their own: translation units with different forms may be linked into one program, and what they
// instantiate does not mix. To hand a Runtime from one to the other is a link error.
//
// Example:
//     const GilScopedRelease released;
//     wait_for_the_compiler();
//
// Errors: none.
// Thread-safety: an object belongs to the thread that made it.
#pragma once

#ifndef DJ_DISABLE_GIL
#define DJ_DISABLE_GIL 0
#endif

#if !DJ_DISABLE_GIL && !defined(Py_LIMITED_API)
// Python's header too: distributions put pybind11's on the default path, and Python's elsewhere.
#if __has_include(<Python.h>) && __has_include(<pybind11/gil.h>)
#define DJ_GIL_FORM gil_pybind11
#endif
#endif

#ifdef DJ_GIL_FORM

#include <pybind11/gil.h>
#include <unistd.h>

#include <optional>

namespace deep_jit {
inline namespace DJ_GIL_FORM {

// Hidden like all of pybind11, whose objects it holds.
class [[gnu::visibility("hidden")]] GilScopedRelease {
 public:
  GilScopedRelease() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) release.emplace();
  }
  GilScopedRelease(const GilScopedRelease&) = delete;
  GilScopedRelease& operator=(const GilScopedRelease&) = delete;
  ~GilScopedRelease() {
    // A daemon thread that wants the lock back while the interpreter is torn down would be ended by
    // CPython before 3.14 with pthread_exit, which unwinds through C++ frames and aborts the
    // process. 3.14 lets such a thread hang until the process is gone, and so do we.
    while (release.has_value() && Py_IsInitialized() == 0) ::pause();
  }

  std::optional<pybind11::gil_scoped_release> release;
};

}  // namespace DJ_GIL_FORM
}  // namespace deep_jit

#else

#define DJ_GIL_FORM gil_none

namespace deep_jit {
inline namespace DJ_GIL_FORM {

class GilScopedRelease {
 public:
  GilScopedRelease() {}  // not defaulted: a variable of a trivial type would count as unused
  GilScopedRelease(const GilScopedRelease&) = delete;
  GilScopedRelease& operator=(const GilScopedRelease&) = delete;
};

}  // namespace DJ_GIL_FORM
}  // namespace deep_jit

#endif
