// SPDX-License-Identifier: MIT
#include "deep_jit/base/env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <locale>
#include <set>
#include <string>

#include "deep_jit/base/exception.hpp"

namespace deep_jit {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class EnvTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : names_) {
      ::unsetenv(name.c_str());
    }
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.insert(name);
  }

 private:
  std::set<std::string> names_;
};

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const exception::Exception& error) {
    return error.message;
  }
  return "nothing thrown";
}

TEST_F(EnvTest, ParsesWholeIntegersOnly) {
  EXPECT_EQ(parse_integer<int>("-12", "N"), -12);
  EXPECT_EQ(parse_integer<std::uint8_t>("255", "N"), 255);
  EXPECT_EQ(parse_integer<std::int64_t>("-9223372036854775808", "N"), INT64_MIN);
  EXPECT_EQ(parse_integer<std::uint64_t>("18446744073709551615", "N"), UINT64_MAX);
  for (const char* bad : {"", "12x", " 12", "12 ", "+1", "0x10", "1.0", "2147483648"}) {
    EXPECT_THAT(error_of([&] { parse_integer<int>(bad, "MY_NAME"); }),
                HasSubstr(std::string("invalid value for MY_NAME: ") + bad))
        << bad;
  }
  EXPECT_THAT(error_of([] { parse_integer<unsigned>("-1", "N"); }),
              HasSubstr("invalid value for N: -1"));
  EXPECT_THAT(error_of([] { parse_integer<std::int64_t>("9223372036854775808", "N"); }),
              HasSubstr("invalid value"));
  EXPECT_THAT(error_of([] { parse_integer<std::uint8_t>("256", "N"); }),
              HasSubstr("expected a whole number from 0 to 255"));
}

TEST_F(EnvTest, ReadsBools) {
  for (const char* yes : {"1", "true", "TrUe", "YeS", "-2", "100"}) {
    set("EXAMPLE_FLAG", yes);
    EXPECT_TRUE(get_env<bool>("EXAMPLE_FLAG", false)) << yes;
  }
  for (const char* no : {"0", "FALSE", "nO", "-0"}) {
    set("EXAMPLE_FLAG", no);
    EXPECT_FALSE(get_env<bool>("EXAMPLE_FLAG", true)) << no;
  }
  for (const char* bad : {"", "sometimes", "1x", "tru", " 1"}) {
    set("EXAMPLE_FLAG", bad);
    EXPECT_THAT(error_of([] { get_env<bool>("EXAMPLE_FLAG"); }),
                HasSubstr(std::string("invalid value for EXAMPLE_FLAG: ") + bad));
  }
}

TEST_F(EnvTest, BoolsAndNumbersDoNotDependOnTheLocale) {
  // "TRUE" and "FALSE" hold letters that Turkish turns into others; a locale made here, because
  // few machines have one installed.
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale old = std::locale::global(std::locale(std::locale(), new Comma));
  set("EXAMPLE_FLAG", "YES");
  set("EXAMPLE_NUMBER", "1234567");
  EXPECT_TRUE(get_env<bool>("EXAMPLE_FLAG"));
  EXPECT_EQ(get_env<int>("EXAMPLE_NUMBER"), 1234567);
  set("EXAMPLE_NUMBER", "1.234.567");
  EXPECT_THAT(error_of([] { get_env<int>("EXAMPLE_NUMBER"); }),
              HasSubstr("from -2147483648 to 2147483647"));
  std::locale::global(old);
}

TEST_F(EnvTest, StringsAreVerbatimAndUnsetIsDefault) {
  set("EXAMPLE_TEXT", "  a b;$(c) \xc3\xa9 ");
  EXPECT_EQ(get_env<std::string>("EXAMPLE_TEXT"), "  a b;$(c) \xc3\xa9 ");
  set("EXAMPLE_TEXT", "");
  EXPECT_EQ(get_env<std::string>("EXAMPLE_TEXT", "default"), "");
  EXPECT_EQ(get_env<std::string>("EXAMPLE_UNSET", "default"), "default");
  EXPECT_EQ(get_env<int>("EXAMPLE_UNSET"), 0);
  EXPECT_EQ(try_get_env<int>("EXAMPLE_UNSET"), std::nullopt);
}

