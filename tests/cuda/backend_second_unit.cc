// SPDX-License-Identifier: MIT
//
// Every header in a second translation unit of the program, with the types of <cuda.h> alone: what
// is not inline, or differs under the same name, would not link or not work.
#define DJ_CUDA_DRIVER_HEADERS_ONLY
#include <memory>
#include <string>

#include "deep_jit/backend/cuda/backend.hpp"

namespace deep_jit::testing {

// Compiles and launches an empty kernel; returns the name of the device.
std::string launch_from_second_unit(const Config& config) {
  auto jit = create_lazy_jit<CUDA>(config);
  const auto kernel = jit->compile("second", "__global__ void second() {}");
  jit->launch(kernel, {.grid_dim = cuda::dim3(1, 2, 3), .block_dim = cuda::dim3(4)});
  static_assert(sizeof(cuda::DeviceProperties) < 1024);
  return jit->device.get_prop().name;
}

}  // namespace deep_jit::testing
