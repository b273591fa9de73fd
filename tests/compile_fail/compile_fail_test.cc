// SPDX-License-Identifier: MIT
//
// What the compiler says about programs that are wrong: it must name what is missing.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/filesystem.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string log_of(const std::string& name) {
  return read("tests/compile_fail/" + name + ".log");
}

TEST(CompileFail, WholeBackendCompiles) {
  EXPECT_EQ(log_of("whole_backend"), "exit code 0\n");
}

TEST(CompileFail, BackendThatLacksAPieceIsToldWhich) {
  const auto is_readable = [](const std::string& piece) {
    return AllOf(StartsWith("exit code 1\n"),
                 HasSubstr("B does not satisfy the concept deep_jit::Backend"),
                 HasSubstr("deep_jit/runtime/backend_concept.hpp"), HasSubstr(piece));
  };
  EXPECT_THAT(log_of("backend_without_load"), is_readable("CanLoad: the backend needs"));
  EXPECT_THAT(log_of("backend_without_load"), Not(HasSubstr("IsLaunchOptions: the")));
  EXPECT_THAT(log_of("backend_without_options"), is_readable("IsCompilerOptions: the"));
}

TEST(CompileFail, StaticAssertSaysItsText) {
  EXPECT_THAT(log_of("static_assert"),
              AllOf(StartsWith("exit code 1\n"), HasSubstr("a char of two bytes is expected here"),
                    HasSubstr("sizeof(int) == 1")));
}

TEST(CompileFail, TypeOfAnEnvironmentVariable) {
  EXPECT_THAT(log_of("environment_type"),
              AllOf(StartsWith("exit code 1\n"),
                    HasSubstr("an environment variable is a std::string, a bool, an integer")));
}

}  // namespace
}  // namespace deep_jit
