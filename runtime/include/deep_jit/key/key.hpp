// SPDX-License-Identifier: MIT
//
// Key: the list of named parts that a kernel's binary depends on, and its digest.
//
// What: parts are added in order; the digest frames every name and value by its length, so that
// no two different lists can collide by concatenation. The parts stay readable: explain() answers
// "why was this compiled again?".
// When not: for a digest of one byte string use hash_bytes() of base/hash.hpp.
//
// Example:
//     Key key;
//     key.add("backend", "host").add("flag", "-O3").add("source", source);
//     std::string name = key.digest().hex();
//
// Errors: none of its own.
// Thread-safety: as a standard container (many readers or one writer).
#pragma once

#include <cstddef>
#include <format>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/base/hash.hpp"

namespace deep_jit {

// Raised whenever the parts or their order change meaning: old cache entries are then never met.
// History: 1 = key format, backend, compiler version, compiler content, extra signature, flag...,
// the backend's own parts, source, tracked headers; 2 = key format, backend, extra signature,
// dependencies (the mode), compiler version, compiler content, flag..., post hook and post hook
// content where there is one, the backend's own parts, source, tracked headers in that mode.
inline constexpr int kKeyFormatVersion = 2;

struct KeyPart {
  std::string name;
  std::string value;

  // The value for a reader: itself, or its size and digest when it is longer than 200 bytes.
  std::string summary() const;
};

class Key {
 public:
  Key& add(std::string_view name, std::string_view value);

  const std::vector<KeyPart>& parts() const { return parts_; }

  Digest digest() const;

  // One line per part: `name: summary`; line breaks inside a value are shown as \n.
  std::string explain() const;

 private:
  std::vector<KeyPart> parts_;
};

// --- Inline implementations ---

inline std::string KeyPart::summary() const {
  constexpr std::size_t kLongestShown = 200;  // A flag or a version line fits, a source does not.
  if (value.size() <= kLongestShown) return value;
  return std::format("<{} bytes, xxh3 {}>", value.size(), hash_bytes(value).hex());
}

inline Key& Key::add(std::string_view name, std::string_view value) {
  parts_.push_back({std::string(name), std::string(value)});
  return *this;
}

inline Digest Key::digest() const {
  Hasher hasher;
  for (const auto& part : parts_) hasher.update(part.name).update(part.value);
  return hasher.digest();
}

inline std::string Key::explain() const {
  std::string text;
  for (const auto& part : parts_) {
    text += part.name + ": ";
    for (const char c : part.summary()) {
      if (c == '\n') {
        text += "\\n";
      } else {
        text += c;
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace deep_jit
