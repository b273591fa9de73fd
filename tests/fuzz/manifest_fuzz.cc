// SPDX-License-Identifier: MIT
//
// `.committed`: no bytes crash the parser, and what it accepts is what it would have written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "deep_jit/cache/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = deep_jit::Manifest::parse(text);
  if (manifest.has_value() && manifest->serialize() != text) {
    std::abort();
  }
  // The checksum keeps random bytes out; with a right one the lines themselves are tried.
  const std::string sealed =
      std::string(text) + "checksum " + deep_jit::Hasher().append(text).digest().hex() + "\n";
  const auto sealed_manifest = deep_jit::Manifest::parse(sealed);
  if (sealed_manifest.has_value() && sealed_manifest->serialize() != sealed) {
    std::abort();
  }
  return 0;
}
