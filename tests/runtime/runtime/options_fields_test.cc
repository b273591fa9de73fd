// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/options_fields.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit {
namespace {

struct Options {
  std::optional<std::string> level = {};
  std::optional<bool> debug = {};
  std::optional<int> count = {};
  std::optional<std::vector<std::string>> flags = {};
  std::vector<std::string> extra_flags = {};

  bool operator==(const Options&) const = default;

  template <class Self, class F>
  static void visit_fields(Self& self, F&& f) {
    f("level", self.level);
    f("debug", self.debug);
    f("count", self.count);
    f("flags", self.flags);
    f("extra_flags", self.extra_flags);
  }
};

TEST(OverrideFields, UnsetInheritsSetReplacesExtraAppends) {
  const Options defaults{.level = "3", .debug = true, .flags = {{"a", "b"}}, .extra_flags = {"x"}};
  const Options copy = defaults;
  EXPECT_EQ(override_fields(defaults, {}), defaults);
  EXPECT_EQ(
      override_fields(defaults,
                      {.debug = false, .count = 0, .flags = {{"c"}}, .extra_flags = {"y", "x"}}),
      (Options{.level = "3",
               .debug = false,
               .count = 0,
               .flags = {{"c"}},
               .extra_flags = {"x", "y", "x"}}));
  EXPECT_EQ(override_fields(defaults, {.flags = std::vector<std::string>{}}).flags->size(), 0u);
  EXPECT_EQ(defaults, copy);
}

TEST(FieldsToJson, KeepsOrderAndShowsUnsetAsNull) {
  EXPECT_EQ(fields_to_json(Options{}).dump(),
            R"({"level":null,"debug":null,"count":null,"flags":null,"extra_flags":[]})");
  EXPECT_EQ(
      fields_to_json(
          Options{
              .level = "s", .debug = false, .count = -1, .flags = {{"a"}}, .extra_flags = {"b"}})
          .dump(),
      R"({"level":"s","debug":false,"count":-1,"flags":["a"],"extra_flags":["b"]})");
}

TEST(Fingerprint, TellsEveryDifference) {
  const std::vector<Options> all = {
      {},
      {.level = ""},
      {.level = "a"},
      {.level = std::string("a\0", 2)},
      {.debug = false},
      {.debug = true},
      {.count = 0},
      {.count = 1},
      {.count = 256},
      {.flags = std::vector<std::string>{}},
      {.flags = {{"a"}}},
      {.extra_flags = {"a"}},
      {.extra_flags = {"ab"}},
      {.extra_flags = {"a", "b"}},
      {.extra_flags = {"b", "a"}},
      {.flags = {{"a"}}, .extra_flags = {"b"}},
      {.flags = {{"a", "b"}}},
  };
  std::set<std::string> bytes;
  for (const auto& options : all) {
    FingerprintBytes text;
    append_fields_fingerprint(options, text);
    FingerprintBytes again;
    append_fields_fingerprint(options, again);
    EXPECT_EQ(text.view(), again.view());
    bytes.emplace(text.view());
  }
  EXPECT_EQ(bytes.size(), all.size());
}

}  // namespace
}  // namespace deep_jit
