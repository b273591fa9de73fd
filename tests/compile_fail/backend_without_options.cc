// SPDX-License-Identifier: MIT
//
// Does not compile: the compiler options have no flags.
#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"

struct WithoutOptions : deep_jit::testing::FakeBackend {
  using FakeBackend::FakeBackend;
  struct CompilerOptions {};
};

template class deep_jit::Runtime<WithoutOptions>;
