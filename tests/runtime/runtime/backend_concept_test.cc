// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/backend_concept.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/runtime/fake_backend.hpp"

namespace deep_jit {
namespace {

using testing::FakeBackend;

struct NoName : FakeBackend {
  using FakeBackend::FakeBackend;
  static constexpr int kName = 3;
};
struct NoLoad : FakeBackend {
  using FakeBackend::FakeBackend;
  static void load(const std::filesystem::path&, const Env&) {}
};
struct NotConstructible : FakeBackend {
  NotConstructible() = delete;
};
struct CompileReturnsNothing : FakeBackend {
  using FakeBackend::FakeBackend;
  void compile(const std::string&, const std::filesystem::path&, const Env&, const Config&,
               const CompilerOptions&) const {}
};
struct BadOptions : FakeBackend {
  using FakeBackend::FakeBackend;
  struct CompilerOptions {};
};

TEST(BackendConcept, AcceptsAWholeBackend) {
  EXPECT_TRUE(Backend<FakeBackend>);
}

TEST(BackendConcept, RefusesABackendThatLacksAPiece) {
  EXPECT_FALSE(Backend<int>);
  EXPECT_FALSE(HasBackendTypes<NoName>);
  EXPECT_FALSE(CanLoad<NoLoad>);
  EXPECT_FALSE(CanCompile<NotConstructible>);
  EXPECT_FALSE(CanCompile<CompileReturnsNothing>);
  EXPECT_FALSE((IsCompilerOptions<BadOptions::CompilerOptions, BadOptions::Device>));
  EXPECT_FALSE(Backend<NoName> || Backend<NoLoad> || Backend<NotConstructible> ||
               Backend<CompileReturnsNothing> || Backend<BadOptions>);
}

}  // namespace
}  // namespace deep_jit
