// SPDX-License-Identifier: MIT
#include "deep_jit/base/exception.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace deep_jit::exception {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

template <class Error, class Work>
Error catch_error(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing thrown";
  return Error("", 0, "");
}

std::string text_of(void (*work)()) {
  try {
    work();
  } catch (const Exception& error) {
    EXPECT_EQ(error.what(), error.message);
    return error.message;
  }
  return "nothing thrown";
}

TEST(ExceptionTest, MessageHasNameFileLineAndError) {
  const Exception error("Assertion", "some/file.hpp", 42, "it broke: 'x' {}");
  EXPECT_STREQ(error.what(), "Assertion error (some/file.hpp:42): it broke: 'x' {}");
  EXPECT_EQ(error.message, "Assertion error (some/file.hpp:42): it broke: 'x' {}");
  EXPECT_EQ(error.error, "it broke: 'x' {}");
}

TEST(ExceptionTest, AssertNamesConditionAndFormattedText) {
  const std::string text = text_of([] {
    const int count = -3;
    DJ_HOST_ASSERT(count > 0, "need a positive count, got {}", count);
  });
  EXPECT_THAT(text, StartsWith("Assertion error ("));
  EXPECT_THAT(text, EndsWith("): count > 0: need a positive count, got -3"));
  EXPECT_NE(text.find("exception_test.cc:"), std::string::npos);
}

TEST(ExceptionTest, AssertWithoutText) {
  const std::string text = text_of([] { DJ_HOST_ASSERT(1 + 1 == 3); });
  EXPECT_THAT(text, EndsWith("): 1 + 1 == 3"));
}

TEST(ExceptionTest, AssertEvaluatesConditionOnceAndTextOnlyOnFailure) {
  int conditions = 0;
  int texts = 0;
  DJ_HOST_ASSERT(++conditions == 1, "{}", ++texts);
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(texts, 0);
}

TEST(ExceptionTest, AssertIsOneStatement) {
  bool reached_else = false;
  if (reached_else)
    DJ_HOST_ASSERT(false, "not reached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(ExceptionTest, PanicFormats) {
  const std::string text = text_of([] { DJ_PANIC("bad value {:#x} in {}", 255, "here"); });
  EXPECT_THAT(text, StartsWith("Panic error ("));
  EXPECT_THAT(text, EndsWith("): bad value 0xff in here"));
}

TEST(ExceptionTest, KindsKeepTheirNames) {
  EXPECT_THAT(catch_error<CacheError>([] { DJ_THROW(CacheError, "no space for {}", "x"); }).message,
              StartsWith("Cache error ("));
  EXPECT_THAT(catch_error<LaunchError>([] { DJ_THROW(LaunchError, "grid"); }).message,
              StartsWith("Launch error ("));
  EXPECT_THAT(catch_error<Interrupted>([] { DJ_THROW(Interrupted, "stop"); }).message,
              StartsWith("Interrupted error ("));
  EXPECT_TRUE((std::is_base_of_v<std::exception, Exception>));
}

TEST(ExceptionTest, CompileErrorCarriesItsFields) {
  const CompileError error = catch_error<CompileError>([] {
    throw CompileError("f.cc", 7, "rejected", "line 1\nline 2", {"g++", "-c"}, "/tmp/kernel.cc",
                       "{\"optimize_level\": \"3\"}");
  });
  EXPECT_EQ(error.message, "Compile error (f.cc:7): rejected");
  EXPECT_EQ(error.log, "line 1\nline 2");
  EXPECT_EQ(error.command, (std::vector<std::string>{"g++", "-c"}));
  EXPECT_EQ(error.source_path, "/tmp/kernel.cc");
  EXPECT_EQ(error.options, "{\"optimize_level\": \"3\"}");
}

TEST(ExceptionTest, ErrnoText) {
  EXPECT_EQ(errno_text(ENOENT), "No such file or directory (errno 2)");
  EXPECT_EQ(errno_text(ENOSPC), "No space left on device (errno 28)");
}

DJ_STATIC_ASSERT(sizeof(int) == 4);
DJ_STATIC_ASSERT(sizeof(char) == 1, "with a text");

}  // namespace
}  // namespace deep_jit::exception
