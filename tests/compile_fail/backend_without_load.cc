// SPDX-License-Identifier: MIT
//
// Does not compile: load() returns nothing.
#include <filesystem>

#include "deep_jit/runtime/runtime.hpp"
#include "tests/runtime/runtime/fake_backend.hpp"

struct WithoutLoad : deep_jit::testing::FakeBackend {
  using FakeBackend::FakeBackend;
  static void load(const std::filesystem::path&, const deep_jit::Env&) {}
};

template class deep_jit::Runtime<WithoutLoad>;
