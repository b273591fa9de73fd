// SPDX-License-Identifier: MIT
//
// RuntimeBinding<B>: the Python type around deep_jit::Runtime<B>, for any backend.
//
// Users meet it through deep_jit.Runtime (python/deep_jit/_runtime.py), which has the defaults and
// the documentation; this type only converts, releases the GIL and calls. A backend needs an
// overload of make_kernel (below), its options come from visit_fields (options.h).
//
//     Ref type = RuntimeBinding<Host>::make_type(module, "deep_jit._core.HostRuntime");
//
// Errors: as errors.h maps them.
// Thread-safety: all methods may be called from many threads at once; the C++ runtime is made by
// the first that needs it.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deep_jit/base/lazy_init.hpp"
#include "deep_jit/base/parallel_calls.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/runtime.hpp"

#include "python/bindings/cache_info.h"
#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/gil.h"
#include "python/bindings/instance.h"
#include "python/bindings/object.h"
#include "python/bindings/options.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

template <class B>
class RuntimeBinding {
 public:
  // `make_kernel(state, runtime, kernel)` is found by the kernel's type.
  static Ref make_type(PyObject* module, const char* name);

 private:
  using Options = typename B::CompilerOptions;

  struct Data {
    LazyInit<Runtime<B>> lazy{nullptr};
    // What `lazy` made, once a call has seen it. Guarded by the GIL: cache_info() must not make the
    // runtime.
    std::shared_ptr<Runtime<B>> made = nullptr;
  };

  using Kernel = typename B::Kernel;

  // The Python objects of the kernels that were asked for. They do not know this one: no cycle. The
  // C++ runtime keeps the kernels as long in any case.
  using Kernels = std::unordered_map<const Kernel*, Ref>;
  struct RuntimeInstance {
    Instance<Data> base;
    Kernels kernels;
  };

  struct Request {
    std::string name;
    std::string source;
    Options options;
  };

  static void require_count(Py_ssize_t given, Py_ssize_t expected, const char* function);
  // (name, source, dict of options).
  static Request to_request(PyObject* const* arguments, const char* function);
  static std::vector<Request> to_requests(PyObject* sequence);
  template <class Work>
  static auto with_runtime(Data& data, const Work& work);

  // One object per kernel: what it has learned of its launches is there when it is asked for again.
  static Ref to_python(State& state, PyObject* self, std::shared_ptr<Kernel> kernel);

