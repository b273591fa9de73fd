// SPDX-License-Identifier: MIT
#include "python/bindings/cuda_runtime_type.h"

#include "deep_jit/backend/cuda/backend.hpp"

#include "python/bindings/cuda_kernel_type.h"
#include "python/bindings/runtime_binding.h"

namespace deep_jit::python {

void add_cuda_runtime_type(PyObject* module, State& state) {
  Ref type = RuntimeBinding<CUDA>::make_type(module, "deep_jit._core.CudaRuntime");
  if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
    throw PythonError{};
  state.cuda_runtime_type = type.release();
}

}  // namespace deep_jit::python
