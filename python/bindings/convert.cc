// SPDX-License-Identifier: MIT
#include "python/bindings/convert.h"

namespace deep_jit::python {
namespace {

void require_str(PyObject* text, const char* what) {
  if (PyUnicode_Check(text)) return;
  const Ref type{PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(text)), "__name__")};
  if (type) PyErr_Format(PyExc_TypeError, "%s must be str, not %S", what, type.get());
  throw PythonError{};
}

template <class Convert>
auto convert_list(PyObject* sequence, const char* what, Convert convert) {
  std::vector<decltype(convert(sequence, what))> result;
  // A str is a sequence of str too: one flag given without a list would become one flag per letter.
  if (PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
    PyErr_Format(PyExc_TypeError, "%s must be a sequence of str, not one str", what);
    throw PythonError{};
  }
  const Ref items = checked(PySequence_List(sequence));
  const Py_ssize_t size = PyList_Size(items.get());
  result.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    result.push_back(convert(PyList_GetItem(items.get(), i), what));
  return result;
}

}  // namespace

std::string to_utf8(PyObject* text, const char* what) {
  require_str(text, what);
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw PythonError{};
  return {data, static_cast<std::size_t>(size)};
}

std::string to_native(PyObject* text, const char* what) {
  require_str(text, what);
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
  return convert_list(sequence, what, to_native);
}

std::vector<std::string> to_utf8_list(PyObject* sequence, const char* what) {
  return convert_list(sequence, what, to_utf8);
}

std::vector<std::filesystem::path> to_path_list(PyObject* sequence, const char* what) {
  return convert_list(sequence, what, to_path);
}

bool to_bool(PyObject* value, const char* what) {
  if (value == Py_True) return true;
  if (value == Py_False) return false;
  PyErr_Format(PyExc_TypeError, "%s must be True, False or None, not %R", what, value);
  throw PythonError{};
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
