// SPDX-License-Identifier: MIT
//
// The CUDA driver: libcuda.so.1, opened when it is first needed and never linked.
//
// What: api() is the table of the entry points that this backend uses, each looked up once; whoever
// is on the launch path keeps the table's address. The `lazy_cu*` functions are for code that wants
// an entry point by itself, each looked up at its first call. <cuda.h> is all that is needed to
// compile; nothing of libcudart is used.
// When not: code that must work without a driver too asks try_loaded_api(), which does not throw.
//
// Example:
//     int count = 0;
//     DJ_CUDA_DRIVER_CHECK(cuda::driver::api().cuDeviceGetCount(&count));
//
// Errors: exception::Exception: without a driver, or with one that is too old (12.4 is needed), and
// for a result other than CUDA_SUCCESS: the expression, the code, its name and its text. A failure
// is not remembered.
// Thread-safety: all of it.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <format>
#include <string>

#include "deep_jit/backend/cuda/lazy_symbol.hpp"
#include "deep_jit/base/exception.hpp"

static_assert(CUDA_VERSION >= 12040,
              "deep_jit needs the <cuda.h> of CUDA 12.4 or newer on the include path");

namespace deep_jit::cuda::driver {

inline constexpr char kDriverLibrary[] = "libcuda.so.1";

// --- The table ---

// Names that <cuda.h> maps to versioned ones are mapped here too, and where they are used.
#define DJ_CUDA_DRIVER_FUNCTIONS(F) \
  F(cuInit)                         \
  F(cuGetErrorName)                 \
  F(cuGetErrorString)               \
  F(cuDeviceGet)                    \
  F(cuDeviceGetCount)               \
  F(cuDeviceGetName)                \
  F(cuDeviceGetUuid)                \
  F(cuDeviceGetAttribute)           \
  F(cuDeviceTotalMem)               \
  F(cuDevicePrimaryCtxRetain)       \
  F(cuCtxGetCurrent)                \
  F(cuCtxGetDevice)                 \
  F(cuCtxGetId)                     \
  F(cuCtxPushCurrent)               \
  F(cuCtxPopCurrent)                \
  F(cuStreamGetCtx)                 \
  F(cuStreamIsCapturing)            \
  F(cuLibraryLoadFromFile)          \
  F(cuLibraryUnload)                \
  F(cuLibraryGetKernelCount)        \
  F(cuLibraryEnumerateKernels)      \
  F(cuKernelGetName)                \
  F(cuKernelGetFunction)            \
  F(cuKernelGetParamInfo)           \
  F(cuKernelGetAttribute)           \
  F(cuFuncGetAttribute)             \
  F(cuFuncSetAttribute)             \
  F(cuFuncLoad)                     \
  F(cuLaunchKernelEx)

struct Api {
#define DJ_CUDA_DRIVER_MEMBER(name) decltype(&::name) name;
  DJ_CUDA_DRIVER_FUNCTIONS(DJ_CUDA_DRIVER_MEMBER)
#undef DJ_CUDA_DRIVER_MEMBER
};

// The table, with the driver initialised.
const Api& api();

// The table if something in this process has opened the driver already; else null. Initialises
// nothing: where that has not been done, the driver's functions say CUDA_ERROR_NOT_INITIALIZED.
const Api* try_loaded_api();

// The handle of libcuda.so.1 as of dlopen(3).
void* get_cuda_handle();

// --- Results ---

// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
std::string describe(CUresult result);

void check_cuda_driver(CUresult result, const char* expression);

#ifndef DJ_CUDA_DRIVER_CHECK
#define DJ_CUDA_DRIVER_CHECK(expr) ::deep_jit::cuda::driver::check_cuda_driver((expr), #expr)
#endif

// --- Inline implementations ---

namespace detail {

inline Api load_api() {
  void* const handle = get_cuda_handle();
  Api table{};
  const auto find = [handle](const char* name) {
    void* const address = ::dlsym(handle, name);
    if (address == nullptr) {
      DJ_PANIC(
          "the NVIDIA driver is too old: {} has no {}; install a driver for CUDA 12.4 or newer "
          "(550 or newer)",
          kDriverLibrary, name);
    }
    return address;
  };
#define DJ_CUDA_DRIVER_FIND(name) \
  table.name = reinterpret_cast<decltype(&::name)>(find(DJ_STRINGIFY(name)));
  DJ_CUDA_DRIVER_FUNCTIONS(DJ_CUDA_DRIVER_FIND)
#undef DJ_CUDA_DRIVER_FIND
  return table;
}

inline const Api& loaded_api() {
  static const Api table = load_api();
  return table;
}

}  // namespace detail

inline void* get_cuda_handle() {
  static void* const handle = [] {
    void* const opened = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      const char* const reason = ::dlerror();
      DJ_PANIC(
          "there is no NVIDIA driver: {}; install one, or, in a container, give it the GPU "
          "(docker run --gpus all)",
          reason == nullptr ? std::string("failed to load ") + kDriverLibrary : reason);
    }
    return opened;
  }();
  return handle;
}

inline const Api& api() {
  static const Api& table = [&]() -> const Api& {
    const Api& loaded = detail::loaded_api();
    if (const CUresult result = loaded.cuInit(0); result != CUDA_SUCCESS) {
      DJ_PANIC("the NVIDIA driver could not be initialised: cuInit: {}", describe(result));
    }
    return loaded;
  }();
  return table;
}

inline const Api* try_loaded_api() {
  void* const loaded = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  ::dlclose(loaded);
  try {
    return &detail::loaded_api();
  } catch (const exception::Exception&) {
    return nullptr;
  }
}

inline std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  try {
    const Api& table = detail::loaded_api();
    table.cuGetErrorName(result, &name);
    table.cuGetErrorString(result, &text);
  } catch (const exception::Exception&) {
    // Without a driver there is only the number.
  }
  return std::format("{} ({}): {}", name == nullptr ? "unknown CUDA error" : name,
                     static_cast<int>(result), text == nullptr ? "no description" : text);
}

inline void check_cuda_driver(CUresult result, const char* expression) {
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  DJ_PANIC("CUDA driver call failed: {}: {}", expression, describe(result));
}

// --- One by one ---

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGetErrorName)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGetErrorString)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDeviceGet)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDeviceGetAttribute)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuFuncSetAttribute)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLaunchKernelEx)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuTensorMapEncodeTiled)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryLoadFromFile)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryUnload)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryGetKernelCount)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryEnumerateKernels)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuKernelGetFunction)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamBatchMemOp)
// Virtual memory.
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAddressFree)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAddressReserve)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemCreate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemExportToShareableHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAccess)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAddressRange)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAllocationGranularity)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetAllocationPropertiesFromHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemGetHandleForAddressRange)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemImportFromShareableHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemMap)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemRelease)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemRetainAllocationHandle)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemSetAccess)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemUnmap)

}  // namespace deep_jit::cuda::driver
