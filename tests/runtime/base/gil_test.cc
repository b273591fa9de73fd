// SPDX-License-Identifier: MIT
//
// The form without Python; tests/python/embedding has the other, and both in one program.
#include "deep_jit/base/gil.hpp"

#ifdef Py_PYTHON_H
#error "a program without Python must get no Python header"
#endif

#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <gtest/gtest.h>

#include "deep_jit/base/lazy_init.hpp"

namespace deep_jit {
namespace {

static_assert(std::is_empty_v<GilScopedRelease>);
static_assert(std::is_default_constructible_v<GilScopedRelease>);
static_assert(!std::is_copy_constructible_v<GilScopedRelease>);
static_assert(!std::is_move_constructible_v<GilScopedRelease>);
static_assert(!std::is_copy_assignable_v<GilScopedRelease>);

// The names that a linker sees tell the forms apart, also of templates that use one.
TEST(Gil, TheFormIsPartOfTheName) {
  static_assert(std::is_same_v<GilScopedRelease, gil_none::GilScopedRelease>);
  EXPECT_NE(std::string_view(typeid(GilScopedRelease).name()).find("gil_none"),
            std::string_view::npos);
  EXPECT_NE(std::string_view(typeid(LazyInit<int>).name()).find("gil_none"),
            std::string_view::npos);
}

TEST(Gil, ScopesNest) {
  const GilScopedRelease outer;
  const GilScopedRelease inner;
}

}  // namespace
}  // namespace deep_jit
