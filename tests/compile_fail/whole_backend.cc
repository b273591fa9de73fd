// SPDX-License-Identifier: MIT
//
// Compiles: what the other files here have is not wrong by itself.
#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"

template class deep_jit::Runtime<deep_jit::testing::FakeBackend>;

DJ_STATIC_ASSERT(sizeof(int) >= 4, "an int has four bytes");
