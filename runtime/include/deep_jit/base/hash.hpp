// SPDX-License-Identifier: MIT
//
// 128-bit digests for keys and checksums (XXH3-128 of the xxHash library).
//
// What: `Hasher` for a sequence of values (each framed by its length, so that "ab","c" differs from
// "a","bc"), `hash_bytes` for one plain byte string (the same number that `xxhsum -H2` prints).
//
// When not: this is a fast checksum, not a cryptographic hash. It finds accidents, not attackers:
// who can write to a cache root can run code in whoever reads it, with any hash.
//
// Example:
//     Digest digest = Hasher().update(flags).update(source).digest();
//     std::string name = digest.hex();  // 32 lower-case hex digits
//
// Format: the digests are stored in cache entries and their names; changing what they mean needs a
// new kKeyFormatVersion (key/key.hpp) and kEntryFormatVersion (cache/manifest.hpp).
// Errors: none. Thread-safety: as a std::string: share only for reading.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace deep_jit {

// --- Digest ---

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  // 32 lower-case hex digits, `high` first.
  std::string hex() const;

  // The inverse; nullopt unless `text` is exactly 32 lower-case hex digits.
  static std::optional<Digest> from_hex(std::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend std::strong_ordering operator<=>(const Digest&, const Digest&) = default;
};

// --- Hasher ---

// Copyable: a copy goes on from the same state, independently.
class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }

  // Adds one value: its length as 8 little-endian bytes, then its bytes.
  Hasher& update(std::string_view value);

  // Adds bytes without a frame: to feed one long value piece by piece.
  Hasher& append(std::string_view bytes);

  // Digest of everything so far; the hasher can go on afterwards.
  Digest digest() const;

 private:
  XXH3_state_t state_;
};

// Digest of exactly these bytes.
Digest hash_bytes(std::string_view bytes);

// --- Inline implementations ---

inline std::string Digest::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(32, '0');
  for (std::size_t i = 0; i < 16; ++i) {
    text[i] = kDigits[(high >> (60 - 4 * i)) & 0xf];
    text[16 + i] = kDigits[(low >> (60 - 4 * i)) & 0xf];
  }
  return text;
}

inline std::optional<Digest> Digest::from_hex(std::string_view text) {
  if (text.size() != 32) {
    return std::nullopt;
  }
  Digest digest;
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    std::uint64_t nibble = 0;
    if (c >= '0' and c <= '9') {
      nibble = static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' and c <= 'f') {
      nibble = static_cast<std::uint64_t>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    std::uint64_t& half = i < 16 ? digest.high : digest.low;
    half = (half << 4) | nibble;
  }
  return digest;
}

inline Hasher& Hasher::update(std::string_view value) {
  unsigned char frame[8];
  for (int i = 0; i < 8; ++i) {
    frame[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(value.size()) >> (8 * i));
  }
  XXH3_128bits_update(&state_, frame, sizeof(frame));
  return append(value);
}

inline Hasher& Hasher::append(std::string_view bytes) {
  if (not bytes.empty()) {
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  return *this;
}

inline Digest Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
  return Digest{.high = hash.high64, .low = hash.low64};
}

inline Digest hash_bytes(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return Digest{.high = hash.high64, .low = hash.low64};
}

}  // namespace deep_jit

template <>
struct std::hash<deep_jit::Digest> {
  // The digest is already well mixed: any 64 of its bits will do.
  std::size_t operator()(const deep_jit::Digest& digest) const noexcept {
    return static_cast<std::size_t>(digest.low);
  }
};
