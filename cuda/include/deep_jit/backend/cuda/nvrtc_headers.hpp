// SPDX-License-Identifier: MIT
//
// The headers of the C++ standard library that NVRTC lacks, on top of libcu++.
//
// What: a list of header names and texts for nvrtcCreateProgram, so that `#include <cstdint>` and
// std::uint32_t work as they do with nvcc: each brings in <cuda/std/...>, and kNvrtcPrelude, the
// first text of each program, opens cuda::std to std. That also serves headers that include
// <cuda/std/...> under NVRTC and go on to say std:: (CUTLASS). <cstdint> and <cstddef> do without
// libcu++ where it is not there (it is packaged apart, in the wheel nvidia-cuda-cccl): whoever has
// torch has NVRTC, but not always that. C headers whose functions are built into NVRTC are empty.
// When not: what libcu++ has no counterpart for (<vector>, <string>) is for nvcc.
//
// Example:
//     for (const NvrtcHeader& header : kNvrtcHeaders) names.push_back(header.name);
//
// Errors: none here; a header that libcu++ does not have is an error of the compile that names it.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deep_jit::cuda {

struct NvrtcHeader {
  std::string name;  // As in #include <name>.
  std::string text;
};

inline constexpr std::string_view kNvrtcPrelude =
    "namespace cuda { namespace std {} }\n"
    "namespace std { using namespace ::cuda::std; }\n";

// Made once.
std::span<const NvrtcHeader> nvrtc_headers();

// --- Inline implementations ---

namespace detail {

inline constexpr std::string_view kOwnCstddef =
    "namespace std {\n"
    "using size_t = decltype(sizeof(0));\n"
    "using ptrdiff_t = decltype((char*)0 - (char*)0);\n"
    "using nullptr_t = decltype(nullptr);\n"
    "}\n";

inline constexpr std::string_view kOwnCstdint =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\n"
    "typedef short int16_t;\ntypedef unsigned short uint16_t;\n"
    "typedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long int64_t;\ntypedef unsigned long uint64_t;\n"
    "typedef long intptr_t;\ntypedef unsigned long uintptr_t;\n"
    "namespace std {\n"
    "using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t;\n"
    "using ::int32_t; using ::uint32_t; using ::int64_t; using ::uint64_t;\n"
    "using ::intptr_t; using ::uintptr_t;\n"
    "}\n";

inline std::string make_nvrtc_header(std::string_view counterpart, std::string_view otherwise) {
  const std::string include = "#include <cuda/std/" + std::string(counterpart) + ">\n";
  std::string text = "#pragma once\n";
  if (otherwise.empty()) {
    text += include;
  } else {
    text += "#if __has_include(<cuda/std/" + std::string(counterpart) + ">)\n" + include;
    text += "#else\n" + std::string(otherwise) + "#endif\n";
  }
  return text;
}

inline std::vector<NvrtcHeader> make_nvrtc_headers() {
  std::vector<NvrtcHeader> headers;
  for (const char* name :
       {"array",       "atomic",  "bit",         "bitset",     "cassert",          "cfloat",
        "chrono",      "climits", "cmath",       "complex",    "concepts",         "cstdlib",
        "cstring",     "ctime",   "expected",    "functional", "initializer_list", "iterator",
        "latch",       "limits",  "mdspan",      "memory",     "numbers",          "numeric",
        "optional",    "ranges",  "ratio",       "semaphore",  "source_location",  "span",
        "string_view", "tuple",   "type_traits", "utility",    "variant",          "version"}) {
    headers.push_back({name, make_nvrtc_header(name, "")});
  }
  // libcu++ 2 and early 3 have it under another name.
  headers.push_back(
      {"algorithm", make_nvrtc_header("algorithm", "#include <cuda/std/__algorithm_>\n")});
  headers.push_back({"cstddef", make_nvrtc_header("cstddef", kOwnCstddef)});
  headers.push_back({"cstdint", make_nvrtc_header("cstdint", kOwnCstdint)});
  headers.push_back({"stddef.h", make_nvrtc_header("cstddef", kOwnCstddef)});
  headers.push_back({"stdint.h", make_nvrtc_header("cstdint", kOwnCstdint)});
  for (const char* name : {"assert", "float", "limits", "stdlib", "string", "time"}) {
    headers.push_back({std::string(name) + ".h", make_nvrtc_header("c" + std::string(name), "")});
  }
  for (const char* name : {"cstdio", "math.h", "stdio.h"}) {
    headers.push_back({name, "#pragma once\n"});
  }
  return headers;
}

}  // namespace detail

inline std::span<const NvrtcHeader> nvrtc_headers() {
  static const std::vector<NvrtcHeader>* const headers =
      new std::vector<NvrtcHeader>(detail::make_nvrtc_headers());
  return *headers;
}

}  // namespace deep_jit::cuda
