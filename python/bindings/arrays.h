// SPDX-License-Identifier: MIT
//
// Finds the address of an array's first element in the CPU's memory, or says why a kernel cannot
// use it. For GPU memory see cuda_arrays.h.
//
// NumPy is asked through `__array_struct__` (the C side of its array interface: one capsule, no
// dict), torch through its tensor methods; neither library is imported or linked: their types are
// taken from sys.modules when one of their objects is met. Other libraries are asked for the array
// interface, then for DLPack (dlpack.h), then for the buffer protocol (buffers.h).
//
//     const ArrayAddress found = find_array(state, argument);
//     if (found.is_array && found.problem.empty()) use(found.address);
//
// Errors: `problem` holds the reason in words; PythonError when a property of the argument raised.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/array_address.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

ArrayAddress find_array(State& state, PyObject* object);

// Whether the object is an array of some library, and so no scalar although it may have __index__.
// Exports nothing, and does not count what has only the buffer protocol.
bool is_array(State& state, PyObject* object);

}  // namespace deep_jit::python