  static PyObject* construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords);
  static PyObject* compile(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* compile_many(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* compile_without_load(PyObject* self, PyObject* const* arguments,
                                        Py_ssize_t count);
  static PyObject* cache_key(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* explain_key(PyObject* self, PyObject* const* arguments, Py_ssize_t count);
  static PyObject* cache_info(PyObject* self, PyObject*);
  static void dealloc(PyObject* self);

  // What METH_FASTCALL functions are to CPython.
  template <class Function>
  static PyCFunction fast(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
  }
};

// --- Inline implementations ---

template <class B>
void RuntimeBinding<B>::require_count(Py_ssize_t given, Py_ssize_t expected, const char* function) {
  if (given == expected) return;
  PyErr_Format(PyExc_TypeError, "%s() takes %zd positional arguments, %zd given", function,
               expected, given);
  throw PythonError{};
}

template <class B>
auto RuntimeBinding<B>::to_request(PyObject* const* arguments, const char* function) -> Request {
  return {.name = to_utf8(arguments[0], "name"),
          .source = to_utf8(arguments[1], "source"),
          .options = to_options<Options>(arguments[2], function)};
}

template <class B>
auto RuntimeBinding<B>::to_requests(PyObject* sequence) -> std::vector<Request> {
  std::vector<Request> requests;
  const Ref items = checked(PySequence_List(sequence));
  const Py_ssize_t count = PyList_Size(items.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref parts = checked(PySequence_List(PyList_GetItem(items.get(), i)));
    require_count(PyList_Size(parts.get()), 3, "each request of compile_many");
    PyObject* const arguments[] = {PyList_GetItem(parts.get(), 0), PyList_GetItem(parts.get(), 1),
                                   PyList_GetItem(parts.get(), 2)};
    try {
      requests.push_back(to_request(arguments, "compile"));
    } catch (const PythonError&) {
      add_place(i);
      throw;
    }
  }
  return requests;
}

// Runs `work(runtime)` without the GIL; the first call makes the runtime.
template <class B>
template <class Work>
auto RuntimeBinding<B>::with_runtime(Data& data, const Work& work) {
  std::shared_ptr<Runtime<B>> runtime = data.made;
  auto result = without_gil([&] {
    if (runtime == nullptr) runtime = data.lazy.get();
    return work(*runtime);
  });
  data.made = std::move(runtime);
  return result;
}

template <class B>
Ref RuntimeBinding<B>::to_python(State& state, PyObject* self, std::shared_ptr<Kernel> kernel) {
  Ref& known = reinterpret_cast<RuntimeInstance*>(self)->kernels[kernel.get()];
  if (!known) known = make_kernel(state, data_of<Data>(self).made, std::move(kernel));
  return Ref::borrow(known.get());
}

template <class B>
PyObject* RuntimeBinding<B>::construct(PyTypeObject* type, PyObject* arguments,
                                       PyObject* keywords) {
  State& state = *static_cast<State*>(PyType_GetModuleState(type));
  return guarded(state, [&]() -> PyObject* {
    if (keywords != nullptr && PyDict_Size(keywords) != 0) {
      PyErr_SetString(PyExc_TypeError, "it takes no keyword arguments; use deep_jit.Runtime");
      throw PythonError{};
    }
    require_count(PyTuple_Size(arguments), 9, "Runtime");
    const auto argument = [arguments](Py_ssize_t index) {
      return PyTuple_GetItem(arguments, index);
    };
    const std::string mode = to_utf8(argument(7), "dependency_mode");
    if (mode != "tracked" && mode != "verified") {
      PyErr_Format(PyExc_ValueError, "dependency_mode must be 'tracked' or 'verified', not %R",
                   argument(7));
      throw PythonError{};
    }
    Config config(
        to_path(argument(0), "library_root"), to_native(argument(1), "env_prefix"),
        to_utf8(argument(2), "extra_signature"), to_path_list(argument(3), "include_dirs"),
        to_native_list(argument(4), "include_prefixes"),
        to_native(argument(5), "python_executable"), to_path_list(argument(6), "cache_dirs"),
        mode == "verified" ? DependencyMode::kVerified : DependencyMode::kTracked,
        to_path(argument(8), "toolkit_root"));
    auto data = std::make_shared<Data>();
    data->lazy = create_lazy_jit<B>(std::move(config));
    PyObject* self = make_instance<Data>(reinterpret_cast<PyObject*>(type), std::move(data));
    new (&reinterpret_cast<RuntimeInstance*>(self)->kernels) Kernels();
    return self;
  });
}

template <class B>
PyObject* RuntimeBinding<B>::compile(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  State& state = state_of(self);
  return guarded(state, [&] {
    require_count(count, 3, "compile");
    const Request request = to_request(arguments, "compile");
    Data& data = data_of<Data>(self);
    auto kernel = with_runtime(data, [&](Runtime<B>& runtime) {
      return runtime.compile(request.name, request.source, request.options);
    });
    return to_python(state, self, std::move(kernel)).release();
  });
}

template <class B>
PyObject* RuntimeBinding<B>::compile_without_load(PyObject* self, PyObject* const* arguments,
                                                  Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 3, "compile_without_load");
    const Request request = to_request(arguments, "compile_without_load");
    const std::filesystem::path path = with_runtime(data_of<Data>(self), [&](Runtime<B>& runtime) {
      return runtime.compile_without_load(request.name, request.source, request.options);
    });
    return from_native(path.native()).release();
  });
}