TEST_F(EnvTest, ReadsEnumsByNumber) {
  enum class Mode : int { kOff = 0, kFast = 2 };
  set("EXAMPLE_MODE", "2");
  EXPECT_EQ(get_env<Mode>("EXAMPLE_MODE"), Mode::kFast);
}

TEST_F(EnvTest, OwnPrefixBeatsGlobalBeatsDefault) {
  const Env env("EXAMPLE");
  EXPECT_EQ(env.prefix, "EXAMPLE");
  EXPECT_EQ(env.get<int>("JIT_NUMBER"), std::nullopt);
  EXPECT_EQ(env.get<int>("JIT_NUMBER", 5), 5);
  set("JIT_NUMBER", "1");  // never read without a prefix
  EXPECT_EQ(env.get<int>("JIT_NUMBER", 5), 5);
  set("DJ_JIT_NUMBER", "2");
  EXPECT_EQ(env.get<int>("JIT_NUMBER", 5), 2);
  set("EXAMPLE_JIT_NUMBER", "3");
  EXPECT_EQ(env.get<int>("JIT_NUMBER", 5), 3);
  EXPECT_EQ(env.get<int>("JIT_NUMBER"), 3);
  EXPECT_EQ(Env("OTHER").get<int>("JIT_NUMBER"), 2);
  EXPECT_EQ(Env::get_with_prefix<int>("EXAMPLE", "JIT_NUMBER"), 3);
  EXPECT_EQ(Env::get_with_prefix<int>("THIRD", "JIT_NUMBER"), std::nullopt);
}

TEST_F(EnvTest, OwnZeroOverridesGlobalOne) {
  set("DJ_JIT_DEBUG", "1");
  set("EXAMPLE_JIT_DEBUG", "0");
  EXPECT_FALSE(Env("EXAMPLE").get<bool>("JIT_DEBUG", true));
  EXPECT_TRUE(Env("OTHER").get<bool>("JIT_DEBUG", false));
}

TEST_F(EnvTest, OwnEmptyTextIsAValue) {
  set("DJ_JIT_TEXT", "global");
  set("EXAMPLE_JIT_TEXT", "");
  EXPECT_EQ(Env("EXAMPLE").get<std::string>("JIT_TEXT", "default"), "");
}

TEST_F(EnvTest, ReadsTheLiveEnvironment) {
  const Env env("EXAMPLE");
  set("EXAMPLE_JIT_NUMBER", "1");
  EXPECT_EQ(env.get<int>("JIT_NUMBER"), 1);
  set("EXAMPLE_JIT_NUMBER", "2");
  EXPECT_EQ(env.get<int>("JIT_NUMBER"), 2);
}

TEST_F(EnvTest, BadValueNamesTheVariableThatHoldsIt) {
  set("DJ_JIT_NUMBER", "many");
  EXPECT_THAT(error_of([] { Env("EXAMPLE").get<int>("JIT_NUMBER", 1); }),
              HasSubstr("invalid value for DJ_JIT_NUMBER: many"));
}

TEST_F(EnvTest, RefusesBadPrefixes) {
  EXPECT_THAT(error_of([] { Env(""); }), HasSubstr("prefix must not be empty"));
  EXPECT_THAT(error_of([] { Env("DJ"); }), HasSubstr("reserved for global environment variables"));
  EXPECT_EQ(Env("DJX").prefix, "DJX");
}

TEST_F(EnvTest, ListsTheWholeEnvironment) {
  set("EXAMPLE_TEXT", "a=b");
  EXPECT_THAT(get_environment(), Contains("EXAMPLE_TEXT=a=b"));
}

TEST_F(EnvTest, TableOfVariablesIsComplete) {
  std::set<std::string_view> suffixes;
  for (const EnvVariable& variable : kEnvVariables) {
    EXPECT_TRUE(suffixes.insert(variable.suffix).second) << variable.suffix;
    EXPECT_TRUE(variable.suffix.starts_with("JIT_")) << variable.suffix;
    EXPECT_FALSE(variable.type.empty()) << variable.suffix;
    EXPECT_TRUE(variable.description.ends_with(".")) << variable.suffix;
  }
  EXPECT_TRUE(suffixes.contains("JIT_CACHE_DIR"));
  EXPECT_TRUE(suffixes.contains("JIT_NUM_THREADS"));
}

}  // namespace
}  // namespace deep_jit
