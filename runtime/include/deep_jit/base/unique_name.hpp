// SPDX-License-Identifier: MIT
//
// Names that no other thread, process, machine or container uses.
//
// What: "<pid>-xxxxxxxx-xxxxxxxx-xxxxxxxx": the process id, for people, and 96 random bits, for
// uniqueness (containers that share a cache over the network have the same process ids).
// `is_unique_name` recognises the form, so that whoever tidies up touches nothing else.
//
// When not: it is not a secret, and not reproducible; never put one into a key or a published file.
//
// Example:
//     path directory = root / "tmp" / unique_name();
//
// Errors: none in practice; std::random_device's when the machine has no source of random numbers
// at all.
// Thread-safety: all of it, also after fork: there is no state, the kernel is asked each time.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <format>
#include <random>
#include <string>
#include <string_view>

namespace deep_jit {

inline std::string unique_name() {
  std::uint32_t words[3];
  // getrandom gives requests of up to 256 bytes whole once the kernel is seeded; a kernel or
  // sandbox without it says so.
  if (::getrandom(words, sizeof(words), 0) != static_cast<ssize_t>(sizeof(words))) {
    std::random_device device;
    for (std::uint32_t& word : words) {
      word = static_cast<std::uint32_t>(device());
    }
  }
  return std::format("{}-{:08x}-{:08x}-{:08x}", ::getpid(), words[0], words[1], words[2]);
}

inline bool is_unique_name(std::string_view name) {
  constexpr std::size_t kRandomPart = 3 * 9;  // "-xxxxxxxx", three times
  if (name.size() <= kRandomPart) {
    return false;
  }
  const std::size_t start = name.size() - kRandomPart;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_digit = c >= '0' and c <= '9';
    const bool is_hex = is_digit or (c >= 'a' and c <= 'f');
    const bool is_dash = i >= start and (i - start) % 9 == 0;
    if (is_dash ? c != '-' : not(i < start ? is_digit : is_hex)) {
      return false;
    }
  }
  return true;
}

}  // namespace deep_jit
