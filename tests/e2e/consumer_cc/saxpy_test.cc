// SPDX-License-Identifier: MIT
//
// What a user's program does: one kernel with a header of its own, compiled, kept and launched.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/runtime/runtime.hpp"

namespace {

constexpr const char* kSource = R"(
#include <kernels/saxpy.hpp>

extern "C" __global__ void saxpy_kernel(float* y, const float* x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = saxpy(a, x[i], y[i]);
  }
}
)";

}  // namespace

int main() {
  // A test writes nothing outside its own folder; a program leaves this to its user.
  ::setenv("CONSUMER_JIT_CACHE_DIR", std::getenv("TEST_TMPDIR"), 1);
  const std::filesystem::path root = std::filesystem::current_path();
  auto jit = deep_jit::create_lazy_jit<deep_jit::Host>(
      deep_jit::Config(root, "CONSUMER", "", {root}, {"kernels/"}));
  const auto kernel = jit->compile("saxpy", kSource);

  constexpr int kSize = 1000;
  std::vector<float> x(kSize), y(kSize);
  for (int i = 0; i < kSize; ++i) {
    x[i] = static_cast<float>(i);
    y[i] = 1.0f;
  }
  jit->launch(kernel, {.grid_dim = deep_jit::host::Dim3{4}, .block_dim = deep_jit::host::Dim3{64}},
              y.data(), x.data(), 2.0f, kSize);
  for (int i = 0; i < kSize; ++i) {
    if (y[i] != 2.0f * static_cast<float>(i) + 1.0f) {
      std::fprintf(stderr, "y[%d] is %g, expected %g\n", i, y[i], 2.0 * i + 1.0);
      return 1;
    }
  }
  if (jit->compile("saxpy", kSource) != kernel) {
    std::fprintf(stderr, "the second compile did not give the kernel in memory\n");
    return 1;
  }
  const std::filesystem::path entry = jit->compile_without_load("saxpy", kSource);
  if (!std::filesystem::exists(entry / ".committed")) {
    std::fprintf(stderr, "no committed entry in %s\n", entry.c_str());
    return 1;
  }
  return 0;
}
