// SPDX-License-Identifier: MIT
//
// An extension as a kernel library writes it, with a few functions that let a test look inside.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <typeinfo>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/gil.hpp"
#include "deep_jit/python_api.hpp"
#include "deep_jit/runtime/runtime.hpp"

#include "tests/python/embedding/plain_unit.h"

namespace {

namespace py = pybind11;
using deep_jit::Config;
using deep_jit::GilScopedRelease;
using deep_jit::Host;
using deep_jit::LazyInit;
using HostRuntime = deep_jit::Runtime<Host>;

LazyInit<HostRuntime> jit(nullptr);

// Makes get_jit() throw something that is not DeepJIT's.
void init_throwing(const std::string& what) {
  jit = LazyInit<HostRuntime>([what]() -> std::shared_ptr<HostRuntime> {
    if (what == "int") throw 7;
    throw std::invalid_argument(what);
  });
}

// Calls `before()` with the GIL each time the runtime is to be made.
void init_after(const std::string& library_root, py::object before) {
  // Kept for good: `jit` ends after the interpreter.
  const py::handle kept = before.release();
  jit = LazyInit<HostRuntime>([library_root, kept] {
    kept();
    return std::make_shared<HostRuntime>(Config(library_root, DJTEST_PREFIX));
  });
}

// Launches one thread of the kernel in `source` with the memory at `address`.
void launch(const std::string& source, std::uintptr_t address) {
  const auto kernel = jit->compile("kernel", source);
  jit->launch(kernel, {.grid_dim = deep_jit::host::Dim3{1}, .block_dim = deep_jit::host::Dim3{1}},
              reinterpret_cast<int*>(address));
}

// Whether this thread has the GIL: before a GilScopedRelease, in it, in two, in one of the other
// unit, and afterwards.
py::tuple probe_gil() {
  const int before = PyGILState_Check();
  int inside = -1;
  int nested = -1;
  {
    const GilScopedRelease released;
    inside = PyGILState_Check();
    const GilScopedRelease again;
    nested = PyGILState_Check();
  }
  const int plain = deep_jit::testing::probe_in_plain_unit(&PyGILState_Check);
  return py::make_tuple(before, inside, nested, plain, PyGILState_Check());
}

}  // namespace

PYBIND11_MODULE(DJTEST_MODULE, m) {
  deep_jit::register_python_api<Host>(m, jit);
  m.attr("PYTHON_VERSION") = PY_VERSION;
  m.def("reset", [] { jit = LazyInit<HostRuntime>(nullptr); });
  m.def("init_jit", [](const std::string& library_root) {
    jit = deep_jit::create_lazy_jit<Host>(Config(library_root, DJTEST_PREFIX));
  });
  m.def("init_throwing", init_throwing);
  m.def("init_after", init_after);
  m.def("compile", [](const std::string& source) { jit->compile("kernel", source); });
  m.def("compile_without_load", [](const std::string& source) {
    return jit->compile_without_load("kernel", source).string();
  });
  m.def("cache_key", [](const std::string& source) {
    return jit->cache_key(source, jit->default_compiler_options);
  });
  m.def("launch", launch);
  m.def("probe_gil", probe_gil);
  m.def("runtime_names", [] {
    return std::make_tuple(std::string(typeid(HostRuntime).name()),
                           deep_jit::testing::runtime_name_in_plain_unit());
  });
  m.def("run_in_plain_unit", [](const std::string& library_root, const std::string& source) {
    return deep_jit::testing::run_in_plain_unit(library_root, DJTEST_PREFIX, source);
  });
}
