// SPDX-License-Identifier: MIT
#include "python/bindings/convert.h"

#include <algorithm>
#include <limits>

namespace deep_jit::python {
namespace {

[[noreturn]] void refuse_type(PyObject* value, const char* what, const char* expected) {
  const Ref type{PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(value)), "__name__")};
  if (type) {
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %S: %R", what, expected, type.get(), value);
  }
  throw PythonError{};
}

template <class Convert>
auto convert_list(PyObject* sequence, const char* what, Convert convert) {
  std::vector<decltype(convert(sequence, what))> result;
  // A str is a sequence of str too: one flag given without a list would become one flag per letter.
  if (PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
    PyErr_Format(PyExc_TypeError, "%s must be a sequence of str, not one str: %R", what, sequence);
    throw PythonError{};
  }
  const Ref items =
      PyList_CheckExact(sequence) ? Ref::borrow(sequence) : Ref{PySequence_List(sequence)};
  if (!items) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError{};
    PyErr_Clear();
    refuse_type(sequence, what, "a sequence of str");
  }
  const Py_ssize_t size = PyList_Size(items.get());
  result.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    result.push_back(convert(PyList_GetItem(items.get(), i), what));
  return result;
}

}  // namespace

std::string to_utf8(PyObject* text, const char* what) {
  if (!PyUnicode_Check(text)) refuse_type(text, what, "str");
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw PythonError{};
  return {data, static_cast<std::size_t>(size)};
}

std::string to_native(PyObject* text, const char* what, const char* expected) {
  if (!PyUnicode_Check(text)) refuse_type(text, what, expected);
  // What is ASCII is so in every encoding of file systems, and Python keeps its UTF-8 at hand.
  Py_ssize_t length = 0;
  if (const char* const known = PyUnicode_AsUTF8AndSize(text, &length)) {
    const std::string_view view(known, static_cast<std::size_t>(length));
    if (std::ranges::all_of(view, [](char c) { return c > 0; })) return std::string(view);
  } else {
    PyErr_Clear();  // Surrogates, which stand for bytes.
  }
  const Ref bytes = checked(PyUnicode_EncodeFSDefault(text));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes.get(), &data, &size) != 0) throw PythonError{};
  std::string result(data, static_cast<std::size_t>(size));
  if (result.find('\0') != std::string::npos) {
    PyErr_Format(PyExc_ValueError, "%s must not contain a NUL character: %R", what, text);
    throw PythonError{};
  }
  return result;
}

std::filesystem::path to_path(PyObject* text, const char* what) {
  return to_native(text, what);
}

std::vector<std::string> to_native_list(PyObject* sequence, const char* what) {
  return convert_list(sequence, what,
                      [](PyObject* text, const char* name) { return to_native(text, name); });
}

std::vector<std::filesystem::path> to_path_list(PyObject* sequence, const char* what) {
  return convert_list(sequence, what, to_path);
}

bool to_bool(PyObject* value, const char* what) {
  if (value == Py_True) return true;
  if (value == Py_False) return false;
  refuse_type(value, what, "True, False or None");
}

int to_int(PyObject* value, const char* what) {
  if (!PyIndex_Check(value) || PyBool_Check(value)) refuse_type(value, what, "int or None");
  const Ref number = checked(PyNumber_Index(value));
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow != 0 || result < std::numeric_limits<int>::min() ||
      result > std::numeric_limits<int>::max()) {
    PyErr_Format(PyExc_OverflowError, "%s must fit into 32 bits, but is %R", what, value);
    throw PythonError{};
  }
  return static_cast<int>(result);
}

Ref from_native(std::string_view text) {
  return checked(
      PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

Ref from_output(std::string_view text) {
  return checked(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

Ref from_native_list(const std::vector<std::string>& texts) {
  Ref list = checked(PyList_New(0));
  for (const std::string& text : texts) {
    const Ref item = from_native(text);
    if (PyList_Append(list.get(), item.get()) != 0) throw PythonError{};
  }
  return list;
}

}  // namespace deep_jit::python
