// SPDX-License-Identifier: MIT
//
// The include scanner: any source gives a digest or one of its own errors, the same each time.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/key/include_scanner.hpp"

namespace {

std::optional<deep_jit::Digest> scan(std::string_view source) {
  deep_jit::IncludeScanner scanner({"/proc/self/fuzz-include"}, {"lib/"});
  try {
    return scanner.scan(source);
  } catch (const deep_jit::exception::Exception&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  if (scan(source) != scan(source)) {
    std::abort();
  }
  return 0;
}
