// SPDX-License-Identifier: MIT
//
// deep_jit._core.CudaRuntime: the runtime of the CUDA backend (runtime_binding.h).
//
// Errors: PythonError.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Makes the type CudaRuntime and adds it to `module`. Throws PythonError.
void add_cuda_runtime_type(PyObject* module, State& state);

}  // namespace deep_jit::python
