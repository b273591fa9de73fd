// SPDX-License-Identifier: MIT
//
// Finds the address of an array's first element in memory that a GPU can reach, or says why a
// kernel cannot use it.
//
// In this order: DLPack's C interface (torch), torch's methods (older ones), CuPy's attributes,
// `__cuda_array_interface__`, DLPack. Pinned and managed memory counts as the GPU's. Arrays need
// not be contiguous: the address of the first element is passed, and strides are for the kernel to
// know. Nothing waits for a stream: a launch comes after what its own stream has been given, and
// other streams are the caller's to order.
//
//     const ArrayAddress found = find_cuda_array(state, argument);
//     if (found.is_array && found.problem.empty()) use(found.address);
//
// Errors: `problem` holds the reason in words; PythonError when a property of the argument raised.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/array_address.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

ArrayAddress find_cuda_array(State& state, PyObject* object);

}  // namespace deep_jit::python
