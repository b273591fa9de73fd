// SPDX-License-Identifier: MIT
#include "deep_jit/base/dynamic_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const exception::Exception& error) {
    return error.message;
  }
  return "nothing thrown";
}

TEST(DynamicLibraryTest, CallsAFunctionByName) {
  const DynamicLibrary library = DynamicLibrary::open("libm.so.6");
  EXPECT_TRUE(library.is_open());
  EXPECT_EQ(library.path(), "libm.so.6");
  auto* const root = library.symbol<double(double)>("sqrt");
  static_assert(std::is_same_v<decltype(root), double (*const)(double)>);
  EXPECT_EQ(root(1764.0), 42.0);
}

TEST(DynamicLibraryTest, MissingSymbol) {
  const DynamicLibrary library = DynamicLibrary::open("libm.so.6");
  EXPECT_EQ(library.try_symbol<void()>("no_such_function"), nullptr);
  EXPECT_THAT(error_of([&] { library.symbol<void()>("no_such_function"); }),
              AllOf(HasSubstr("'no_such_function'"), HasSubstr("libm.so.6")));
}

TEST(DynamicLibraryTest, ErrorsCarryPathAndReason) {
  const TestDirectory directory;
  EXPECT_THAT(
      error_of([&] { DynamicLibrary::open(directory / "none.so"); }),
      AllOf(HasSubstr((directory / "none.so").string()), HasSubstr("No such file or directory")));
  write_file_sync(directory / "text.so", std::string(4096, 'x'));
  EXPECT_THAT(error_of([&] { DynamicLibrary::open(directory / "text.so"); }),
              AllOf(HasSubstr("failed to load dynamic library"), HasSubstr("invalid ELF header")));
  EXPECT_THAT(error_of([] { DynamicLibrary::open(""); }), HasSubstr("must not be empty"));
}

TEST(DynamicLibraryTest, MoveAndClose) {
  DynamicLibrary first = DynamicLibrary::open("libm.so.6");
  DynamicLibrary second = std::move(first);
  EXPECT_FALSE(first.is_open());
  EXPECT_TRUE(second.is_open());
  first = std::move(second);
  EXPECT_TRUE(first.is_open());
  first.close();
  first.close();
  EXPECT_FALSE(first.is_open());
  EXPECT_THAT(error_of([&] { first.symbol<double(double)>("sqrt"); }), HasSubstr("must be open"));
  static_assert(not std::is_copy_constructible_v<DynamicLibrary>);
}

}  // namespace
}  // namespace deep_jit
