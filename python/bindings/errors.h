// SPDX-License-Identifier: MIT
//
// The border between C++ exceptions and Python exceptions. No C++ exception leaves the extension.
//
// Every function that CPython calls wraps its body in `guarded`, which maps whatever was thrown:
//   exception::CompileError -> deep_jit.CompileError with log, command, options, source_path,
//                              source
//   exception::CacheError   -> deep_jit.CacheError
//   exception::LaunchError  -> deep_jit.LaunchError with kernel, parameter
//   exception::Interrupted  -> the exception that the signal handler raised (KeyboardInterrupt)
//   PythonError             -> the Python exception that is already set
//   std::bad_alloc          -> MemoryError
//   anything else           -> deep_jit.DeepJITError
// Not for expected results: a cache miss is no error.
//
//     PyObject* method(PyObject* self, PyObject*) {
//       return guarded(state_of(self), [&] { return to_python(...).release(); });
//     }
//
// Thread-safety: the GIL is held.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// An argument that a kernel cannot take; becomes deep_jit.LaunchError.
struct ArgumentError {
  std::string message;
  std::string kernel;
  std::optional<Py_ssize_t> parameter;  // counted from 0; none when it is not about one parameter
};

// Makes the exception classes and adds them to `module`. Throws PythonError.
void add_exceptions(PyObject* module, State& state);

// Sets the Python exception for the C++ exception in flight. Call inside a catch block only.
void set_error_from_exception(const State& state, std::string_view kernel) noexcept;

// Puts "kernels[<index>]: " before the text of the Python exception that is set, if that is a
// TypeError, ValueError or OverflowError.
void add_place(Py_ssize_t index) noexcept;

// The Python exception for a C++ exception, as an object. None may be set. Throws PythonError.
Ref to_python_exception(const State& state, const std::exception_ptr& error);

// Runs `body` and returns its result; on any exception sets the Python error and returns `failure`.
// `kernel` names the kernel in a LaunchError that comes from the C++ core.
template <class Body, class Result = std::invoke_result_t<Body>>
Result guarded(const State& state, Body&& body, Result failure = Result{},
               std::string_view kernel = {}) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    set_error_from_exception(state, kernel);
    return failure;
  }
}

}  // namespace deep_jit::python
