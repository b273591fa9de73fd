// SPDX-License-Identifier: MIT
//
// Environment values: each is parsed as a whole, or is an error that names the variable.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"

namespace {

template <class T>
void read(const std::string& value) {
  ::setenv("FUZZ_JIT_VALUE", value.c_str(), 1);
  try {
    const auto parsed = deep_jit::Env("FUZZ").get<T>("JIT_VALUE");
    if (!parsed.has_value()) std::abort();
    if constexpr (std::same_as<T, std::string>) {
      if (*parsed != value) std::abort();
    } else if constexpr (!std::same_as<T, bool>) {
      // What is accepted is a plain decimal number, so writing it back gives the digits again.
      std::string_view digits = value;
      const bool negative = digits.starts_with('-');
      if (negative) digits.remove_prefix(1);
      while (digits.size() > 1 && digits.starts_with('0')) digits.remove_prefix(1);
      std::string expected = std::to_string(*parsed);
      if (negative && expected == "0") expected = "-0";
      if (expected != (negative ? "-" : "") + std::string(digits)) std::abort();
    }
  } catch (const deep_jit::exception::Exception& error) {
    const std::string_view text = error.what();
    if (text.find("invalid value for FUZZ_JIT_VALUE") == std::string_view::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string value(reinterpret_cast<const char*>(data), size);
  value = value.c_str();  // An environment value ends at its first NUL.
  read<std::string>(value);
  read<bool>(value);
  read<int>(value);
  read<unsigned>(value);
  read<std::int64_t>(value);
  return 0;
}
