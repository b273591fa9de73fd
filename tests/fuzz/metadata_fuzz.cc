// SPDX-License-Identifier: MIT
//
// meta.json: whatever a flag, a path or a source holds, the file is JSON in valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/metadata.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t half = size / 2;
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
  options["extra_cxx_flags"] = {bytes.substr(0, half), bytes.substr(half)};
  deep_jit::Key key;
  key.add("flag", bytes.substr(half)).add(bytes.substr(0, half), "x");
  const std::string text = deep_jit::make_metadata({"c++", bytes}, {{"root", bytes}},
                                                   {{"version", bytes}}, std::move(options), key);
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (parsed.is_discarded() || parsed.at("key").at("digest") != key.digest().hex()) {
    std::abort();
  }
  return 0;
}
