// SPDX-License-Identifier: MIT
//
// Does not compile: DJ_STATIC_ASSERT, with and without a text.
#include "deep_jit/base/exception.hpp"

DJ_STATIC_ASSERT(sizeof(char) == 2, "a char of two bytes is expected here");
DJ_STATIC_ASSERT(sizeof(int) == 1);
