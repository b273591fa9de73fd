// SPDX-License-Identifier: MIT
//
// Everything that one import of deep_jit._core owns: exception classes, types, interned names.
//
// It lives in the module object (multi-phase initialisation), so that two interpreters of one
// process do not share Python objects. Not a place for C++ state: runtimes and kernels belong to
// their Python objects.
//
//     State& state = state_of(self);               // inside a method of one of our types
//
// Errors: none.
// Thread-safety: that of the GIL. `clear` and `traverse` are the module's.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace deep_jit::python {

struct State {
  // Exception classes, as deep_jit offers them.
  PyObject* deep_jit_error;
  PyObject* compile_error;
  PyObject* cache_error;
  PyObject* launch_error;

  // Types.
  PyObject* host_runtime_type;
  PyObject* kernel_type;
  PyObject* bound_launch_type;
  PyObject* param_type;
  PyObject* cache_info_type;
  PyObject* cuda_runtime_type;
  PyObject* cuda_kernel_type;
  PyObject* cuda_bound_launch_type;
  PyObject* cuda_param_type;
  PyObject* kernel_attributes_type;

  // Interned attribute and module names.
  PyObject* name_numpy;
  PyObject* name_torch;
  PyObject* name_item;
  PyObject* name_array_struct;
  PyObject* name_array_interface;
  PyObject* name_cuda_array_interface;
  PyObject* name_dlpack;
  PyObject* name_dlpack_device;
  PyObject* name_data_ptr;
  PyObject* name_is_cpu;
  PyObject* name_is_contiguous;
  PyObject* name_is_conj;
  PyObject* name_is_neg;
  PyObject* name_dtype;
  PyObject* name_cupy;
  PyObject* name_is_cuda;
  PyObject* name_is_pinned;
  PyObject* name_data;
  PyObject* name_ptr;
  PyObject* name_cuda_stream;           // Of torch.
  PyObject* name_cuda_stream_protocol;  // __cuda_stream__
  PyObject* name_exchange_api;

  // Types of modules that the program has imported itself; null until one of their objects is met.
  PyObject* ndarray_type;
  PyObject* numpy_scalar_type;
  PyObject* tensor_type;
  PyObject* cupy_type;
  PyObject* tensor_dtypes;  // dict: torch.dtype -> item size and kind, see arrays.cc

  // The types that were asked last for DLPack's C interface, and what they answered (or null).
  static constexpr int kExchangeTypes = 4;
  PyObject* exchange_types[kExchangeTypes];
  const void* exchange_apis[kExchangeTypes];

  // Calls `visit` with the address of each member above.
  template <class Visit>
  int for_each(Visit&& visit) {
    for (PyObject** member : {&deep_jit_error,
                              &compile_error,
                              &cache_error,
                              &launch_error,
                              &host_runtime_type,
                              &kernel_type,
                              &bound_launch_type,
                              &param_type,
                              &cache_info_type,
                              &cuda_runtime_type,
                              &cuda_kernel_type,
                              &cuda_bound_launch_type,
                              &cuda_param_type,
                              &kernel_attributes_type,
                              &name_numpy,
                              &name_torch,
                              &name_item,
                              &name_array_struct,
                              &name_array_interface,
                              &name_cuda_array_interface,
                              &name_dlpack,
                              &name_dlpack_device,
                              &name_data_ptr,
                              &name_is_cpu,
                              &name_is_contiguous,
                              &name_is_conj,
                              &name_is_neg,
                              &name_dtype,
                              &name_cupy,
                              &name_is_cuda,
                              &name_is_pinned,
                              &name_data,
                              &name_ptr,
                              &name_cuda_stream,
                              &name_cuda_stream_protocol,
                              &name_exchange_api,
                              &ndarray_type,
                              &numpy_scalar_type,
                              &tensor_type,
                              &cupy_type,
                              &tensor_dtypes}) {
      if (const int result = visit(*member); result != 0) return result;
    }
    for (PyObject*& type : exchange_types) {
      if (const int result = visit(type); result != 0) return result;
    }
    return 0;
  }
};

// The state behind an object of one of our types. None of them can be subclassed, so the object's
// own type is always the one that the module made.
inline State& state_of(PyObject* object) {
  return *static_cast<State*>(PyType_GetModuleState(Py_TYPE(object)));
}

}  // namespace deep_jit::python
