// SPDX-License-Identifier: MIT
#include "python/bindings/buffers.h"

#include <format>
#include <string>
#include <string_view>

// PyObject_AsReadBuffer, declared here because later headers no longer do; see buffers.h. Under
// another name in C++, because earlier ones declare it as deprecated.
extern "C" int deep_jit_as_read_buffer(PyObject* object, const void** address,
                                       Py_ssize_t* size) __asm__("PyObject_AsReadBuffer");

namespace deep_jit::python {
namespace {

bool get_bool(const Ref& view, const char* name) {
  const Ref value = checked(PyObject_GetAttrString(view.get(), name));
  return value.get() == Py_True;
}

std::string get_format(const Ref& view) {
  const Ref value = checked(PyObject_GetAttrString(view.get(), "format"));
  const char* text = PyUnicode_AsUTF8AndSize(value.get(), nullptr);
  if (text == nullptr) throw PythonError{};
  return text;
}

std::size_t get_item_size(const Ref& view) {
  const Ref value = checked(PyObject_GetAttrString(view.get(), "itemsize"));
  const Py_ssize_t size = PyLong_AsSsize_t(value.get());
  if (size < 0) throw PythonError{};
  return static_cast<std::size_t>(size);
}

bool is_one_of(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

// NumPy's letter for a format of the struct module with its byte order taken off.
char to_type_kind(std::string_view format) {
  if (format.size() == 2 && format[0] == 'Z') return 'c';
  if (format.size() != 1) return 'V';  // structs and the like
  if (is_one_of("bhilqn", format[0])) return 'i';
  if (is_one_of("cBHILQNP", format[0])) return 'u';
  if (is_one_of("efdg", format[0])) return 'f';
  if (is_one_of("uw", format[0])) return 'U';
  return format[0] == '?' ? 'b' : format[0] == 'O' ? 'O' : 'V';
}

}  // namespace

ArrayAddress from_buffer(PyObject* object, std::size_t* size) {
  Ref view{PyMemoryView_FromObject(object)};
  if (!view) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError{};
    PyErr_Clear();
    return {};
  }
  if (!get_bool(view, "c_contiguous")) {
    return refuse_array("is not C-contiguous; pass a contiguous copy");
  }
  const std::string format = get_format(view);
  std::string_view item = format;
  const char order = item.empty() ? '@' : item[0];
  if (is_one_of("@=<>!^", order)) item.remove_prefix(1);
  ArrayAddress found{.is_array = true,
                     .type_kind = to_type_kind(item),
                     .item_size = get_item_size(view),
                     .is_writeable = !get_bool(view, "readonly")};
  if (found.type_kind == 'O') {
    return refuse_array("holds Python objects, which no kernel can read");
  }
  if ((order == '>' || order == '!') && found.item_size > 1) {
    return refuse_array(
        std::format("has a byte order that is not this machine's (format '{}')", format));
  }
  const void* address = nullptr;
  Py_ssize_t bytes = 0;
  if (deep_jit_as_read_buffer(view.get(), &address, &bytes) != 0) throw PythonError{};
  // Empty ones have any address, also one that is not aligned.
  found.address = bytes > 0 ? const_cast<void*>(address) : nullptr;
  if (size != nullptr) *size = static_cast<std::size_t>(bytes);
  found.keep =
      Keep(view.release(), Release{[](void* kept) { Py_DECREF(static_cast<PyObject*>(kept)); }});
  return found;
}

}  // namespace deep_jit::python
