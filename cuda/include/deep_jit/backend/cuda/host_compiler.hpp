// SPDX-License-Identifier: MIT
//
// cuda::HostCompiler: the C++ compiler that nvcc is told to use for its host side.
//
// What: the first of CUDAHOSTCXX, NVCC_CCBIN and CXX that is set and not empty. It goes to nvcc as
// `-ccbin PROGRAM`. Such a variable may hold a launcher, which nvcc cannot take and which is left
// out ("ccache g++"), and arguments, which nvcc hands on ("g++ -m64"). Without any, nvcc looks for
// its own choice on PATH, and the host compiler is no part of the key.
// When not: whether nvcc can use that compiler is for nvcc to say; nothing is rejected here.
//
// Example:
//     if (const auto host = cuda::find_host_compiler()) host->program;  // "/usr/bin/g++-12"
//
// Errors: none. Thread-safety: reads the environment; see base/env.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/key.hpp"

namespace deep_jit::cuda {

struct HostCompiler {
  std::string origin;                  // The variable that named it.
  std::string program;                 // Absolute, if it was found.
  std::vector<std::string> arguments;  // Words behind the program.

  // Its version and content as they are now; the words alone when it does not tell a version.
  void add_to_key(Key& key) const;

  nlohmann::ordered_json to_json() const {
    return {{"origin", origin}, {"program", program}, {"arguments", arguments}};
  }
};

std::optional<HostCompiler> find_host_compiler();

// --- Inline implementations ---

inline void HostCompiler::add_to_key(Key& key) const {
  try {
    const CompilerIdentity identity = identify_compiler({program}, program);
    key.add("host compiler version", identity.version)
        .add("host compiler content", identity.content.hex());
  } catch (const exception::Interrupted&) {
    throw;
  } catch (const exception::Exception&) {
    key.add("host compiler", program);
  }
  for (const auto& argument : arguments) key.add("host compiler argument", argument);
}

inline std::optional<HostCompiler> find_host_compiler() {
  constexpr std::string_view kLaunchers[] = {"ccache", "distcc", "icecc", "sccache"};
  for (const char* variable : {"CUDAHOSTCXX", "NVCC_CCBIN", "CXX"}) {
    const auto value = get_env<std::string>(variable);
    std::vector<std::string> words;
    if (find_executable(value)) {
      words = {value};  // A path with blanks in it.
    } else {
      for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find_first_of(" \t", begin), value.size());
        if (end > begin) words.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    const auto is_launcher = [&](const std::string& word) {
      const std::string name = std::filesystem::path(word).filename().string();
      return std::ranges::find(kLaunchers, name) != std::end(kLaunchers);
    };
    while (words.size() > 1 && is_launcher(words.front())) words.erase(words.begin());
    if (words.empty()) continue;
    HostCompiler found{.origin = variable, .program = words.front(), .arguments = {}};
    if (const auto path = find_executable(found.program)) found.program = path->string();
    found.arguments.assign(std::make_move_iterator(words.begin() + 1),
                           std::make_move_iterator(words.end()));
    return found;
  }
  return std::nullopt;
}

}  // namespace deep_jit::cuda
