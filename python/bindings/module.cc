// SPDX-License-Identifier: MIT
//
// The module deep_jit._core: CPython limited API of 3.10, multi-phase initialisation.
//
// Importing it makes types and exceptions, nothing else: no thread, no device, no cache directory,
// no compiler.
#include "python/bindings/cuda_kernel_type.h"
#include "python/bindings/cuda_runtime_type.h"
#include "python/bindings/errors.h"
#include "python/bindings/kernel_type.h"
#include "python/bindings/object.h"
#include "python/bindings/runtime_type.h"
#include "python/bindings/state.h"

namespace deep_jit::python {
namespace {

State& state_of_module(PyObject* module) {
  return *static_cast<State*>(PyModule_GetState(module));
}

void add_names(State& state) {
  const auto intern = [](const char* text) {
    return checked(PyUnicode_InternFromString(text)).release();
  };
  state.name_numpy = intern("numpy");
  state.name_torch = intern("torch");
  state.name_item = intern("item");
  state.name_array_struct = intern("__array_struct__");
  state.name_array_interface = intern("__array_interface__");
  state.name_cuda_array_interface = intern("__cuda_array_interface__");
  state.name_dlpack = intern("__dlpack__");
  state.name_dlpack_device = intern("__dlpack_device__");
  state.name_data_ptr = intern("data_ptr");
  state.name_is_cpu = intern("is_cpu");
  state.name_is_contiguous = intern("is_contiguous");
  state.name_is_conj = intern("is_conj");
  state.name_is_neg = intern("is_neg");
  state.name_dtype = intern("dtype");
  state.name_cupy = intern("cupy");
  state.name_is_cuda = intern("is_cuda");
  state.name_is_pinned = intern("is_pinned");
  state.name_data = intern("data");
  state.name_ptr = intern("ptr");
  state.name_cuda_stream = intern("cuda_stream");
  state.name_cuda_stream_protocol = intern("__cuda_stream__");
  state.name_exchange_api = intern("__dlpack_c_exchange_api__");
  state.tensor_dtypes = checked(PyDict_New()).release();
}

int exec_module(PyObject* module) {
  State& state = state_of_module(module);
  return guarded(
      state,
      [&] {
        add_names(state);
        add_exceptions(module, state);
        add_kernel_types(module, state);
        add_runtime_types(module, state);
        add_cuda_kernel_types(module, state);
        add_cuda_runtime_type(module, state);
        return 0;
      },
      -1);
}

int traverse_module(PyObject* module, visitproc visit, void* arg) {
  return state_of_module(module).for_each(
      [&](PyObject* object) { return object != nullptr ? visit(object, arg) : 0; });
}

int clear_module(PyObject* module) {
  return state_of_module(module).for_each([](PyObject*& object) {
    Py_CLEAR(object);
    return 0;
  });
}

void free_module(void* module) {
  clear_module(static_cast<PyObject*>(module));
}

PyModuleDef_Slot kSlots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(&exec_module)},
    {0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT,
    "deep_jit._core",
    "The compiled part of deep_jit; import deep_jit instead.",
    sizeof(State),
    nullptr,
    kSlots,
    traverse_module,
    clear_module,
    free_module,
};

}  // namespace
}  // namespace deep_jit::python

PyMODINIT_FUNC PyInit__core() {
  return PyModuleDef_Init(&deep_jit::python::kModule);
}
