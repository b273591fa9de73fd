// SPDX-License-Identifier: MIT
//
// Running blocking C++ work without the GIL, and still answering Ctrl-C.
//
// `without_gil` is for everything that compiles, waits, reads or writes files, or loads: other
// Python threads run meanwhile, and every look at deep_jit::is_interrupted() runs Python's signal
// handlers. `GilRelease` alone is for launches and for destructors, which nothing can interrupt.
// Not for code that touches a Python object: take what it needs out first.
//
//     auto kernel = without_gil([&] { return runtime->compile(name, source, options); });
//
// Errors: what the work throws is rethrown with the GIL held. When a signal handler raised
// (KeyboardInterrupt), the work throws deep_jit::exception::Interrupted and the Python exception is
// set; errors.h prefers it.
// Thread-safety: each object belongs to the thread that made it. Signal
// handlers only run in Python's main thread, as CPython rules.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <unistd.h>

#include <utility>

#include "deep_jit/base/interrupt.hpp"
#include "python/bindings/object.h"

namespace deep_jit::python {

class GilRelease {
 public:
  // During finalisation the only thread left must keep the GIL: nobody else may run any more.
  GilRelease() noexcept : state_(Py_IsInitialized() != 0 ? PyEval_SaveThread() : nullptr) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() { restore(); }

  // Runs pending Python signal handlers with the GIL held. True when one of them raised.
  bool check_signals() noexcept {
    if (state_ == nullptr) return false;
    restore();
    const bool raised = PyErr_CheckSignals() != 0;
    state_ = PyEval_SaveThread();
    return raised;
  }

 private:
  void restore() noexcept {
    if (state_ == nullptr) return;
    // A daemon thread that comes back while the interpreter is being torn down would be ended by
    // CPython (3.10-3.13) with pthread_exit, which unwinds through C++ frames and aborts the
    // process. CPython 3.14 lets such a thread hang until the process is gone, and so do we.
    while (Py_IsInitialized() == 0) pause();
    PyEval_RestoreThread(std::exchange(state_, nullptr));
  }

  PyThreadState* state_;
};

// Calls `work()` without the GIL and returns its result. See the banner.
template <class Work>
auto without_gil(Work&& work) {
  bool raised = false;
  auto result = [&] {
    GilRelease released;
    const InterruptScope scope{[&] { return raised = raised || released.check_signals(); }};
    return std::forward<Work>(work)();
  }();
  // The work was done before it took notice: the exception of the handler is set all the same.
  if (raised) throw PythonError{};
  return result;
}

}  // namespace deep_jit::python
