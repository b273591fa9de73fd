// SPDX-License-Identifier: MIT
#include "deep_jit/base/no_ref_ptr.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace deep_jit {
namespace {

TEST(NoRefPtrTest, ValueIsPassedByItsAddress) {
  const int number = 7;
  EXPECT_EQ(kernel_arg_pointer(number), &number);
  float value = 1.5F;
  float* pointer = &value;
  EXPECT_EQ(kernel_arg_pointer(pointer), static_cast<void*>(&pointer));
  static_assert(std::is_same_v<decltype(kernel_arg_pointer(number)), void*>);
}

TEST(NoRefPtrTest, AddressIsThatOfTheObjectEvenIfItOverloadsAddressOf) {
  struct Odd {
    int value = 3;
    Odd* operator&() const { return nullptr; }
  };
  const Odd odd;
  EXPECT_EQ(kernel_arg_pointer(odd), static_cast<const void*>(&odd.value));
}

TEST(NoRefPtrTest, NoRefPtrIsPassedOn) {
  int storage = 0;
  EXPECT_EQ(kernel_arg_pointer(NoRefPtr{&storage}), &storage);
  EXPECT_EQ(kernel_arg_pointer(NoRefPtr{}), nullptr);
}

TEST(NoRefPtrTest, DerivedTypesCountToo) {
  struct Named : NoRefPtr {
    int unrelated = 0;
  };
  int storage = 0;
  Named named;
  named.ptr = &storage;
  EXPECT_EQ(kernel_arg_pointer(named), &storage);
}

}  // namespace
}  // namespace deep_jit
