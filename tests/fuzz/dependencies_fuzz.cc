// SPDX-License-Identifier: MIT
//
// The list of an entry's headers, and a compiler's depfile: no bytes crash the parsers, what the
// first accepts is what it would have written, and no name of the second is empty.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "deep_jit/key/dependencies.hpp"
#include "deep_jit/key/depfile.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string& head : {std::string(), deep_jit::Dependencies().serialize()}) {
    const std::string whole = head + std::string(text);
    const auto parsed = deep_jit::Dependencies::parse(whole);
    if (parsed.has_value() && parsed->serialize() != whole) std::abort();
  }
  for (const std::string& file : deep_jit::parse_depfile(text)) {
    if (file.empty()) std::abort();
  }
  return 0;
}
