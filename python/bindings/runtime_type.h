// SPDX-License-Identifier: MIT
//
// deep_jit._core.HostRuntime: deep_jit::Runtime<Host> behind a LazyInit, with positional methods.
//
// Users meet it through deep_jit.Runtime (python/deep_jit/_runtime.py), which has the keywords, the
// defaults and the documentation; this type only converts, releases the GIL and calls.
//
// Errors: as errors.h maps them.
// Thread-safety: all methods may be called from many threads at
// once; the C++ runtime is made by the first that needs it.
#pragma once

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Makes the types HostRuntime and CacheInfo, and adds them to `module`. Throws PythonError.
void add_runtime_types(PyObject* module, State& state);

}  // namespace deep_jit::python
