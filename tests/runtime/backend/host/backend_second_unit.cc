// SPDX-License-Identifier: MIT
// A second translation unit with the whole library, so that the linker would see a definition that
// is not inline.
#include "deep_jit/backend/host/backend.hpp"

namespace deep_jit::testing {

const void* address_of_pool() {
  return &host::ThreadPool::shared();
}
const void* address_of_prelude() {
  return &host::get_prelude();
}

}  // namespace deep_jit::testing
