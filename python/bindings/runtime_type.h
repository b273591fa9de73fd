// SPDX-License-Identifier: MIT
//
// deep_jit._core.HostRuntime: the runtime of the host backend (runtime_binding.h).
//
// Errors: PythonError.
// Thread-safety: the GIL is held.
#pragma once

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Makes the types HostRuntime and CacheInfo, and adds them to `module`. Throws PythonError.
void add_runtime_types(PyObject* module, State& state);

}  // namespace deep_jit::python
