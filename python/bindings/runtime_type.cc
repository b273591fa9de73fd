// SPDX-License-Identifier: MIT
#include "python/bindings/runtime_type.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/lazy_init.hpp"
#include "deep_jit/base/parallel_calls.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/runtime.hpp"

#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/gil.h"
#include "python/bindings/instance.h"
#include "python/bindings/kernel_type.h"

namespace deep_jit::python {
namespace {

using host::CompilerOptions;

struct RuntimeData {
  LazyInit<HostRuntime> lazy{nullptr};
  // What `lazy` made, once a call has seen it. Guarded by the GIL: cache_info() must not make the
  // runtime.
  std::shared_ptr<HostRuntime> made = nullptr;
};

// --- Arguments ---

void require_count(Py_ssize_t given, Py_ssize_t expected, const char* function) {
  if (given == expected) return;
  PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd given", function, expected, given);
  throw PythonError{};
}

// optimize_level, debug_info, cxx_flags, extra_cxx_flags.
constexpr Py_ssize_t kOptionCount = 4;

CompilerOptions to_options(PyObject* const* arguments) {
  CompilerOptions options;
  if (arguments[0] != Py_None) options.optimize_level = to_native(arguments[0], "optimize_level");
  if (arguments[1] != Py_None) options.debug_info = to_bool(arguments[1], "debug_info");
  if (arguments[2] != Py_None) options.cxx_flags = to_native_list(arguments[2], "cxx_flags");
  options.extra_cxx_flags = to_native_list(arguments[3], "extra_cxx_flags");
  return options;
}

struct CompileRequest {
  std::string name;
  std::string source;
  CompilerOptions options;
};

// name, source, options.
CompileRequest to_compile_request(PyObject* const* arguments) {
  return {.name = to_utf8(arguments[0], "name"),
          .source = to_utf8(arguments[1], "source"),
          .options = to_options(arguments + 2)};
}

std::vector<CompileRequest> to_compile_requests(PyObject* list) {
  std::vector<CompileRequest> requests;
  const Ref items = checked(PySequence_List(list));
  const Py_ssize_t count = PyList_Size(items.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item = checked(PySequence_List(PyList_GetItem(items.get(), i)));
    require_count(PyList_Size(item.get()), 2 + kOptionCount, "each request of compile_many");
    std::vector<PyObject*> arguments;
    for (Py_ssize_t j = 0; j < 2 + kOptionCount; ++j) {
      arguments.push_back(PyList_GetItem(item.get(), j));
    }
    requests.push_back(to_compile_request(arguments.data()));
  }
  return requests;
}

// Runs `work(runtime)` without the GIL; the first call makes the runtime.
template <class Work>
auto with_runtime(RuntimeData& data, const Work& work) {
  std::shared_ptr<HostRuntime> runtime = data.made;
  auto result = without_gil([&] {
    if (runtime == nullptr) runtime = data.lazy.get();
    return work(*runtime);
  });
  data.made = std::move(runtime);
  return result;
}

// --- Methods ---

PyObject* runtime_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  State& state = *static_cast<State*>(PyType_GetModuleState(type));
  return guarded(state, [&]() -> PyObject* {
    if (keywords != nullptr && PyDict_Size(keywords) != 0) {
      PyErr_SetString(PyExc_TypeError, "HostRuntime() takes no keyword arguments");
      throw PythonError{};
    }
    require_count(PyTuple_Size(arguments), 7, "HostRuntime");
    const auto argument = [arguments](Py_ssize_t index) {
      return PyTuple_GetItem(arguments, index);
    };
    Config config(
        to_path(argument(0), "library_root"), to_native(argument(1), "env_prefix"),
        to_utf8(argument(2), "extra_signature"), to_path_list(argument(3), "include_dirs"),
        to_native_list(argument(4), "include_prefixes"),
        to_native(argument(5), "python_executable"), to_path_list(argument(6), "cache_dirs"));
    auto data = std::make_shared<RuntimeData>();
    data->lazy = create_lazy_jit<Host>(std::move(config));
    return make_instance<RuntimeData>(reinterpret_cast<PyObject*>(type), std::move(data));
  });
}

PyObject* runtime_compile(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  State& state = state_of(self);
  return guarded(state, [&] {
    require_count(count, 2 + kOptionCount, "compile");
    const CompileRequest request = to_compile_request(arguments);
    RuntimeData& data = data_of<RuntimeData>(self);
    auto kernel = with_runtime(data, [&](HostRuntime& runtime) {
      return runtime.compile(request.name, request.source, request.options);
    });
    return make_kernel(state, data.made, std::move(kernel)).release();
  });
}

PyObject* runtime_compile_without_load(PyObject* self, PyObject* const* arguments,
                                       Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 2 + kOptionCount, "compile_without_load");
    const CompileRequest request = to_compile_request(arguments);
    const std::filesystem::path path =
        with_runtime(data_of<RuntimeData>(self), [&](HostRuntime& runtime) {
          return runtime.compile_without_load(request.name, request.source, request.options);
        });
    return from_native(path.native()).release();
  });
}

