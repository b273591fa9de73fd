// SPDX-License-Identifier: MIT
//
// dim3, and which CUDA headers there are to take types from.
//
// What: the backend needs <cuda.h> and nothing else. Where CUDA's runtime headers are on the
// include path too, as they are for whoever compiles with nvcc, their types are used: `dim3` and
// `cudaDeviceProp` are then the ones that everybody knows. Otherwise deep_jit::cuda has its own.
// Only headers: nothing of libcudart is ever called or linked.
// Everything that shows one of these types lives in the inline namespace DJ_CUDA_TYPES, named after
// the choice: translation units that chose otherwise may be linked into one program, and what they
// instantiate does not mix. DJ_CUDA_DRIVER_HEADERS_ONLY, when defined, ignores the runtime's
// headers.
//
// Example:
//     cuda::LaunchOptions options{.grid_dim = dim3(8), .block_dim = dim3(16, 16)};
//
// Errors: none. Thread-safety: values.
#pragma once

// vector_types.h alone is not enough: in NVIDIA's wheels what it includes is another package.
#if !defined(DJ_CUDA_DRIVER_HEADERS_ONLY) && __has_include(<vector_types.h>) && \
    __has_include(<driver_types.h>) && __has_include(<crt/host_defines.h>)
#include <driver_types.h>
#include <vector_types.h>
#define DJ_CUDA_HAS_RUNTIME_HEADERS 1
#define DJ_CUDA_TYPES runtime_types
#else
#define DJ_CUDA_HAS_RUNTIME_HEADERS 0
#define DJ_CUDA_TYPES driver_types
#endif

namespace deep_jit::cuda {
inline namespace DJ_CUDA_TYPES {

#if DJ_CUDA_HAS_RUNTIME_HEADERS

using ::dim3;

#else

struct dim3 {  // NOLINT: CUDA's name.
  unsigned x;
  unsigned y;
  unsigned z;

  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#endif

using Dim3 = dim3;

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
