// SPDX-License-Identifier: MIT
#define DJ_DISABLE_GIL 1

#include "tests/python/embedding/plain_unit.h"

#include <type_traits>
#include <typeinfo>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/gil.hpp"
#include "deep_jit/runtime/runtime.hpp"

#ifdef Py_PYTHON_H
#error "DJ_DISABLE_GIL must keep Python's headers out"
#endif

namespace deep_jit::testing {

static_assert(std::is_empty_v<GilScopedRelease>);

int probe_in_plain_unit(int (*probe)()) {
  const GilScopedRelease released;
  return probe();
}

std::string runtime_name_in_plain_unit() {
  return typeid(Runtime<Host>).name();
}

int run_in_plain_unit(const std::string& library_root, const std::string& prefix,
                      const std::string& source) {
  LazyInit<Runtime<Host>> jit = create_lazy_jit<Host>(Config(library_root, prefix));
  int out = -1;
  jit->launch(jit->compile("plain", source),
              {.grid_dim = host::Dim3{1}, .block_dim = host::Dim3{1}}, &out);
  return out;
}

}  // namespace deep_jit::testing
