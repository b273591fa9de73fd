// SPDX-License-Identifier: MIT
//
// Merge, JSON and fingerprint of an options struct, all from its one list of fields.
//
// What: an options struct is an aggregate whose visit_fields() names its members in order. Each
// member is a std::optional (unset inherits, set replaces) or a std::vector named `extra_*` (the
// override's elements come after the default's).
// When not: the meaning of an option (its flag, its check) stays in the struct itself.
//
// Example:
//     struct Options {
//       std::optional<int> level;
//       std::vector<std::string> extra_flags;
//       template <class Self, class F>
//       static void visit_fields(Self& self, F&& f) {
//         f("level", self.level);
//         f("extra_flags", self.extra_flags);
//       }
//     };
//     Options merged = override_fields(defaults, overrides);
//
// Errors: none. Thread-safety: pure functions.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/runtime/fingerprint.hpp"

namespace deep_jit {

// A copy of `defaults` with `overrides` laid over it.
template <class Options>
Options override_fields(const Options& defaults, const Options& overrides);

// {"name": value or null, ...} in the order of the fields.
template <class Options>
nlohmann::ordered_json fields_to_json(const Options& options);

// Appends bytes that differ whenever a field differs: cheaper than flags, for in-process look-ups.
template <class Options>
void append_fields_fingerprint(const Options& options, FingerprintBytes& bytes);

// --- Inline implementations ---

namespace detail {

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <class Options>
consteval std::size_t max_fields() {
  return sizeof(Options);  // Every field takes at least one byte.
}

inline void append_value(FingerprintBytes& bytes, std::string_view value) {
  bytes.append_value(value.size());
  bytes.append(value);
}

template <class T>
  requires std::integral<T> || std::is_enum_v<T>
void append_value(FingerprintBytes& bytes, T value) {
  bytes.append_value(value);
}

template <class T>
void append_value(FingerprintBytes& bytes, const std::vector<T>& values) {
  bytes.append_value(values.size());
  for (const auto& value : values) append_value(bytes, value);
}

template <class T>
void append_value(FingerprintBytes& bytes, const std::optional<T>& value) {
  bytes.append_value(value.has_value());
  if (value) append_value(bytes, *value);
}

}  // namespace detail

template <class Options>
Options override_fields(const Options& defaults, const Options& overrides) {
  Options merged = defaults;
  std::array<const void*, detail::max_fields<Options>()> members{};
  std::size_t count = 0;
  Options::visit_fields(overrides,
                        [&](std::string_view, const auto& member) { members[count++] = &member; });
  std::size_t index = 0;
  Options::visit_fields(merged, [&](std::string_view, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    const auto& value = *static_cast<const Member*>(members[index++]);
    if constexpr (detail::kIsVector<Member>) {
      member.insert(member.end(), value.begin(), value.end());
    } else if (value.has_value()) {
      member = value;
    }
  });
  return merged;
}

template <class Options>
nlohmann::ordered_json fields_to_json(const Options& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  Options::visit_fields(options, [&json](std::string_view name, const auto& member) {
    auto& value = json[std::string(name)];
    if constexpr (detail::kIsVector<std::remove_cvref_t<decltype(member)>>) {
      value = member;
    } else if (member) {
      value = *member;
    }
  });
  return json;
}

template <class Options>
void append_fields_fingerprint(const Options& options, FingerprintBytes& bytes) {
  Options::visit_fields(options, [&bytes](std::string_view, const auto& member) {
    detail::append_value(bytes, member);
  });
}

}  // namespace deep_jit
