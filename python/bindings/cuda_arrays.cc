// SPDX-License-Identifier: MIT
#include "python/bindings/cuda_arrays.h"

#include <cstdlib>
#include <format>

#include "python/bindings/dlpack.h"
#include "python/bindings/dlpack_abi.h"
#include "python/bindings/dlpack_exchange.h"
#include "python/bindings/loaded_types.h"

namespace deep_jit::python {
namespace {

constexpr const char* kOnCpu =
    "is on the CPU; a kernel of the cuda backend needs it on the GPU (tensor.cuda()), or in pinned "
    "memory";

Ref call(PyObject* object, PyObject* method) {
  return checked(PyObject_CallMethodObjArgs(object, method, nullptr));
}

void* to_address(const Ref& number) {
  void* const address = PyLong_AsVoidPtr(number.get());
  if (address == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
  return address;
}

// torch's DLPack calls pinned memory the CPU's.
bool is_pinned_tensor(State& state, PyObject* object) {
  return is_tensor(state, object) && is_true(call(object, state.name_is_pinned));
}

// A lazily conjugated or negated view of torch: its memory holds other numbers than it shows. Made
// from complex numbers only, it is complex or a strided part of them.
bool is_lazy_view(State& state, PyObject* object, const dlpack::Tensor& tensor) {
  if (tensor.type.code != dlpack::kComplex && dlpack::is_c_contiguous(tensor)) return false;
  if (!is_tensor(state, object)) return false;
  return is_true(call(object, state.name_is_neg)) || is_true(call(object, state.name_is_conj));
}

ArrayAddress from_view(State& state, PyObject* object, const dlpack::Tensor& tensor) {
  if (!dlpack::is_cuda_accessible(tensor.device.type) && !is_pinned_tensor(state, object)) {
    if (tensor.device.type == dlpack::kCpu) return refuse_array(kOnCpu);
    return refuse_array(std::format(
        "lives on DLPack device type {}; a kernel of the cuda backend needs it on a GPU (type {})",
        tensor.device.type, dlpack::kCuda));
  }
  if (is_lazy_view(state, object, tensor)) {
    return refuse_array(
        "is a lazy conjugate or negative view; pass tensor.resolve_conj().resolve_neg()");
  }
  return {.is_array = true,
          .address = static_cast<char*>(tensor.data) + tensor.byte_offset,
          .type_kind = dlpack::to_type_kind(tensor.type),
          .item_size = static_cast<std::size_t>(tensor.type.bits) * tensor.type.lanes / 8};
}

// Of a torch without DLPack's C interface.
ArrayAddress from_tensor(State& state, PyObject* tensor) {
  if (!is_true(checked(PyObject_GetAttr(tensor, state.name_is_cuda))) &&
      !is_true(call(tensor, state.name_is_pinned))) {
    return refuse_array(kOnCpu);
  }
  const Ref size = checked(PyObject_CallMethod(tensor, "element_size", nullptr));
  const bool is_float = is_true(checked(PyObject_CallMethod(tensor, "is_floating_point", nullptr)));
  const bool is_complex = is_true(checked(PyObject_CallMethod(tensor, "is_complex", nullptr)));
  return {.is_array = true,
          .address = to_address(call(tensor, state.name_data_ptr)),
          .type_kind = is_float     ? 'f'
                       : is_complex ? 'c'
                                    : 'i',
          .item_size = PyLong_AsSize_t(size.get())};
}

// "<f4": byte order, kind, bytes per item.
bool read_type(PyObject* text, ArrayAddress& found) {
  Py_ssize_t length = 0;
  const char* type = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : "";
  if (type == nullptr) throw PythonError{};
  if (length < 3) return false;
  found.type_kind = type[1];
  found.item_size = static_cast<std::size_t>(std::strtoul(type + 2, nullptr, 10));
  return true;
}

// The dict of __cuda_array_interface__ takes CuPy longer to make than a launch takes.
ArrayAddress from_cupy(State& state, PyObject* array) {
  ArrayAddress found{.is_array = true};
  const Ref memory = checked(PyObject_GetAttr(array, state.name_data));
  found.address = to_address(checked(PyObject_GetAttr(memory.get(), state.name_ptr)));
  const Ref dtype = checked(PyObject_GetAttr(array, state.name_dtype));
  const Ref text = checked(PyObject_GetAttrString(dtype.get(), "str"));
  read_type(text.get(), found);
  return found;
}

ArrayAddress from_interface(PyObject* interface) {
  if (!PyDict_Check(interface))
    return refuse_array("has a __cuda_array_interface__ that is not a dict");
  PyObject* const data = PyDict_GetItemString(interface, "data");
  if (data == nullptr || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
    return refuse_array("has a __cuda_array_interface__ without an address");
  ArrayAddress found{.is_array = true};
  found.address = to_address(Ref::borrow(PyTuple_GetItem(data, 0)));
  found.is_writeable = !is_true(Ref::borrow(PyTuple_GetItem(data, 1)));
  PyObject* const type = PyDict_GetItemString(interface, "typestr");
  if (type == nullptr || !read_type(type, found))
    return refuse_array("has a __cuda_array_interface__ without a typestr");
  return found;
}

}  // namespace

ArrayAddress find_cuda_array(State& state, PyObject* object) {
  if (const auto* const api = find_exchange_api(state, object)) {
    return from_view(state, object, view(*api, object));
  }
  if (is_tensor(state, object)) return from_tensor(state, object);
  if (is_numpy_scalar(state, object)) return {};
  if (is_ndarray(state, object)) return refuse_array(kOnCpu);
  if (is_cupy_array(state, object)) return from_cupy(state, object);
  if (const Ref interface = optional_attribute(object, state.name_cuda_array_interface)) {
    return from_interface(interface.get());
  }
  if (has_dlpack(state, object)) return from_dlpack(state, object, Memory::kCuda);
  return {};
}

}  // namespace deep_jit::python
