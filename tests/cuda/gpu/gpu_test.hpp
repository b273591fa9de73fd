// SPDX-License-Identifier: MIT
//
// What the tests on a real GPU share: device memory, the runtime, a kernel and its check.
//
// What: `jit` compiles into a folder that is removed when the program ends. When not: what can be
// seen without a GPU is tested by the other files of tests/cuda.
//
// Errors: a driver call that fails is an exception. Thread-safety: a Buffer belongs to one thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/cuda/backend.hpp"
#include "deep_jit/base/unique_name.hpp"

namespace deep_jit::testing {

using cuda::Dim3;
using cuda::Kernel;
using cuda::LaunchOptions;
using cuda::driver::get_cuda_handle;

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAlloc)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemFree)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemcpyDtoH)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemcpyHtoD)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemsetD8)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSynchronize)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSetCurrent)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamCreate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamDestroy)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamSynchronize)

// --- Kernels ---

inline constexpr char kScale[] = R"(
__global__ void scale(float* out, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factor * x[i];
})";

inline constexpr char kEmpty[] = "extern \"C\" __global__ void empty() {}";

// --- Device memory ---

// Holds 0xff bytes at first.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemAlloc(&address_, count * sizeof(T)));
    DJ_CUDA_DRIVER_CHECK(
        lazy_cuMemsetD8(address_, static_cast<unsigned char>(0xff), count * sizeof(T)));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemcpyHtoD(address_, values.data(), count_ * sizeof(T)));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { lazy_cuMemFree(address_); }

  T* get() const { return reinterpret_cast<T*>(address_); }

  // Waits for the kernels before.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemcpyDtoH(values.data(), address_, count_ * sizeof(T)));
    return values;
  }

 private:
  std::size_t count_;
  CUdeviceptr address_ = 0;
};

// --- The runtime ---

inline std::filesystem::path scratch() {
  struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / unique_name();
    Folder() { std::filesystem::create_directory(path); }
    ~Folder() { safe_remove_all(path); }
  };
  static const Folder folder;
  return folder.path;
}

inline Config config() {
  return Config(scratch(), "GPUTEST", "", {}, {}, "", {scratch() / "cache"});
}

inline auto jit = create_lazy_jit<CUDA>(config());

// Makes the device's context current for this thread, as libcudart would.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DJ_CUDA_DRIVER_CHECK(
        lazy_cuCtxSetCurrent(cuda::primary_context(cuda::driver::api(), jit->device.get_index())));
  }
};

// Launches kScale over a million floats and looks at all of them.
inline void launch_scale(const std::shared_ptr<Kernel>& kernel,
                         const LaunchOptions& overrides = {}) {
  constexpr int kCount = 1 << 20;
  std::vector<float> x(kCount);
  std::vector<float> wanted(kCount);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i);
    wanted[i] = 2 * x[i];
  }
  const Buffer<float> in(x);
  const Buffer<float> out(x.size());
  const LaunchOptions options{.grid_dim = Dim3(kCount / 256), .block_dim = Dim3(256)};
  jit->launch(kernel, options.override_with(overrides), out.get(),
              static_cast<const float*>(in.get()), 2.0f, kCount);
  EXPECT_TRUE(out.read() == wanted);
}

}  // namespace deep_jit::testing
