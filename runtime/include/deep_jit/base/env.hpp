// SPDX-License-Identifier: MIT
//
// Environment variables: the only file that calls getenv.
//
// What: typed reading with strict parsing (`get_env`), and `Env`, which looks up
// "<PREFIX>_<SUFFIX>" and then "DJ_<SUFFIX>", so that two kernel libraries in one process are set
// up independently. `kEnvVariables` lists every suffix that is read, with type, default and
// meaning; docs/reference/environment.md is compared with it.
//
// When not: the key of a kernel never depends on the environment directly; whoever reads a variable
// puts the effective value into the options.
//
// Example:
//     Env env("MYLIB");
//     bool debug = env.get<bool>("JIT_DEBUG", false);  // MYLIB_JIT_DEBUG, then DJ_JIT_DEBUG
//
// Errors: a malformed value panics with "invalid value for NAME: RAW"; it is never silently
// replaced by the default.
// Thread-safety: as getenv(3): safe as long as nobody calls setenv at the same time. Values are
// read at each call.
#pragma once

#include <unistd.h>

#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "deep_jit/base/exception.hpp"

namespace deep_jit {

// --- The variables that are read ---

struct EnvVariable {
  std::string_view suffix;         // as in <PREFIX>_<suffix> and DJ_<suffix>
  std::string_view type;           // "path", "path list", "bool", "integer", "command"
  std::string_view default_value;  // as text
  std::string_view description;
};

inline constexpr EnvVariable kEnvVariables[] = {
    {"JIT_CACHE_DIR", "path list", "$HOME/.dj",
     "Cache roots, separated by ':'. The first is written to; the others are only looked up."},
    {"JIT_DEBUG", "bool", "0",
     "Prints compiler commands and load times, compiles with debug information, keeps assembly, "
     "adds the C++ trace to errors."},
    {"JIT_DUMP_ASM", "bool", "0",
     "Keeps a kernel's assembly when it is compiled: kernel.s (Host), or kernel.ptx and "
     "kernel.sass "
     "(CUDA)."},
    {"JIT_CXX_COMPILER", "command", "",
     "C++ compiler of the Host backend; may hold arguments, as in 'ccache g++'."},
    {"JIT_CPP_STANDARD", "integer", "20", "C++ standard that kernels are compiled for."},
    {"JIT_PRINT_COMPILER_COMMAND", "bool", "0", "Prints each compiler command before it runs."},
    {"JIT_PRINT_LOAD_TIME", "bool", "0", "Prints how long loading each kernel took."},
    {"JIT_NUM_THREADS", "integer", "number of processors",
     "Threads that run the blocks of a Host kernel."},
    {"JIT_NVCC_COMPILER", "path", "",
     "nvcc of the CUDA backend, instead of the toolkit's; the rest of the toolkit stays."},
    {"JIT_CUDA_COMPILER", "nvcc, nvrtc or auto", "nvcc",
     "Who compiles CUDA kernels; auto: NVRTC, and nvcc for what NVRTC does not take. The option "
     "compiler of a kernel wins."},
    {"JIT_NVRTC_LIBRARY", "path", "",
     "libnvrtc of the CUDA backend, instead of the toolkit's or the wheel's."},
    {"JIT_ALLOW_OLD_NVCC", "bool", "0",
     "Takes nvcc 12.3 to 12.8 too, with a warning, instead of 12.9 or newer only."},
    {"JIT_PTXAS_VERBOSE", "bool", "0",
     "Logs what nvcc and ptxas say of a CUDA kernel: registers, shared memory, spills."},
    {"JIT_CHECK_NO_SPILLS", "bool", "0",
     "Makes it an error when a CUDA kernel spills registers to local memory."},
    {"JIT_CHECK_NO_LOCAL_MEMORY", "bool", "0",
     "Makes it an error when a CUDA kernel uses local memory at all."},
    {"JIT_WITH_LINEINFO", "bool", "0",
     "Compiles line numbers into CUDA kernels, for profilers and debuggers."},
    {"JIT_DUMP_PTX", "bool", "0", "Keeps a CUDA kernel's PTX, as kernel.ptx."},
    {"JIT_DUMP_SASS", "bool", "0", "Keeps a CUDA kernel's machine code as text, as kernel.sass."},
};

// --- Plain variables ---

// Parses all of `raw` as a T. `name` is only for the error text.
template <std::integral T>
  requires(not std::same_as<T, bool>)
T parse_integer(std::string_view raw, const std::string& name);

// The value of variable `name`, or `default_value` when it is unset. T: std::string (verbatim),
// bool (true, yes, false, no in any case, or an integer), an integral type, or an enum (as its
// integer).
template <class T>
T get_env(const std::string& name, const T& default_value = T());

// As get_env; nullopt when the variable is unset.
template <class T>
std::optional<T> try_get_env(const std::string& name);

// A copy of the whole environment, as "NAME=VALUE".
std::vector<std::string> get_environment();

// --- Prefixed variables ---

class Env {
 public:
  std::string prefix;

