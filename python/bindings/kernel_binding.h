// SPDX-License-Identifier: MIT
//
// KernelBinding<Traits>: the Python types of a loaded kernel and of its launches, for any backend.
//
// `kernel[grid, block]` makes a bound launch and returns its `launch` method, a METH_FASTCALL
// function: a call of it builds no tuple and no dict. The last few are kept with the kernel, so
// that the next `kernel[grid, block]` of the same shape allocates nothing. Knows nothing of
// compiling; see runtime_binding.h.
//
// Traits of a backend:
//     using Backend = Host;
//     static constexpr const char* kKernelName, *kBoundName, *kDoc, *kLaunchDoc, *kBoundLaunchDoc;
//     static Signature make_signature(const Kernel& kernel);
//     static PyGetSetDef kGetters[];                    // "params" and what else there is
//     static PyObject*& bound_type(State& state);       // where the types are kept
//
// Errors: deep_jit.LaunchError.
// Thread-safety: a kernel may be launched from many threads at once; the GIL is released while the
// backend launches it, also where that hardly takes longer than releasing it: a driver whose queue
// is full waits, perhaps for work that needs the GIL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deep_jit/runtime/runtime.hpp"

#include "python/bindings/arguments.h"
#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/gil.h"
#include "python/bindings/instance.h"
#include "python/bindings/launch_options.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

template <class Traits>
class KernelBinding {
 public:
  using Backend = typename Traits::Backend;
  using Kernel = typename Backend::Kernel;
  using LaunchOptions = typename Backend::LaunchOptions;
  using Dim3 = typename decltype(LaunchOptions::grid_dim)::value_type;

  // The order matters: the kernel goes before the runtime that made it.
  struct Data {
    std::shared_ptr<Runtime<Backend>> runtime;
    std::shared_ptr<Kernel> kernel;
    Signature signature;
  };

  static Ref make_kernel_type(PyObject* module);
  static Ref make_bound_type(PyObject* module);

  // `runtime` gives the default launch options.
  static Ref make(PyObject* type, std::shared_ptr<Runtime<Backend>> runtime,
                  std::shared_ptr<Kernel> kernel);

  static const Data& data(PyObject* self) { return data_of<Data>(self); }

 private:
  struct BoundData {
    std::shared_ptr<Data> kernel;
    LaunchOptions options;  // Whole: the defaults are in it.
  };

  // kernel[grid, block] as it was asked for last.
  struct Kept {
    Dim3 grid;
    Dim3 block;
    PyObject* launch;  // Owned; it does not know the kernel object, so that there is no cycle.
  };
  static constexpr std::size_t kKept = 4;

  struct KernelInstance {
    Instance<Data> base;
    std::array<Kept, kKept> kept;  // The latest first; null launches at the end.
  };

  static bool is_same(const Dim3& one, const Dim3& other) {
    return one.x == other.x && one.y == other.y && one.z == other.z;
  }

  static void launch(State& state, const Data& data, const LaunchOptions& options,
                     PyObject* const* arguments, Py_ssize_t count);
  static PyObject* bound_launch(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                                PyObject* names);
  static PyObject* bound_grid(PyObject* self, void*);
  static PyObject* bound_block(PyObject* self, void*);
  static PyMethodDef* bound_launch_method();

  static PyObject* find_kept(KernelInstance& self, const Dim3& grid, const Dim3& block);
  static PyObject* subscript(PyObject* self, PyObject* key);
  static PyObject* kernel_launch(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                                 PyObject* names);
  static PyObject* repr(PyObject* self);
  static PyObject* compare(PyObject* self, PyObject* other, int operation);
  static Py_hash_t hash(PyObject* self);
  static void dealloc(PyObject* self);
};

// --- Inline implementations ---

template <class Traits>
void KernelBinding<Traits>::launch(State& state, const Data& data, const LaunchOptions& options,
                                   PyObject* const* arguments, Py_ssize_t count) {
  ArgumentPack pack(state, data.signature, arguments, count);
  const GilRelease released;
  data.kernel->launch_raw(options, pack.pointers(), pack.size());
}

template <class Traits>
PyObject* KernelBinding<Traits>::bound_launch(PyObject* self, PyObject* const* arguments,
                                              Py_ssize_t count, PyObject* names) {
  State& state = state_of(self);
  const BoundData& bound = data_of<BoundData>(self);
  const std::string& kernel = bound.kernel->signature.kernel;
  return guarded(
      state,
      [&] {
        if (names == nullptr) {
          launch(state, *bound.kernel, bound.options, arguments, count);
        } else {
          LaunchOptions options = bound.options;
          for (Py_ssize_t i = 0; i < PyTuple_Size(names); ++i) {
            set_launch_option(state, options, kernel, "launch", PyTuple_GetItem(names, i),
                              arguments[count + i]);
          }
          launch(state, *bound.kernel, options, arguments, count);
        }
        return Ref::borrow(Py_None).release();
      },
      static_cast<PyObject*>(nullptr), kernel);
}

