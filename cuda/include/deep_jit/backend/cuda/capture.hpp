// SPDX-License-Identifier: MIT
//
// No cold compile or load while a graph is being recorded.
//
// What: loading code is not something that a stream capture allows: the driver would refuse it and
// spoil the capture, far from its cause. refuse_during_capture() finds out first, and says which
// kernel it was. The capture stays valid.
// When not: a kernel that is loaded already can be launched into a capture.
//
// Example:
//     refuse_during_capture("compile", "gemm");
//
// Errors: exception::LaunchError when torch's current stream, or a stream that the default stream
// waits for, is capturing. Other non-blocking streams cannot be seen; there the driver's own error
// comes.
// Thread-safety: about the calling thread. Opens no driver and makes no context.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "deep_jit/backend/cuda/context.hpp"
#include "deep_jit/backend/cuda/driver.hpp"
#include "deep_jit/backend/cuda/torch_stream.hpp"
#include "deep_jit/base/exception.hpp"

namespace deep_jit::cuda {

// `what`: "compile" or "load".
void refuse_during_capture(std::string_view what, std::string_view kernel_name);

// The name of the first kernel that a source defines, for error texts; empty when it finds none.
std::string find_kernel_name(std::string_view source);

// --- Inline implementations ---

inline void refuse_during_capture(std::string_view what, std::string_view kernel_name) {
  const driver::Api* const api = driver::try_loaded_api();
  if (api == nullptr) return;
  const auto device = try_current_device(*api);
  if (!device) return;  // No context, no capture.
  if (!is_capturing(*api, try_torch_stream(*device).value_or(nullptr))) return;
  DJ_THROW(exception::LaunchError,
           "cannot {} kernel `{}` while a stream records a CUDA graph: compile and load it before "
           "the capture begins, for example by a first launch",
           what, kernel_name);
}

inline std::string find_kernel_name(std::string_view source) {
  const auto skip_blanks = [&source] {
    source.remove_prefix(std::min(source.find_first_not_of(" \t\r\n"), source.size()));
  };
  const auto take_word = [&] {
    skip_blanks();
    std::size_t size = 0;
    const auto is_part = [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    while (size < source.size() && is_part(source[size])) ++size;
    const std::string_view word = source.substr(0, size);
    source.remove_prefix(size);
    return word;
  };
  constexpr std::string_view kMark = "__global__";
  const std::size_t at = source.find(kMark);
  if (at == source.npos) return "";
  source.remove_prefix(at + kMark.size());
  for (std::string_view word = take_word(); !word.empty(); word = take_word()) {
    if (word != "__launch_bounds__" && word != "__cluster_dims__") {
      skip_blanks();
      if (source.starts_with('(')) return std::string(word);
      continue;
    }
    source.remove_prefix(std::min(source.find(')'), source.size() - 1) + 1);
  }
  return "";
}

}  // namespace deep_jit::cuda
