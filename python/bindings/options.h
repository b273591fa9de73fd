// SPDX-License-Identifier: MIT
//
// Options by name: a dict of Python into an options struct of C++.
//
// What: an options struct names its fields (visit_fields, deep_jit/runtime/options_fields.hpp), and
// the type of a field says what it takes. A new field of a backend is an option of Python without a
// line here. None leaves a field unset, so that the default counts.
// When not: kernel arguments (arguments.h); defaults and their meaning are the backend's.
//
//     const auto options = to_options<host::CompilerOptions>(dict, "compile");
//
// Errors: TypeError for a name that is none, listing those that are, and for a value of another
// type, with option, value and what was expected; ValueError for a text with NUL, OverflowError for
// an int beyond 32 bits. All as PythonError.
// Thread-safety: the GIL is held.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "python/bindings/convert.h"
#include "python/bindings/object.h"

namespace deep_jit::python {

// What each type of a compiler option takes.
struct AssignOption {
  // An int stands for its digits: optimize_level=3, arch=90.
  void operator()(std::optional<std::string>& option, PyObject* value, const char* name) const {
    option = PyLong_CheckExact(value) != 0 ? std::to_string(to_int(value, name))
                                           : to_native(value, name, "str, int or None");
  }
  void operator()(std::optional<bool>& option, PyObject* value, const char* name) const {
    option = to_bool(value, name);
  }
  void operator()(std::optional<int>& option, PyObject* value, const char* name) const {
    option = to_int(value, name);
  }
  void operator()(std::optional<std::vector<std::string>>& option, PyObject* value,
                  const char* name) const {
    option = to_native_list(value, name);
  }
  void operator()(std::vector<std::string>& option, PyObject* value, const char* name) const {
    option = to_native_list(value, name);
  }
};

// Every option, not counting those that `is_option` refuses.
struct AnyOption {
  constexpr bool operator()(std::string_view) const { return true; }
};

template <class Options, class IsOption = AnyOption>
std::string list_options(IsOption is_option = {}) {
  std::string names;
  const Options options{};
  Options::visit_fields(options, [&](const char* name, const auto&) {
    if (is_option(name)) names.append(names.empty() ? "" : ", ").append(name);
  });
  return names;
}

// Sets the field `name` of `options`. `function`: whose keyword argument it is, for error texts.
template <class Options, class Assign, class IsOption = AnyOption>
void set_option(Options& options, const char* function, PyObject* name, PyObject* value,
                const Assign& assign, IsOption is_option = {}) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : "";
  if (text == nullptr) throw PythonError{};
  const std::string_view wanted(text, static_cast<std::size_t>(size));
  bool is_known = false;
  Options::visit_fields(options, [&](const char* field, auto& member) {
    if (is_known || wanted != field || !is_option(field)) return;
    is_known = true;
    if (value != Py_None) assign(member, value, field);
  });
  if (is_known) return;
  PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R; the options are: %s",
               function, name, list_options<Options>(is_option).c_str());
  throw PythonError{};
}

// The options of a dict, which is what `function(..., **options)` of Python has.
template <class Options>
Options to_options(PyObject* dict, const char* function) {
  Options options;
  if (!PyDict_Check(dict)) {
    PyErr_Format(PyExc_TypeError, "the options of %s() must be a dict, not %R", function, dict);
    throw PythonError{};
  }
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &name, &value) != 0;) {
    set_option(options, function, name, value, AssignOption{});
  }
  return options;
}

}  // namespace deep_jit::python