template <class Traits>
PyObject* KernelBinding<Traits>::bound_grid(PyObject* self, void*) {
  const Dim3& grid = *data_of<BoundData>(self).options.grid_dim;
  return Py_BuildValue("(III)", grid.x, grid.y, grid.z);
}

template <class Traits>
PyObject* KernelBinding<Traits>::bound_block(PyObject* self, void*) {
  const Dim3& block = *data_of<BoundData>(self).options.block_dim;
  return Py_BuildValue("(III)", block.x, block.y, block.z);
}

template <class Traits>
PyMethodDef* KernelBinding<Traits>::bound_launch_method() {
  static PyMethodDef methods[] = {
      {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&bound_launch)),
       METH_FASTCALL | METH_KEYWORDS, Traits::kBoundLaunchDoc},
      {nullptr, nullptr, 0, nullptr},
  };
  return methods;
}

// Moves what it finds to the front.
template <class Traits>
PyObject* KernelBinding<Traits>::find_kept(KernelInstance& self, const Dim3& grid,
                                           const Dim3& block) {
  for (std::size_t i = 0; i < kKept && self.kept[i].launch != nullptr; ++i) {
    if (!is_same(self.kept[i].grid, grid) || !is_same(self.kept[i].block, block)) continue;
    for (; i > 0; --i) std::swap(self.kept[i], self.kept[i - 1]);
    return self.kept[0].launch;
  }
  return nullptr;
}

template <class Traits>
PyObject* KernelBinding<Traits>::subscript(PyObject* self, PyObject* key) {
  State& state = state_of(self);
  const auto& data = shared_data_of<Data>(self);
  const std::string& kernel = data->signature.kernel;
  return guarded(
      state,
      [&]() -> PyObject* {
        if (!PyTuple_Check(key) || PyTuple_Size(key) != 2) {
          throw ArgumentError{
              std::format("cannot launch kernel `{}`: grid and block dimension must be specified, "
                          "as in kernel[grid, block](...)",
                          kernel),
              kernel, std::nullopt};
        }
        auto& kept = reinterpret_cast<KernelInstance*>(self)->kept;
        const Dim3 grid = to_dim3<Dim3>(kernel, PyTuple_GetItem(key, 0), "grid");
        const Dim3 block = to_dim3<Dim3>(kernel, PyTuple_GetItem(key, 1), "block");
        if (PyObject* const known =
                find_kept(*reinterpret_cast<KernelInstance*>(self), grid, block))
          return Ref::borrow(known).release();
        auto bound = std::make_shared<BoundData>();
        bound->kernel = data;
        bound->options = data->runtime->default_launch_options;
        bound->options.grid_dim = grid;
        bound->options.block_dim = block;
        const Ref object{make_instance<BoundData>(Traits::bound_type(state), std::move(bound))};
        Ref launch = checked(PyCFunction_NewEx(bound_launch_method(), object.get(), nullptr));
        const Ref oldest{kept[kKept - 1].launch};
        for (std::size_t i = kKept - 1; i > 0; --i) kept[i] = kept[i - 1];
        kept[0] = {grid, block, Ref::borrow(launch.get()).release()};
        return launch.release();
      },
      static_cast<PyObject*>(nullptr), kernel);
}

