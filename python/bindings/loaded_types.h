// SPDX-License-Identifier: MIT
//
// Types of modules that the program has imported itself: NumPy, torch, CuPy.
//
// An object of theirs cannot be met before they are imported: they are looked for in sys.modules,
// and never imported. A type that was found is kept in State.
//
//     if (is_tensor(state, object)) ...
//
// Errors: PythonError where an attribute raised something else than AttributeError.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

bool is_ndarray(State& state, PyObject* object);       // numpy.ndarray
bool is_numpy_scalar(State& state, PyObject* object);  // numpy.float32(1), a field of an array, ...
bool is_tensor(State& state, PyObject* object);        // torch.Tensor
bool is_cupy_array(State& state, PyObject* object);    // cupy.ndarray

// The attribute, or null when there is none; other errors are passed on.
Ref optional_attribute(PyObject* object, PyObject* name);

// bool(value) of something that is none.
bool is_true(const Ref& value);

}  // namespace deep_jit::python
