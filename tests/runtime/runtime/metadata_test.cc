// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/metadata.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit {
namespace {

using ::testing::ElementsAre;

TEST(Metadata, HoldsEverythingInOrder) {
  const Key key = Key().add("flag", "-O3").add("source", std::string(300, 's'));
  const std::string text =
      make_metadata({"g++", "a b"}, {{"c", 1}}, {{"i", 2}}, {{"o", nullptr}}, key);
  const auto json = nlohmann::ordered_json::parse(text);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("command", "config", "compiler_info", "compiler_options", "key"));
  EXPECT_EQ(json["command"], "g++ 'a b'");
  EXPECT_EQ(json["config"].dump(), R"({"c":1})");
  EXPECT_EQ(json["compiler_info"].dump(), R"({"i":2})");
  EXPECT_EQ(json["compiler_options"].dump(), R"({"o":null})");
  EXPECT_EQ(json["key"]["digest"], key.digest().hex());
  EXPECT_EQ(json["key"]["parts"][0].dump(), R"({"name":"flag","value":"-O3"})");
  EXPECT_EQ(json["key"]["parts"][1]["value"], key.parts()[1].summary());
}

TEST(Metadata, StaysValidJsonForAnyBytes) {
  const std::string text =
      make_metadata({"g++", "-DX=\xff\x01\""}, {}, {}, {}, Key().add("flag", "\xfe"));
  const auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json["key"]["parts"][0]["value"], "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace deep_jit
