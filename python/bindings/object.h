// SPDX-License-Identifier: MIT
//
// Owning references to Python objects, for code that must stay right on every error path.
//
// Use `Ref` for each new reference; pass plain `PyObject*` for borrowed ones. Not for objects that
// are touched without the GIL: every member needs it.
//
//     Ref value{PyNumber_Index(argument)};
//     if (!value) throw PythonError{};            // the Python error is already set
//
// Errors: `PythonError` says "a Python exception is set in this thread"; it carries nothing itself
// and is caught at the border of the extension (errors.h).
// Thread-safety: that of the GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace deep_jit::python {

// Thrown when a CPython call failed: the Python exception is set and needs only to be passed on.
struct PythonError {};

class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) noexcept : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    Ref old{std::exchange(object_, std::exchange(other.object_, nullptr))};
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  // A new reference to an object that somebody else owns.
  static Ref borrow(PyObject* object) noexcept {
    Py_XINCREF(object);
    return Ref{object};
  }

  explicit operator bool() const noexcept { return object_ != nullptr; }
  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Takes ownership of the result of a CPython call; throws PythonError when the call failed.
inline Ref checked(PyObject* owned) {
  if (owned == nullptr) throw PythonError{};
  return Ref{owned};
}

}  // namespace deep_jit::python
