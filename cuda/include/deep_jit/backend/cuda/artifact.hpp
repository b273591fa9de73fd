// SPDX-License-Identifier: MIT
//
// The names of the files in a CUDA cache entry.
//
// What: the source as it was compiled, the binary, and the dumps that were asked for.
// When not: what every entry has (meta.json, .committed) is named by the runtime.
//
// Example:
//     auto cubin = directory / cuda::kCubinFileName;
//
// Errors: none. Thread-safety: constants.
#pragma once

#include <string_view>

namespace deep_jit::cuda {

inline constexpr std::string_view kSourceFileName = "kernel.cu";
inline constexpr std::string_view kCubinFileName = "kernel.cubin";
inline constexpr std::string_view kPtxFileName = "kernel.ptx";
inline constexpr std::string_view kSassFileName = "kernel.sass";

}  // namespace deep_jit::cuda