// A list with a kernel, or the exception that stands for it, for each request.
template <class B>
PyObject* RuntimeBinding<B>::compile_many(PyObject* self, PyObject* const* arguments,
                                          Py_ssize_t count) {
  State& state = state_of(self);
  return guarded(state, [&] {
    require_count(count, 2, "compile_many");
    const std::vector<Request> requests = to_requests(arguments[0]);
    const std::size_t jobs = PyLong_AsSize_t(arguments[1]);
    if (PyErr_Occurred() != nullptr) throw PythonError{};
    Data& data = data_of<Data>(self);
    std::vector<std::shared_ptr<Kernel>> kernels(requests.size());
    const std::vector<std::exception_ptr> errors = with_runtime(data, [&](Runtime<B>& runtime) {
      return call_in_parallel(requests.size(), jobs, [&](std::size_t i) {
        const Request& request = requests[i];
        kernels[i] = runtime.compile(request.name, request.source, request.options);
      });
    });
    Ref results = checked(PyList_New(0));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Ref result = errors[i] != nullptr ? to_python_exception(state, errors[i])
                                              : to_python(state, self, std::move(kernels[i]));
      if (PyList_Append(results.get(), result.get()) != 0) throw PythonError{};
    }
    return results.release();
  });
}

template <class B>
PyObject* RuntimeBinding<B>::cache_key(PyObject* self, PyObject* const* arguments,
                                       Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 2, "cache_key");
    const std::string source = to_utf8(arguments[0], "source");
    const auto options = to_options<Options>(arguments[1], "cache_key");
    const std::string key = with_runtime(data_of<Data>(self), [&](Runtime<B>& runtime) {
      return runtime.cache_key(source, runtime.default_compiler_options.override_with(options));
    });
    return from_output(key).release();
  });
}

template <class B>
PyObject* RuntimeBinding<B>::explain_key(PyObject* self, PyObject* const* arguments,
                                         Py_ssize_t count) {
  return guarded(state_of(self), [&] {
    require_count(count, 2, "explain_key");
    const std::string source = to_utf8(arguments[0], "source");
    const auto options = to_options<Options>(arguments[1], "explain_key");
    const std::string text = with_runtime(data_of<Data>(self), [&](Runtime<B>& runtime) {
      return runtime.explain_key(source, runtime.default_compiler_options.override_with(options));
    });
    return from_output(text).release();
  });
}

template <class B>
PyObject* RuntimeBinding<B>::cache_info(PyObject* self, PyObject*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    const Runtime<B>* runtime = data_of<Data>(self).made.get();
    return make_cache_info(state, runtime != nullptr ? &runtime->disk_cache.counters() : nullptr)
        .release();
  });
}

template <class B>
void RuntimeBinding<B>::dealloc(PyObject* self) {
  std::destroy_at(&reinterpret_cast<RuntimeInstance*>(self)->kernels);
  dealloc_instance<Data>(self);
}

template <class B>
Ref RuntimeBinding<B>::make_type(PyObject* module, const char* name) {
  static PyMethodDef methods[] = {
      {"compile", fast(&compile), METH_FASTCALL, "compile(name, source, options, /) -> Kernel"},
      {"compile_many", fast(&compile_many), METH_FASTCALL,
       "compile_many(requests, jobs, /) -> list[Kernel | Exception]"},
      {"compile_without_load", fast(&compile_without_load), METH_FASTCALL,
       "compile_without_load(name, source, options, /) -> str"},
      {"cache_key", fast(&cache_key), METH_FASTCALL, "cache_key(source, options, /) -> str"},
      {"explain_key", fast(&explain_key), METH_FASTCALL, "explain_key(source, options, /) -> str"},
      {"cache_info", cache_info, METH_NOARGS, "cache_info() -> CacheInfo"},
      {nullptr, nullptr, 0, nullptr},
  };
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("The runtime of one backend; use deep_jit.Runtime.")},
      {Py_tp_new, reinterpret_cast<void*>(&construct)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  PyType_Spec spec = {name, sizeof(RuntimeInstance), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
  return checked(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace deep_jit::python
