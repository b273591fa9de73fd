// SPDX-License-Identifier: MIT
#include "python/bindings/runtime_type.h"

#include <utility>

#include "deep_jit/backend/host/backend.hpp"

#include "python/bindings/cache_info.h"
#include "python/bindings/kernel_type.h"
#include "python/bindings/runtime_binding.h"

namespace deep_jit::python {

void add_runtime_types(PyObject* module, State& state) {
  const auto add = [module](Ref type) {
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
      throw PythonError{};
    return type.release();
  };
  state.host_runtime_type =
      add(RuntimeBinding<Host>::make_type(module, "deep_jit._core.HostRuntime"));
  state.cache_info_type = add(make_cache_info_type());
}

}  // namespace deep_jit::python
