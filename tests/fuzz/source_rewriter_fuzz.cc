// SPDX-License-Identifier: MIT
//
// The Host backend's source rewriter: it only inserts, and never a line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "deep_jit/backend/host/source_rewriter.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const std::string rewritten = deep_jit::host::register_kernels(source);
  if (std::ranges::count(rewritten, '\n') != std::ranges::count(source, '\n')) std::abort();
  std::size_t at = 0;
  for (const char c : source) {
    at = rewritten.find(c, at);
    if (at == std::string::npos) std::abort();
    ++at;
  }
  return 0;
}
