// SPDX-License-Identifier: MIT
//
// deep_jit.CudaKernel and deep_jit.CudaBoundLaunch: a loaded kernel of the CUDA backend, and how it
// is launched (kernel_binding.h).
//
// Errors: deep_jit.LaunchError.
// Thread-safety: a kernel may be launched from many threads at once.
#pragma once

#include <memory>

#include "deep_jit/backend/cuda/backend.hpp"
#include "deep_jit/runtime/runtime.hpp"

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Makes the types CudaKernel, CudaBoundLaunch, CudaParam and KernelAttributes, and adds them to
// `module`. Throws PythonError.
void add_cuda_kernel_types(PyObject* module, State& state);

// A new deep_jit.CudaKernel. `runtime` gives the default launch options. Throws PythonError.
Ref make_kernel(State& state, std::shared_ptr<Runtime<CUDA>> runtime,
                std::shared_ptr<CUDA::Kernel> kernel);

}  // namespace deep_jit::python
