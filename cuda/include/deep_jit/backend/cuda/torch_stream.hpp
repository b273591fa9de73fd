// SPDX-License-Identifier: MIT
//
// PyTorch's current CUDA stream, if the process has PyTorch at all.
//
// What: asks libtorch_cuda.so through its stable C interface
// (aoti_torch_get_current_cuda_stream), when that library is in the process already. Nothing is
// linked, no header of torch is needed, and torch is not loaded. Until torch is there, a look costs
// some tens of nanoseconds: it is looked for again only when libraries have been loaded since.
// When not: a stream that the caller gave counts as it is, also the null stream.
//
// Example:
//     std::optional<CUstream> stream = cuda::try_torch_stream(device);  // nothing: no torch
//
// Errors: exception::LaunchError when torch is there and reports an error.
// Thread-safety: all of it. Torch's current stream belongs to the calling thread.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "deep_jit/base/exception.hpp"

namespace deep_jit::cuda {

// `device`: the ordinal, which torch's device index is too.
std::optional<CUstream> try_torch_stream(int device);

// --- Inline implementations ---

namespace detail {

// AOTITorchError (std::int32_t): 0 is success.
using TorchStreamFunction = std::int32_t(std::int32_t device_index, void** stream);

// How many libraries this process has loaded so far.
inline unsigned long long count_loaded_libraries() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;  // The first library knows the count for all.
      },
      &count);
  return count;
}

// Null without torch.
inline TorchStreamFunction* find_torch_stream_function() {
  static std::atomic<TorchStreamFunction*> known{nullptr};
  static std::atomic<unsigned long long> looked_at{0};
  if (auto* const function = known.load(std::memory_order_acquire)) return function;
  const unsigned long long libraries = count_loaded_libraries();
  if (looked_at.load(std::memory_order_relaxed) == libraries) return nullptr;
  // Not RTLD_DEFAULT: Python loads torch's libraries with RTLD_LOCAL. The handle is kept, so that
  // the function stays where it is.
  if (void* const torch = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD)) {
    auto* const function = reinterpret_cast<TorchStreamFunction*>(
        ::dlsym(torch, "aoti_torch_get_current_cuda_stream"));
    if (function != nullptr) {
      known.store(function, std::memory_order_release);
      return function;
    }
    ::dlclose(torch);
  }
  looked_at.store(libraries, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace detail

inline std::optional<CUstream> try_torch_stream(int device) {
  auto* const function = detail::find_torch_stream_function();
  if (function == nullptr) return std::nullopt;
  void* stream = nullptr;
  if (const std::int32_t error = function(device, &stream); error != 0) {
    DJ_THROW(exception::LaunchError,
             "torch could not tell its current stream of device {} (error {}): give the launch "
             "options a stream",
             device, error);
  }
  return static_cast<CUstream>(stream);
}

}  // namespace deep_jit::cuda
