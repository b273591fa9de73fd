// SPDX-License-Identifier: MIT
//
// Arrays of any library through DLPack: `__dlpack__` and `__dlpack_device__`.
//
// The versioned protocol (1.x) is asked for first, because only it can say that an array is
// read-only; producers that do not know it are asked for the old capsule. Not for NumPy and torch,
// whose own ways are faster: see arrays.h.
//
//     ArrayAddress found = from_dlpack(state, argument, Memory::kCpu);  // found.keep calls the
//     deleter
//
// Errors: `problem` holds the reason in words; PythonError when the producer raised.
// Thread-safety: the GIL is held. A producer's deleter is called exactly once, with the GIL held.
#pragma once

#include "python/bindings/array_address.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Whether the object speaks DLPack. Throws PythonError when asking raised.
bool has_dlpack(State& state, PyObject* object);

// Takes the object's memory for as long as the result lives.
ArrayAddress from_dlpack(State& state, PyObject* object, Memory memory);

}  // namespace deep_jit::python
