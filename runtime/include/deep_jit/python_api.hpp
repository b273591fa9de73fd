// SPDX-License-Identifier: MIT
//
// The Python side of a runtime that a pybind11 extension embeds.
//
// What: register_python_api adds to the extension a class `Runtime` and a function `get_jit()`,
// which returns the extension's runtime and makes it when it is not there yet. The class is
// module-local: extensions that embed DeepJIT, in whatever versions, share nothing in a process.
// When not: programs in Python alone use the package deep_jit, which needs no pybind11.
//
// Example:
//     LazyInit<Runtime<Host>> jit(nullptr);
//     PYBIND11_MODULE(my_kernels, m) {
//       register_python_api<Host>(m, jit);
//       m.def("init", [](const std::string& root) {
//         jit = create_lazy_jit<Host>(Config(root, "MYLIB"));
//       });
//     }
//
// Errors: every exception of DeepJIT that leaves one of the extension's functions reaches Python as
// RuntimeError with its whole text, undecodable bytes of a compiler's output replaced; so does
// every C++ exception that the lazy object's factory throws. What Python code in a factory raised
// stays what it is.
// Thread-safety: `get_jit` may be called from many threads: the factory runs once, with the GIL
// held, and whoever waits for it waits without.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/gil.hpp"
#include "deep_jit/base/lazy_init.hpp"
#include "deep_jit/runtime/runtime.hpp"

namespace deep_jit {
namespace detail {

// Sets RuntimeError. Text of compilers is in no particular encoding; PyErr_SetString would raise
// UnicodeDecodeError instead.
inline void set_runtime_error(std::string_view text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) return;  // out of memory, which is set
  PyErr_SetObject(PyExc_RuntimeError, decoded);
  Py_DECREF(decoded);
}

// For this module only; exceptions of other kinds go on to pybind11's own translation.
inline void translate_exception(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const exception::Exception& caught) {
    set_runtime_error(caught.what());
  }
}

}  // namespace detail

inline namespace DJ_GIL_FORM {

// `jit` is captured by reference and must live as long as the module: a later assignment to it is
// seen.
template <class B>
void register_python_api(pybind11::module_& m, LazyInit<Runtime<B>>& jit);

// --- Inline implementations ---

template <class B>
void register_python_api(pybind11::module_& m, LazyInit<Runtime<B>>& jit) {
  pybind11::register_local_exception_translator(&detail::translate_exception);
  pybind11::class_<Runtime<B>, std::shared_ptr<Runtime<B>>>(
      m, "Runtime", pybind11::module_local(),
      "A runtime of DeepJIT: compiles, keeps and launches this module's kernels.");
  m.def(
      "get_jit",
      [&jit]() -> std::shared_ptr<Runtime<B>> {
        try {
          return jit.get();
        } catch (const pybind11::error_already_set&) {
          throw;
        } catch (const exception::Exception&) {
          throw;
        } catch (const std::exception& caught) {
          // pybind11 would make a ValueError of std::invalid_argument, and so on.
          detail::set_runtime_error(caught.what());
          throw pybind11::error_already_set();
        } catch (...) {
          detail::set_runtime_error("the runtime's factory threw something that is no exception");
          throw pybind11::error_already_set();
        }
      },
      "This module's runtime, made at the first call.");
}

}  // namespace DJ_GIL_FORM
}  // namespace deep_jit
