// SPDX-License-Identifier: MIT
//
// cuda::Device: the GPU that a runtime works with.
//
// What: the device of the thread's current context at the first question, or device 0 when the
// thread has none. Making a Device touches nothing; asking initialises the driver but makes no
// context. The answers are remembered.
// When not: launches go to the context that is current then, whatever Device says.
//
// Example:
//     cuda::Device device;
//     device.get_arch();       // "90a"
//     device.get_num_sms();    // 132
//
// Errors: exception::Exception without a driver or a GPU, and for a driver call that fails.
// Thread-safety: all of it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "deep_jit/backend/cuda/context.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/device_properties.hpp"
#include "deep_jit/backend/cuda/driver.hpp"
#include "deep_jit/base/exception.hpp"

#if DJ_CUDA_HAS_RUNTIME_HEADERS && __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define DJ_CUDA_HAS_RUNTIME_API 1
#else
#define DJ_CUDA_HAS_RUNTIME_API 0
#endif

namespace deep_jit::cuda {
inline namespace DJ_CUDA_TYPES {

class Device {
 public:
  // cudaDeviceProp where CUDA's runtime headers are there; see device_properties.hpp.
  const DeviceProperties& get_prop() const { return state().properties; }

  int get_num_sms() const { return get_prop().multiProcessorCount; }
  int get_num_l2_cache_bytes() const { return get_prop().l2CacheSize; }

  // What a block may ask for at most.
  int get_num_smem_bytes() const { return static_cast<int>(get_prop().sharedMemPerBlockOptin); }

  // In Hz.
  std::int64_t get_clock_rate() const { return state().clock_rate; }

  int get_arch_major() const { return get_prop().major; }
  int get_arch_minor() const { return get_prop().minor; }
  std::pair<int, int> get_arch_pair() const { return {get_arch_major(), get_arch_minor()}; }

  // As in nvcc's `sm_<arch>`: "80", "90a", "100f"; with `use_arch_family` false "100a" for the
  // latter, which runs on that very kind of GPU only; with `number_only` "100".
  std::string get_arch(bool use_arch_family = true, bool number_only = false) const;

  // The driver's ordinal.
  int get_index() const { return state().device; }

  // Makes a context of this device current for the calling thread, unless it has one: for worker
  // threads that load kernels.
  [[nodiscard]] ContextScope enter() const;

 private:
  struct State {
    CUdevice device = 0;
    DeviceProperties properties{};
    std::int64_t clock_rate = 0;
  };

  const State& state() const;

  mutable std::mutex mutex_;
  mutable std::unique_ptr<const State> state_;  // Set once.
};

#if DJ_CUDA_HAS_RUNTIME_API

// For code that calls libcudart itself, and links it; the backend does not.
inline void check_cuda_runtime(cudaError_t result, const char* expression) {
  if (result == cudaSuccess) [[likely]]
    return;
  DJ_PANIC("CUDA runtime call failed: {}: {} ({}): {}", expression, cudaGetErrorName(result),
           static_cast<int>(result), cudaGetErrorString(result));
}

#ifndef DJ_CUDA_RUNTIME_CHECK
#define DJ_CUDA_RUNTIME_CHECK(expr) ::deep_jit::cuda::check_cuda_runtime((expr), #expr)
#endif

#endif

// --- Inline implementations ---

inline std::string Device::get_arch(bool use_arch_family, bool number_only) const {
  const auto [major, minor] = get_arch_pair();
  std::string arch = std::to_string(major * 10 + minor);
  if (number_only || major < 9) return arch;  // Older ones have no variants.
  // Families begin with Blackwell.
  return arch + (use_arch_family && major >= 10 ? 'f' : 'a');
}

inline ContextScope Device::enter() const {
  const auto& api = driver::api();
  const CUdevice device = state().device;
  if (try_current_device(api) == device) return {};
  return ContextScope(api, primary_context(api, device));
}

inline auto Device::state() const -> const State& {
  const std::lock_guard lock(mutex_);
  if (state_ == nullptr) {
    const auto& api = driver::api();
    auto asked = std::make_unique<State>();
    if (const auto current = try_current_device(api)) {
      asked->device = *current;
    } else {
      int count = 0;
      DJ_CUDA_DRIVER_CHECK(api.cuDeviceGetCount(&count));
      if (count == 0) {
        DJ_PANIC("there is no CUDA device: the driver counts 0; see CUDA_VISIBLE_DEVICES");
      }
      DJ_CUDA_DRIVER_CHECK(api.cuDeviceGet(&asked->device, 0));
    }
    asked->properties = query_properties(api, asked->device);
    int kilohertz = 0;
    DJ_CUDA_DRIVER_CHECK(
        api.cuDeviceGetAttribute(&kilohertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, asked->device));
    asked->clock_rate = std::int64_t{kilohertz} * 1000;
    state_ = std::move(asked);
  }
  return *state_;
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
