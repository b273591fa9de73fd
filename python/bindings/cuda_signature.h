// SPDX-License-Identifier: MIT
//
// What the parameters of a CUDA kernel take, from what its binary tells.
//
// What: the driver knows offset and size of each parameter. A C++ kernel's symbol also holds their
// types: of "scale(float*, float const*, int)" each argument becomes exactly its parameter, or is
// refused. Under `extern "C"`, and for types that are no built-in ones, only the size is known.
// When not: the Host backend's kernels bring a descriptor.
//
//     Signature signature = make_cuda_signature("scale", demangled, kernel.params());
//
// Errors: none; what cannot be read is of known size only.
// Thread-safety: a pure function.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "deep_jit/backend/cuda/kernel.hpp"

#include "python/bindings/arguments.h"

namespace deep_jit::python {

// `demangled`: the symbol as C++, with the list of parameter types if it has one.
Signature make_cuda_signature(const std::string& name, std::string_view demangled,
                              std::span<const cuda::KernelParameter> parameters);

}  // namespace deep_jit::python
