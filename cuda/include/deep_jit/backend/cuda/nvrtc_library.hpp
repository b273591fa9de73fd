// SPDX-License-Identifier: MIT
//
// cuda::NvrtcLibrary: libnvrtc, opened when it is first needed and never linked.
//
// What: the few functions of NVRTC's C interface that the backend calls, declared here, so that
// <cuda.h> stays the only header of CUDA that is needed. libnvrtc opens its builtins by name only;
// those beside it are opened first, so that neither a missing RUNPATH (wheels have none) nor an
// LD_LIBRARY_PATH of another CUDA matters.
// When not: which libnvrtc is used is found out by nvrtc_location.hpp.
//
// Example:
//     const NvrtcLibrary& library = NvrtcLibrary::open("/usr/local/cuda/lib64/libnvrtc.so.13");
//     library.describe(library.api().nvrtcCompileProgram(program, 0, nullptr));
//
// Errors: exception::Exception when the file cannot be opened or lacks a function; the next call
// tries again.
// Thread-safety: all of it. A library that was opened stays open.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <format>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"

namespace deep_jit::cuda {

// --- NVRTC's interface, as far as it is used ---

using NvrtcProgram = struct NvrtcProgramOpaque*;
using NvrtcResult = int;  // An enum there.

inline constexpr NvrtcResult kNvrtcSuccess = 0;
inline constexpr NvrtcResult kNvrtcCancelled = 16;  // The flow callback said so.

struct NvrtcApi {
  NvrtcResult (*nvrtcVersion)(int* major, int* minor);
  NvrtcResult (*nvrtcGetNumSupportedArchs)(int* count);
  NvrtcResult (*nvrtcGetSupportedArchs)(int* archs);
  const char* (*nvrtcGetErrorString)(NvrtcResult result);
  NvrtcResult (*nvrtcCreateProgram)(NvrtcProgram* program, const char* source, const char* name,
                                    int num_headers, const char* const* headers,
                                    const char* const* include_names);
  NvrtcResult (*nvrtcDestroyProgram)(NvrtcProgram* program);
  NvrtcResult (*nvrtcCompileProgram)(NvrtcProgram program, int num_options,
                                     const char* const* options);
  NvrtcResult (*nvrtcGetProgramLogSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetProgramLog)(NvrtcProgram program, char* log);
  NvrtcResult (*nvrtcGetCUBINSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetCUBIN)(NvrtcProgram program, char* cubin);
  NvrtcResult (*nvrtcGetPTXSize)(NvrtcProgram program, std::size_t* size);
  NvrtcResult (*nvrtcGetPTX)(NvrtcProgram program, char* ptx);
  // Null in libraries before 12.8.
  NvrtcResult (*nvrtcSetFlowCallback)(NvrtcProgram program, int (*callback)(void*, void*),
                                      void* payload);
};

// --- The library ---

class NvrtcLibrary {
 public:
  static const NvrtcLibrary& open(const std::filesystem::path& file);

  const NvrtcApi& api() const { return api_; }
  const std::filesystem::path& file() const { return file_; }

  // "13.0".
  std::string version() const { return std::format("{}.{}", major_, minor_); }

  // Compute capabilities without suffix: 75, 80, 90, ...
  const std::vector<int>& architectures() const { return architectures_; }

  // "NVRTC_ERROR_COMPILATION (6)".
  std::string describe(NvrtcResult result) const {
    return std::format("{} ({})", api_.nvrtcGetErrorString(result), result);
  }

 private:
  explicit NvrtcLibrary(const std::filesystem::path& file);

  std::filesystem::path file_;
  NvrtcApi api_{};
  int major_ = 0;
  int minor_ = 0;
  std::vector<int> architectures_;
};

// --- Inline implementations ---

inline NvrtcLibrary::NvrtcLibrary(const std::filesystem::path& file) : file_(file) {
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    DJ_PANIC("cannot open NVRTC: {}", reason == nullptr ? file.c_str() : reason);
  }
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  };
#define DJ_NVRTC_FIND(name)    \
  if (!find(api_.name, #name)) \
  DJ_PANIC("{} is no NVRTC of CUDA 12 or newer: no {}", file.string(), #name)
  DJ_NVRTC_FIND(nvrtcVersion);
  DJ_NVRTC_FIND(nvrtcGetNumSupportedArchs);
  DJ_NVRTC_FIND(nvrtcGetSupportedArchs);
  DJ_NVRTC_FIND(nvrtcGetErrorString);
  DJ_NVRTC_FIND(nvrtcCreateProgram);
  DJ_NVRTC_FIND(nvrtcDestroyProgram);
  DJ_NVRTC_FIND(nvrtcCompileProgram);
  DJ_NVRTC_FIND(nvrtcGetProgramLogSize);
  DJ_NVRTC_FIND(nvrtcGetProgramLog);
  DJ_NVRTC_FIND(nvrtcGetCUBINSize);
  DJ_NVRTC_FIND(nvrtcGetCUBIN);
  DJ_NVRTC_FIND(nvrtcGetPTXSize);
  DJ_NVRTC_FIND(nvrtcGetPTX);
#undef DJ_NVRTC_FIND
  find(api_.nvrtcSetFlowCallback, "nvrtcSetFlowCallback");

  int count = 0;
  if (api_.nvrtcVersion(&major_, &minor_) != kNvrtcSuccess ||
      api_.nvrtcGetNumSupportedArchs(&count) != kNvrtcSuccess) {
    DJ_PANIC("{} does not tell its version", file.string());
  }
  architectures_.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (api_.nvrtcGetSupportedArchs(architectures_.data()) != kNvrtcSuccess) architectures_.clear();
  // When it is not there, or broken, NVRTC says so itself if it cannot find another.
  const auto builtins = file.parent_path() / ("libnvrtc-builtins.so." + version());
  ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
}

inline const NvrtcLibrary& NvrtcLibrary::open(const std::filesystem::path& file) {
  struct Libraries {
    std::mutex mutex;
    std::map<std::filesystem::path, std::unique_ptr<const NvrtcLibrary>> opened;
  };
  static Libraries* const libraries = new Libraries();  // Threads may compile at exit.
  const std::lock_guard lock(libraries->mutex);
  auto& library = libraries->opened[file];
  if (library == nullptr) library.reset(new NvrtcLibrary(file));
  return *library;
}

}  // namespace deep_jit::cuda