// A list with a kernel, or the exception that stands for it, for each request.
PyObject* runtime_compile_many(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  State& state = state_of(self);
  return guarded(state, [&] {
    require_count(count, 2, "compile_many");
    const std::vector<CompileRequest> requests = to_compile_requests(arguments[0]);
    const std::size_t jobs = PyLong_AsSize_t(arguments[1]);
    if (PyErr_Occurred() != nullptr) throw PythonError{};
    RuntimeData& data = data_of<RuntimeData>(self);
    std::vector<std::shared_ptr<Host::Kernel>> kernels(requests.size());
    const std::vector<std::exception_ptr> errors = with_runtime(data, [&](HostRuntime& runtime) {
      return call_in_parallel(requests.size(), jobs, [&](std::size_t i) {
        const CompileRequest& request = requests[i];
        kernels[i] = runtime.compile(request.name, request.source, request.options);
      });
    });
    Ref results = checked(PyList_New(0));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Ref result = errors[i] != nullptr
                             ? to_python_exception(state, errors[i])
                             : make_kernel(state, data.made, std::move(kernels[i]));
      if (PyList_Append(results.get(), result.get()) != 0) throw PythonError{};
    }
    return results.release();
  });
}

PyObject* runtime_cache_key(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 1 + kOptionCount, "cache_key");
    const std::string source = to_utf8(arguments[0], "source");
    const CompilerOptions options = to_options(arguments + 1);
    const std::string key = with_runtime(data_of<RuntimeData>(self), [&](HostRuntime& runtime) {
      return runtime.cache_key(source, runtime.default_compiler_options.override_with(options));
    });
    return from_output(key).release();
  });
}

PyObject* runtime_explain_key(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 1 + kOptionCount, "explain_key");
    const std::string source = to_utf8(arguments[0], "source");
    const CompilerOptions options = to_options(arguments + 1);
    const std::string text = with_runtime(data_of<RuntimeData>(self), [&](HostRuntime& runtime) {
      return runtime.explain_key(source, runtime.default_compiler_options.override_with(options));
    });
    return from_output(text).release();
  });
}

// The counters of the disk cache, in the order of CacheCounters.
PyStructSequence_Field kCacheInfoFields[] = {
    {"hits", "look-ups on disk that found a whole, checked entry"},
    {"misses",
     "look-ups that found none; a compile looks twice, before and after it has the key's lock"},
    {"damaged", "entries found with a bad manifest, file size or checksum"},
    {"other_version", "entries found that another format version wrote"},
    {"unreadable", "cache roots or entries that could not be read"},
    {"published", "builds renamed to where nothing was"},
    {"publish_races", "builds dropped for one that another writer published first"},
    {"healed", "unusable entries that a build replaced"},
    {"kept_private", "builds that could not be published, used from the temporary directory"},
    {nullptr, nullptr},
};

PyStructSequence_Desc kCacheInfoDescription = {
    "deep_jit.CacheInfo",
    "What happened in one runtime's disk cache, in this process. It compiled "
    "published + publish_races + healed + kept_private kernels.",
    kCacheInfoFields, 9};

PyObject* runtime_cache_info(PyObject* self, PyObject*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    Ref info =
        checked(PyStructSequence_New(reinterpret_cast<PyTypeObject*>(state.cache_info_type)));
    const HostRuntime* runtime = data_of<RuntimeData>(self).made.get();
    Py_ssize_t index = 0;
    const auto add = [&](std::atomic<std::uint64_t> CacheCounters::* counter) {
      const std::uint64_t value =
          runtime != nullptr ? (runtime->disk_cache.counters().*counter).load() : 0;
      PyStructSequence_SetItem(info.get(), index++,
                               checked(PyLong_FromUnsignedLongLong(value)).release());
    };
    add(&CacheCounters::hits);
    add(&CacheCounters::misses);
    add(&CacheCounters::damaged);
    add(&CacheCounters::other_version);
    add(&CacheCounters::unreadable);
    add(&CacheCounters::published);
    add(&CacheCounters::publish_races);
    add(&CacheCounters::healed);
    add(&CacheCounters::kept_private);
    return info.release();
  });
}

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyCFunction fast(FastCall function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kRuntimeMethods[] = {
    {"compile", fast(&runtime_compile), METH_FASTCALL, "compile(name, source, *options) -> Kernel"},
    {"compile_many", fast(&runtime_compile_many), METH_FASTCALL,
     "compile_many(requests, jobs) -> list[Kernel | Exception]"},
    {"compile_without_load", fast(&runtime_compile_without_load), METH_FASTCALL,
     "compile_without_load(name, source, *options) -> str"},
    {"cache_key", fast(&runtime_cache_key), METH_FASTCALL, "cache_key(source, *options) -> str"},
    {"explain_key", fast(&runtime_explain_key), METH_FASTCALL,
     "explain_key(source, *options) -> str"},
    {"cache_info", runtime_cache_info, METH_NOARGS, "cache_info() -> CacheInfo"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot kRuntimeSlots[] = {
    {Py_tp_doc, const_cast<char*>("The host backend's runtime; use deep_jit.Runtime.")},
    {Py_tp_new, reinterpret_cast<void*>(&runtime_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_instance<RuntimeData>)},
    {Py_tp_methods, kRuntimeMethods},
    {0, nullptr},
};

PyType_Spec kRuntimeSpec = {"deep_jit._core.HostRuntime", sizeof(Instance<RuntimeData>), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, kRuntimeSlots};

}  // namespace

void add_runtime_types(PyObject* module, State& state) {
  const auto add = [module](Ref type) {
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
      throw PythonError{};
    return type.release();
  };
  state.host_runtime_type = add(checked(PyType_FromModuleAndSpec(module, &kRuntimeSpec, nullptr)));
  state.cache_info_type =
      add(checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&kCacheInfoDescription))));
}

}  // namespace deep_jit::python
