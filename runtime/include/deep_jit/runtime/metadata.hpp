// SPDX-License-Identifier: MIT
//
// The text of `meta.json`: how a cache entry was made, for people and tools.
//
// What: pretty-printed JSON with, in this order, "command" (one shell-quoted line), "config",
// "compiler_info", "compiler_options" and "key" (digest and parts). Bytes that are not UTF-8 are
// replaced, so that every entry is valid JSON.
// When not: nothing reads it back; whether an entry is valid is told by its `.committed` file.
//
// Example:
//     write_file_sync(directory / kMetadataFileName,
//                     make_metadata(command, config.to_json(), info.to_json(), options.to_json(),
//                                   key));
//
// Errors: none. Thread-safety: a pure function.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/key.hpp"

namespace deep_jit {

inline constexpr std::string_view kMetadataFileName = "meta.json";

std::string make_metadata(const std::vector<std::string>& command, nlohmann::ordered_json config,
                          nlohmann::ordered_json compiler_info,
                          nlohmann::ordered_json compiler_options, const Key& key);

// Text of `json` that is valid UTF-8 whatever its strings hold.
std::string dump_json(const nlohmann::ordered_json& json);

// --- Inline implementations ---

inline std::string dump_json(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

inline std::string make_metadata(const std::vector<std::string>& command,
                                 nlohmann::ordered_json config,
                                 nlohmann::ordered_json compiler_info,
                                 nlohmann::ordered_json compiler_options, const Key& key) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const auto& part : key.parts()) {
    parts.push_back({{"name", part.name}, {"value", part.summary()}});
  }
  nlohmann::ordered_json metadata = nlohmann::ordered_json::object();
  metadata["command"] = format_command(command);
  metadata["config"] = std::move(config);
  metadata["compiler_info"] = std::move(compiler_info);
  metadata["compiler_options"] = std::move(compiler_options);
  metadata["key"] = {{"digest", key.digest().hex()}, {"parts", std::move(parts)}};
  return dump_json(metadata) + "\n";
}

}  // namespace deep_jit
