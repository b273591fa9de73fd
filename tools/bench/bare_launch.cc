// SPDX-License-Identifier: MIT
//
// The driver's own launch, for cuda_python_bench.py to measure in its own process: a library that
// ctypes loads.
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>

namespace {

template <class F>
F find(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<F>(::dlsym(driver, name));
}

CUfunction function = nullptr;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Loads a cubin's kernel for the current context. A driver's error code, or -1 without a driver.
EXPORT int bare_load(const char* cubin, const char* kernel_name) {
  const auto load = find<decltype(&cuLibraryLoadFromFile)>("cuLibraryLoadFromFile");
  const auto get = find<decltype(&cuLibraryGetKernel)>("cuLibraryGetKernel");
  const auto get_function = find<decltype(&cuKernelGetFunction)>("cuKernelGetFunction");
  if (load == nullptr || get == nullptr || get_function == nullptr) return -1;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUresult result = load(&library, cubin, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) result = get(&kernel, library, kernel_name);
  if (result == CUDA_SUCCESS) result = get_function(&function, kernel);
  return static_cast<int>(result);
}

// Launches it `count` times with (x, n, a), one block of 32 threads, on the default stream.
// Returns nanoseconds per launch, or -1 when one failed.
EXPORT double bare_burst(int count, CUdeviceptr x, int n, float a) {
  static const auto launch = find<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    void* arguments[] = {&x, &n, &a};
    if (launch(&config, function, arguments, nullptr) != CUDA_SUCCESS) return -1;
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / count;
}

EXPORT int bare_synchronize() {
  static const auto synchronize = find<decltype(&cuCtxSynchronize)>("cuCtxSynchronize");
  return static_cast<int>(synchronize());
}
