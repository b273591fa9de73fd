// SPDX-License-Identifier: MIT
//
// FingerprintBytes: what distinguishes one request from another within a process, as bytes.
//
// What: append-only bytes that are hashed in the end. Those of ordinary options fit in the object,
// so that looking a kernel up in memory allocates nothing.
// When not: for keys, which other processes read; see key/key.hpp.
//
// Example:
//     FingerprintBytes bytes;
//     append_fields_fingerprint(options, bytes);
//     Digest digest = hash_bytes(bytes.view());
//
// Errors: std::bad_alloc. Thread-safety: an object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace deep_jit {

class FingerprintBytes {
 public:
  // Twice the options of the largest backend with its default flags.
  static constexpr std::size_t kInlineSize = 768;

  void append(std::string_view bytes) {
    if (spilled_.empty() && bytes.size() <= kInlineSize - size_) [[likely]] {
      // A null data() has no place in memcpy.
      if (!bytes.empty()) std::memcpy(inline_.data() + size_, bytes.data(), bytes.size());
      size_ += bytes.size();
      return;
    }
    if (spilled_.empty()) spilled_.assign(inline_.data(), size_);
    spilled_.append(bytes);
  }

  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void append_value(T value) {
    append({reinterpret_cast<const char*>(&value), sizeof(value)});
  }

  std::string_view view() const {
    return spilled_.empty() ? std::string_view(inline_.data(), size_) : spilled_;
  }

 private:
  std::size_t size_ = 0;  // Of what is in the object; unused once it has spilled.
  std::array<char, kInlineSize> inline_;
  std::string spilled_;
};

}  // namespace deep_jit
