// SPDX-License-Identifier: MIT
#include "python/bindings/arrays.h"

#include <cstdlib>
#include <utility>

#include "python/bindings/buffers.h"
#include "python/bindings/dlpack.h"
#include "python/bindings/loaded_types.h"

namespace deep_jit::python {
namespace {

// NumPy's array interface, version 3
// (https://numpy.org/doc/stable/reference/arrays.interface.html). The layout is frozen: `two` is
// its check.
struct ArrayStruct {
  int two;
  int dimensions;
  char type_kind;
  int item_size;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* description;
};
constexpr int kCContiguous = 0x1;
constexpr int kAligned = 0x100;
constexpr int kNotSwapped = 0x200;
constexpr int kWriteable = 0x400;

constexpr const char* kNotContiguous =
    "is not C-contiguous; pass a contiguous copy (numpy.ascontiguousarray)";

ArrayAddress from_array_struct(PyObject* capsule) {
  auto* array = static_cast<ArrayStruct*>(PyCapsule_GetPointer(capsule, nullptr));
  if (array == nullptr) throw PythonError{};
  if (array->two != 2) return refuse_array("has an __array_struct__ of an unknown version");
  if (array->type_kind == 'O')
    return refuse_array("holds Python objects (dtype object), which no kernel can read");
  if ((array->flags & kCContiguous) == 0) return refuse_array(kNotContiguous);
  if ((array->flags & kAligned) == 0)
    return refuse_array("is not aligned for its dtype; pass a copy");
  if ((array->flags & kNotSwapped) == 0) {
    return refuse_array(
        "has a byte order that is not this machine's; pass "
        "array.astype(array.dtype.newbyteorder('='))");
  }
  return {.is_array = true,
          .address = array->data,
          .type_kind = array->type_kind,
          .item_size = static_cast<std::size_t>(array->item_size),
          .is_writeable = (array->flags & kWriteable) != 0};
}

// Whether (shape, strides in bytes, item size) is C-contiguous. `strides` may be None.
bool is_c_contiguous(const Ref& shape, const Ref& strides, Py_ssize_t item_size) {
  if (strides.get() == Py_None) return true;
  const Py_ssize_t dimensions = PyTuple_Size(shape.get());
  if (dimensions < 0 || PyTuple_Size(strides.get()) < dimensions) throw PythonError{};
  Py_ssize_t expected = item_size;
  bool contiguous = true;
  for (Py_ssize_t i = dimensions - 1; i >= 0; --i) {
    const Py_ssize_t extent = PyLong_AsSsize_t(PyTuple_GetItem(shape.get(), i));
    const Py_ssize_t stride = PyLong_AsSsize_t(PyTuple_GetItem(strides.get(), i));
    if (PyErr_Occurred() != nullptr) throw PythonError{};
    if (extent == 0) return true;
    contiguous = contiguous && (extent == 1 || stride == expected);
    expected *= extent;
  }
  return contiguous;
}

ArrayAddress from_array_interface(PyObject* interface) {
  if (!PyDict_Check(interface))
    return refuse_array("has an __array_interface__ that is not a dict");
  const auto item = [&](const char* name) {
    PyObject* value = PyDict_GetItemString(interface, name);
    return Ref::borrow(value != nullptr ? value : Py_None);
  };
  const Ref data = item("data");
  if (!PyTuple_Check(data.get()) || PyTuple_Size(data.get()) != 2) {
    return refuse_array("has an __array_interface__ without an address");
  }
  // "<f4": byte order, kind, bytes per item.
  const Ref type_text = item("typestr");
  Py_ssize_t length = 0;
  const char* type =
      PyUnicode_Check(type_text.get()) ? PyUnicode_AsUTF8AndSize(type_text.get(), &length) : "";
  if (type == nullptr) throw PythonError{};
  if (length < 3) return refuse_array("has an __array_interface__ without a typestr");
  if (type[1] == 'O')
    return refuse_array("holds Python objects (dtype object), which no kernel can read");
  if (type[0] == '>') return refuse_array("has a byte order that is not this machine's");
  // Digits may be followed by a unit ("<M8[ns]"); a 'U' item is counted in characters of 4 bytes.
  const Py_ssize_t item_size = std::strtol(type + 2, nullptr, 10) * (type[1] == 'U' ? 4 : 1);
  const Ref shape = item("shape");
  if (!PyTuple_Check(shape.get()))
    return refuse_array("has an __array_interface__ without a shape");
  if (!is_c_contiguous(shape, item("strides"), item_size)) return refuse_array(kNotContiguous);
  void* address = PyLong_AsVoidPtr(PyTuple_GetItem(data.get(), 0));
  if (address == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
  const int is_read_only = PyObject_IsTrue(PyTuple_GetItem(data.get(), 1));
  if (is_read_only < 0) throw PythonError{};
  return {.is_array = true,
          .address = address,
          .type_kind = type[1],
          .item_size = static_cast<std::size_t>(item_size),
          .is_writeable = is_read_only == 0};
}

Ref call(PyObject* object, PyObject* method) {
  return checked(PyObject_CallMethodObjArgs(object, method, nullptr));
}

// NumPy's letter and item size of a tensor's dtype, kept in one integer per dtype: asking the
// tensor takes three calls, the dict one look-up.
std::pair<char, std::size_t> tensor_type(State& state, PyObject* tensor) {
  const Ref dtype = checked(PyObject_GetAttr(tensor, state.name_dtype));
  PyObject* known = PyDict_GetItemWithError(state.tensor_dtypes, dtype.get());
  if (known == nullptr) {
    if (PyErr_Occurred() != nullptr) throw PythonError{};
    const bool is_float =
        is_true(checked(PyObject_CallMethod(tensor, "is_floating_point", nullptr)));
    const bool is_complex = is_true(checked(PyObject_CallMethod(tensor, "is_complex", nullptr)));
    const Ref size = checked(PyObject_CallMethod(tensor, "element_size", nullptr));
    const long bytes = PyLong_AsLong(size.get());
    if (bytes < 0) throw PythonError{};
    const Ref packed = checked(PyLong_FromLong(bytes * 256 + (is_float     ? 'f'
                                                              : is_complex ? 'c'
                                                                           : 'i')));
    if (PyDict_SetItem(state.tensor_dtypes, dtype.get(), packed.get()) != 0) throw PythonError{};
    known = packed.get();  // the dict keeps it alive
  }
  const long packed = PyLong_AsLong(known);
  return {static_cast<char>(packed % 256), static_cast<std::size_t>(packed / 256)};
}

ArrayAddress from_tensor(State& state, PyObject* tensor) {
  if (!is_true(checked(PyObject_GetAttr(tensor, state.name_is_cpu)))) {
    return refuse_array(
        "is a tensor on another device; a kernel of the host backend needs it on the CPU "
        "(tensor.cpu())");
  }
  if (!is_true(call(tensor, state.name_is_contiguous))) {
    return refuse_array("is not C-contiguous; pass tensor.contiguous()");
  }
  const auto [type_kind, item_size] = tensor_type(state, tensor);
  // A lazily conjugated or negated view: its memory holds other numbers than the tensor shows.
  if (is_true(call(tensor, state.name_is_neg)) ||
      (type_kind == 'c' && is_true(call(tensor, state.name_is_conj)))) {
    return refuse_array(
        "is a lazy conjugate or negative view; pass tensor.resolve_conj().resolve_neg()");
  }
  const Ref pointer = call(tensor, state.name_data_ptr);
  void* address = PyLong_AsVoidPtr(pointer.get());
  if (address == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
  return {.is_array = true, .address = address, .type_kind = type_kind, .item_size = item_size};
}

}  // namespace

ArrayAddress find_array(State& state, PyObject* object) {
  if (is_ndarray(state, object)) {
    return from_array_struct(checked(PyObject_GetAttr(object, state.name_array_struct)).get());
  }
  if (is_tensor(state, object)) {
    return from_tensor(state, object);
  }
  // A NumPy scalar has these attributes too, but they describe a temporary that is gone when they
  // return.
  if (is_numpy_scalar(state, object)) return {};
  if (const Ref capsule = optional_attribute(object, state.name_array_struct)) {
    return from_array_struct(capsule.get());
  }
  if (const Ref interface = optional_attribute(object, state.name_array_interface)) {
    return from_array_interface(interface.get());
  }
  if (has_dlpack(state, object)) return from_dlpack(state, object, Memory::kCpu);
  if (optional_attribute(object, state.name_cuda_array_interface)) {
    return refuse_array("lives on a CUDA device; a kernel of the host backend needs it on the CPU");
  }
  return from_buffer(object);
}

bool is_array(State& state, PyObject* object) {
  if (is_ndarray(state, object) || is_tensor(state, object)) return true;
  if (is_numpy_scalar(state, object)) return false;
  return optional_attribute(object, state.name_array_struct) ||
         optional_attribute(object, state.name_array_interface) || has_dlpack(state, object) ||
         optional_attribute(object, state.name_cuda_array_interface);
}

}  // namespace deep_jit::python
