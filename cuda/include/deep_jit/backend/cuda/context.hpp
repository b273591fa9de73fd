// SPDX-License-Identifier: MIT
//
// CUDA contexts: what a thread has current, and lending it one.
//
// What: primary_context() is a device's primary context, the one that libcudart and torch use,
// retained once and never released, as libcudart does. ContextScope makes a context current for a
// while and puts back what was there. is_capturing() tells whether a stream of the calling thread's
// context is known to record a graph.
// When not: a thread that has a current context keeps it; nothing here replaces it for good.
//
// Example:
//     const cuda::ContextScope scope(api, cuda::primary_context(api, device));
//
// Errors: exception::Exception for a driver call that fails.
// Thread-safety: all of it; a scope belongs to the thread that made it.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>

#include "deep_jit/backend/cuda/driver.hpp"

namespace deep_jit::cuda {

class ContextScope {
 public:
  ContextScope() = default;  // Changes nothing.
  ContextScope(const driver::Api& api, CUcontext context);
  ContextScope(ContextScope&& other) noexcept : api_(other.api_) { other.api_ = nullptr; }
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope();

 private:
  const driver::Api* api_ = nullptr;  // Null: nothing to put back.
};

CUcontext primary_context(const driver::Api& api, CUdevice device);

// The device of the calling thread's current context; nothing when it has none.
std::optional<CUdevice> try_current_device(const driver::Api& api);

// Whether `stream`, or any stream that the default stream waits for, records a graph. A
// non-blocking stream other than `stream` cannot be seen.
bool is_capturing(const driver::Api& api, CUstream stream);

// --- Inline implementations ---

inline ContextScope::ContextScope(const driver::Api& api, CUcontext context) {
  driver::check_cuda_driver(api.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  api_ = &api;
}

inline ContextScope::~ContextScope() {
  if (api_ == nullptr) return;
  CUcontext popped = nullptr;
  api_->cuCtxPopCurrent(&popped);
}

inline CUcontext primary_context(const driver::Api& api, CUdevice device) {
  static std::mutex mutex;
  static std::map<CUdevice, CUcontext> retained;
  const std::lock_guard lock(mutex);
  if (const auto found = retained.find(device); found != retained.end()) return found->second;
  CUcontext context = nullptr;
  driver::check_cuda_driver(api.cuDevicePrimaryCtxRetain(&context, device),
                            "cuDevicePrimaryCtxRetain");
  return retained.emplace(device, context).first->second;
}

inline std::optional<CUdevice> try_current_device(const driver::Api& api) {
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (api.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      api.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return device;
}

inline bool is_capturing(const driver::Api& api, CUstream stream) {
  const auto is_recording = [&api](CUstream asked) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = api.cuStreamIsCapturing(asked, &status);
    // The legacy stream answers so while a stream that it waits for is capturing.
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
  };
  return is_recording(CU_STREAM_LEGACY) || (stream != nullptr && is_recording(stream));
}

}  // namespace deep_jit::cuda
