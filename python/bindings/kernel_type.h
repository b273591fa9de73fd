// SPDX-License-Identifier: MIT
//
// deep_jit.Kernel and deep_jit.BoundLaunch: a loaded kernel of the host backend, and how it is
// launched (kernel_binding.h).
//
// Errors: deep_jit.LaunchError.
// Thread-safety: a kernel may be launched from many threads at once; the GIL is released while it
// runs.
#pragma once

#include <memory>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/runtime/runtime.hpp"

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Makes the types Kernel, BoundLaunch and Param, and adds them to `module`. Throws PythonError.
void add_kernel_types(PyObject* module, State& state);

// A new deep_jit.Kernel. `runtime` gives the default launch options. Throws PythonError.
Ref make_kernel(State& state, std::shared_ptr<Runtime<Host>> runtime,
                std::shared_ptr<Host::Kernel> kernel);

}  // namespace deep_jit::python
