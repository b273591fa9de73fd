// SPDX-License-Identifier: MIT
//
// A CUDA stream given from Python.
//
// What: the handle of an int (cudaStream_t or CUstream; 0 is the default stream), of a torch stream
// (`cuda_stream`), of an object with `__cuda_stream__` (cuda.core and others), of a CuPy stream
// (`ptr`).
// When not: the absence of a stream is the backend's to understand.
//
//     options.stream = static_cast<CUstream>(to_stream(state, argument));
//
// Errors: TypeError as PythonError for anything else.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

void* to_stream(State& state, PyObject* value);

}  // namespace deep_jit::python