template <class Traits>
PyObject* KernelBinding<Traits>::kernel_launch(PyObject* self, PyObject* const* arguments,
                                               Py_ssize_t count, PyObject* names) {
  State& state = state_of(self);
  const Data& data = data_of<Data>(self);
  const std::string& kernel = data.signature.kernel;
  return guarded(
      state,
      [&] {
        if (count != 0) {
          PyErr_SetString(PyExc_TypeError,
                          "launch() takes keyword arguments only: grid, block, args and options");
          throw PythonError{};
        }
        LaunchOptions options = data.runtime->default_launch_options;
        // A list of our own: the caller's may be changed by another thread while the kernel runs.
        Ref list;
        for (Py_ssize_t i = 0; i < (names != nullptr ? PyTuple_Size(names) : 0); ++i) {
          PyObject* const name = PyTuple_GetItem(names, i);
          PyObject* const value = arguments[i];
          const auto is = [name](const char* text) {
            return PyUnicode_CompareWithASCIIString(name, text) == 0;
          };
          if (is("grid")) {
            if (value != Py_None) options.grid_dim = to_dim3<Dim3>(kernel, value, "grid");
          } else if (is("block")) {
            if (value != Py_None) options.block_dim = to_dim3<Dim3>(kernel, value, "block");
          } else if (!is("args")) {
            set_launch_option(state, options, kernel, "launch", name, value);
          } else if (PyTuple_Check(value) || PyList_Check(value)) {
            list = checked(PySequence_List(value));
          } else {
            PyErr_Format(PyExc_TypeError,
                         "args must be a tuple or a list of the kernel's arguments, not %R",
                         reinterpret_cast<PyObject*>(Py_TYPE(value)));
            throw PythonError{};
          }
        }
        std::vector<PyObject*> items(list ? static_cast<std::size_t>(PyList_Size(list.get()))
                                          : std::size_t{0});
        for (std::size_t i = 0; i < items.size(); ++i) {
          items[i] = PyList_GetItem(list.get(), static_cast<Py_ssize_t>(i));
        }
        launch(state, data, options, items.data(), static_cast<Py_ssize_t>(items.size()));
        return Ref::borrow(Py_None).release();
      },
      static_cast<PyObject*>(nullptr), kernel);
}

template <class Traits>
PyObject* KernelBinding<Traits>::repr(PyObject* self) {
  return guarded(state_of(self), [&] {
    const Signature& signature = data(self).signature;
    return from_output(std::format("<{} '{}' with {} parameters>", Traits::kKernelName,
                                   signature.kernel, signature.parameters.size()))
        .release();
  });
}

// Two kernel objects are equal when they stand for the same loaded kernel.
template <class Traits>
PyObject* KernelBinding<Traits>::compare(PyObject* self, PyObject* other, int operation) {
  if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) {
    return Ref::borrow(Py_NotImplemented).release();
  }
  const bool same = data(self).kernel == data(other).kernel;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

template <class Traits>
Py_hash_t KernelBinding<Traits>::hash(PyObject* self) {
  // The low bits of an address are zero; -1 is CPython's error value.
  const auto address = reinterpret_cast<std::uintptr_t>(data(self).kernel.get());
  return static_cast<Py_hash_t>(address >> 4);
}

template <class Traits>
void KernelBinding<Traits>::dealloc(PyObject* self) {
  for (Kept& kept : reinterpret_cast<KernelInstance*>(self)->kept) Py_CLEAR(kept.launch);
  dealloc_instance<Data>(self);
}

template <class Traits>
Ref KernelBinding<Traits>::make(PyObject* type, std::shared_ptr<Runtime<Backend>> runtime,
                                std::shared_ptr<Kernel> kernel) {
  auto data = std::make_shared<Data>();
  data->signature = Traits::make_signature(*kernel);
  data->runtime = std::move(runtime);
  data->kernel = std::move(kernel);
  return Ref{make_instance<Data>(type, std::move(data))};  // CPython zeroes the rest.
}

template <class Traits>
Ref KernelBinding<Traits>::make_kernel_type(PyObject* module) {
  static PyMethodDef methods[] = {
      {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&kernel_launch)),
       METH_FASTCALL | METH_KEYWORDS, Traits::kLaunchDoc},
      {nullptr, nullptr, 0, nullptr},
  };
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>(Traits::kDoc)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
      {Py_tp_repr, reinterpret_cast<void*>(&repr)},
      {Py_tp_richcompare, reinterpret_cast<void*>(&compare)},
      {Py_tp_hash, reinterpret_cast<void*>(&hash)},
      {Py_mp_subscript, reinterpret_cast<void*>(&subscript)},
      {Py_tp_methods, methods},
      {Py_tp_getset, Traits::kGetters},
      {0, nullptr},
  };
  PyType_Spec spec = {
      Traits::kKernelName, sizeof(KernelInstance), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};
  return checked(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

template <class Traits>
Ref KernelBinding<Traits>::make_bound_type(PyObject* module) {
  static PyGetSetDef getters[] = {
      {"grid", &bound_grid, nullptr, "Blocks per dimension, (x, y, z).", nullptr},
      {"block", &bound_block, nullptr, "Threads per block and dimension, (x, y, z).", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr},
  };
  PyType_Slot slots[] = {
      {Py_tp_doc,
       const_cast<char*>("A kernel with a grid and a block: what kernel[grid, block] launches.")},
      {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_instance<BoundData>)},
      {Py_tp_methods, bound_launch_method()},
      {Py_tp_getset, getters},
      {0, nullptr},
  };
  PyType_Spec spec = {
      Traits::kBoundName, sizeof(Instance<BoundData>), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};
  return checked(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace deep_jit::python