  // The prefix must not be empty, nor "DJ", which is for everyone.
  explicit Env(std::string prefix);

  // "<prefix>_<suffix>", then "DJ_<suffix>", then nullopt.
  template <class T>
  std::optional<T> get(std::string_view suffix) const;

  template <class T>
  T get(std::string_view suffix, const T& default_value) const;

  // One look-up, of "<prefix>_<suffix>".
  template <class T>
  static std::optional<T> get_with_prefix(std::string_view prefix, std::string_view suffix);
};

// --- Inline implementations ---

template <std::integral T>
  requires(not std::same_as<T, bool>)
T parse_integer(std::string_view raw, const std::string& name) {
  T value{};
  const char* const end = raw.data() + raw.size();
  const auto [parsed_to, error] = std::from_chars(raw.data(), end, value);
  if (error != std::errc() or parsed_to != end) {
    DJ_PANIC("invalid value for {}: {} (expected a whole number from {} to {})", name, raw,
             std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  return value;
}

namespace detail {

inline bool parse_bool(std::string_view raw, const std::string& name) {
  std::string lower(raw);
  for (char& c : lower) {
    // Not std::tolower, which asks the locale.
    if (c >= 'A' and c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  if (lower == "true" or lower == "yes") {
    return true;
  }
  if (lower == "false" or lower == "no") {
    return false;
  }
  std::int64_t value = 0;
  const char* const end = raw.data() + raw.size();
  const auto [parsed_to, error] = std::from_chars(raw.data(), end, value);
  if (error != std::errc() or parsed_to != end) {
    DJ_PANIC("invalid value for {}: {} (expected true, yes, false, no or a whole number)", name,
             raw);
  }
  return value != 0;
}

template <class T>
T parse_env_value(const char* raw, const std::string& name) {
  if constexpr (std::same_as<T, std::string>) {
    return raw;
  } else if constexpr (std::same_as<T, bool>) {
    return parse_bool(raw, name);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(parse_integer<std::underlying_type_t<T>>(raw, name));
  } else {
    static_assert(std::integral<T>,
                  "an environment variable is a std::string, a bool, an integer or an enum");
    return parse_integer<T>(raw, name);
  }
}

}  // namespace detail

template <class T>
std::optional<T> try_get_env(const std::string& name) {
  const char* const raw = std::getenv(name.c_str());
  if (raw == nullptr) {
    return std::nullopt;
  }
  return detail::parse_env_value<T>(raw, name);
}

template <class T>
T get_env(const std::string& name, const T& default_value) {
  std::optional<T> value = try_get_env<T>(name);
  return value.has_value() ? *std::move(value) : default_value;
}

inline std::vector<std::string> get_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr and *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

inline Env::Env(std::string prefix) : prefix(std::move(prefix)) {
  DJ_HOST_ASSERT(
      not this->prefix.empty(),
      "environment variable prefix must not be empty: name your library, as in Env(\"MYLIB\")");
  DJ_HOST_ASSERT(this->prefix != "DJ",
                 "environment variable prefix \"DJ\" is reserved for global environment variables: "
                 "name your library");
}

template <class T>
std::optional<T> Env::get(std::string_view suffix) const {
  std::optional<T> value = get_with_prefix<T>(prefix, suffix);
  return value.has_value() ? value : get_with_prefix<T>("DJ", suffix);
}

template <class T>
T Env::get(std::string_view suffix, const T& default_value) const {
  std::optional<T> value = get<T>(suffix);
  return value.has_value() ? *std::move(value) : default_value;
}

template <class T>
std::optional<T> Env::get_with_prefix(std::string_view prefix, std::string_view suffix) {
  std::string name(prefix);
  name += '_';
  name += suffix;
  return try_get_env<T>(name);
}

}  // namespace deep_jit
