// SPDX-License-Identifier: MIT
#include "python/bindings/kernel_type.h"

#include <cstddef>
#include <cstdint>
#include <format>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/arguments.h"
#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/gil.h"
#include "python/bindings/instance.h"
#include "python/bindings/launch_options.h"

namespace deep_jit::python {
namespace {

using host::Dim3;
using host::LaunchOptions;

// The order matters: the kernel goes before the runtime that made it.
struct KernelData {
  std::shared_ptr<HostRuntime> runtime;
  std::shared_ptr<Host::Kernel> kernel;
  Signature signature;
};

struct BoundData {
  std::shared_ptr<KernelData> kernel;
  LaunchOptions options;  // Whole: the defaults are in it.
};

// --- Launching ---

void launch(State& state, const KernelData& data, const LaunchOptions& options,
            PyObject* const* arguments, Py_ssize_t count) {
  ArgumentPack pack(state, data.signature, arguments, count);
  const GilRelease released;
  data.kernel->launch_raw(options, pack.pointers(), pack.size());
}

// --- BoundLaunch ---

PyObject* bound_launch(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                       PyObject* names) {
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
            set_launch_option(options, kernel, "launch", PyTuple_GetItem(names, i),
                              arguments[count + i]);
          }
          launch(state, *bound.kernel, options, arguments, count);
        }
        return Ref::borrow(Py_None).release();
      },
      static_cast<PyObject*>(nullptr), kernel);
}

PyMethodDef kBoundLaunchMethod = {
    "launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&bound_launch)),
    METH_FASTCALL | METH_KEYWORDS,
    "launch($self, /, *args, num_smem_bytes=None, num_threads=None)\n--\n\n"
    "Runs the kernel with these arguments and waits until it is done. See deep_jit.Kernel."};

PyObject* dim3_to_python(const std::optional<Dim3>& dim) {
  const Dim3 value = dim.value_or(Dim3{});
  return Py_BuildValue("(III)", value.x, value.y, value.z);
}

PyObject* bound_grid(PyObject* self, void*) {
  return dim3_to_python(data_of<BoundData>(self).options.grid_dim);
}

PyObject* bound_block(PyObject* self, void*) {
  return dim3_to_python(data_of<BoundData>(self).options.block_dim);
}

PyGetSetDef kBoundGetters[] = {
    {"grid", bound_grid, nullptr, "Blocks per dimension, (x, y, z).", nullptr},
    {"block", bound_block, nullptr, "Threads per block and dimension, (x, y, z).", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef kBoundMethods[] = {kBoundLaunchMethod, {nullptr, nullptr, 0, nullptr}};

PyType_Slot kBoundSlots[] = {
    {Py_tp_doc,
     const_cast<char*>("A kernel with a grid and a block: what kernel[grid, block] launches.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_instance<BoundData>)},
    {Py_tp_methods, kBoundMethods},
    {Py_tp_getset, kBoundGetters},
    {0, nullptr},
};

PyType_Spec kBoundSpec = {
    "deep_jit.BoundLaunch", sizeof(Instance<BoundData>), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, kBoundSlots};

// --- Kernel ---

PyObject* kernel_subscript(PyObject* self, PyObject* key) {
  State& state = state_of(self);
  const auto& data = shared_data_of<KernelData>(self);
  return guarded(
      state,
      [&] {
        const Signature& signature = data->signature;
        if (!PyTuple_Check(key) || PyTuple_Size(key) != 2) {
          throw ArgumentError{
              std::format("cannot launch kernel `{}`: grid and block dimension must be specified, "
                          "as in kernel[grid, block](...)",
                          signature.kernel),
              signature.kernel, std::nullopt};
        }
        auto bound = std::make_shared<BoundData>();
        bound->kernel = data;
        bound->options = data->runtime->default_launch_options;
        bound->options.grid_dim = to_dim3<Dim3>(signature.kernel, PyTuple_GetItem(key, 0), "grid");
        bound->options.block_dim =
            to_dim3<Dim3>(signature.kernel, PyTuple_GetItem(key, 1), "block");
        const Ref object{make_instance<BoundData>(state.bound_launch_type, std::move(bound))};
        return checked(PyCFunction_NewEx(&kBoundLaunchMethod, object.get(), nullptr)).release();
      },
      static_cast<PyObject*>(nullptr), data->signature.kernel);
}

PyObject* kernel_launch(PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* names) {
  State& state = state_of(self);
  const KernelData& data = data_of<KernelData>(self);
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
            set_launch_option(options, kernel, "launch", name, value);
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

PyObject* kernel_name(PyObject* self, void*) {
  return guarded(state_of(self),
                 [&] { return from_output(data_of<KernelData>(self).signature.kernel).release(); });
}

Ref make_param(State& state, const Parameter& parameter) {
  Ref param = checked(PyStructSequence_New(reinterpret_cast<PyTypeObject*>(state.param_type)));
  Py_ssize_t index = 0;
  const auto add = [&](Ref value) {
    PyStructSequence_SetItem(param.get(), index++, value.release());
  };
  const bool is_pointer = parameter.kind == ParameterKind::kPointer;
  add(checked(PyUnicode_FromString(kind_name(parameter.kind))));
  add(checked(PyLong_FromSize_t(parameter.size)));
  add(checked(PyLong_FromSize_t(parameter.alignment)));
  add(is_pointer ? checked(PyUnicode_FromString(kind_name(parameter.element_kind)))
                 : Ref::borrow(Py_None));
  add(is_pointer ? checked(PyLong_FromSize_t(parameter.element_size)) : Ref::borrow(Py_None));
  add(is_pointer ? checked(PyBool_FromLong(parameter.element_is_const)) : Ref::borrow(Py_None));
  return param;
}

PyObject* kernel_params(PyObject* self, void*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    const auto& parameters = data_of<KernelData>(self).signature.parameters;
    Ref params = checked(PyTuple_New(static_cast<Py_ssize_t>(parameters.size())));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Ref param = make_param(state, parameters[i]);
      if (PyTuple_SetItem(params.get(), static_cast<Py_ssize_t>(i), param.release()) != 0)
        throw PythonError{};
    }
    return params.release();
  });
}

PyObject* kernel_repr(PyObject* self) {
  return guarded(state_of(self), [&] {
    const Signature& signature = data_of<KernelData>(self).signature;
    return from_output(std::format("<deep_jit.Kernel '{}' with {} parameters>", signature.kernel,
                                   signature.parameters.size()))
        .release();
  });
}

// Two Kernel objects are equal when they stand for the same loaded kernel.
PyObject* kernel_compare(PyObject* self, PyObject* other, int operation) {
  if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) {
    return Ref::borrow(Py_NotImplemented).release();
  }
  const bool same = data_of<KernelData>(self).kernel == data_of<KernelData>(other).kernel;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

Py_hash_t kernel_hash(PyObject* self) {
  // The low bits of an address are zero; -1 is CPython's error value.
  const auto address = reinterpret_cast<std::uintptr_t>(data_of<KernelData>(self).kernel.get());
  return static_cast<Py_hash_t>(address >> 4);
}

PyGetSetDef kKernelGetters[] = {
    {"name", kernel_name, nullptr, "Name of the kernel function in the source.", nullptr},
    {"params", kernel_params, nullptr, "Its parameters in order, a tuple of deep_jit.Param.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef kKernelMethods[] = {
    {"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&kernel_launch)),
     METH_FASTCALL | METH_KEYWORDS,
     "launch($self, /, *, grid, block, args=(), num_smem_bytes=None, num_threads=None)\n--\n\n"
     "Runs the kernel and waits until it is done; the GIL is released meanwhile.\n\n"
     "Args:\n"
     "    grid: blocks, an int or a tuple (x, y, z) of up to three.\n"
     "    block: threads per block, an int or a tuple of up to three.\n"
     "    args: one argument per parameter; see the class.\n"
     "    num_smem_bytes: dynamic shared memory of each block; None: none.\n"
     "    num_threads: operating system threads that run blocks at once, the calling one "
     "included;\n"
     "        None: <PREFIX>_JIT_NUM_THREADS, or as many as the machine runs at once.\n\n"
     "Raises:\n"
     "    LaunchError: wrong dimensions or arguments, or the kernel threw a C++ exception."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot kKernelSlots[] = {
    {Py_tp_doc,
     const_cast<char*>(
         "A compiled and loaded kernel. Made by Runtime.compile.\n\n"
         "    kernel[grid, block](out, x, n)\n\n"
         "runs grid x block threads and returns when all are done. Grid and block "
         "are ints or tuples of up to\n"
         "three; num_smem_bytes= and num_threads= may follow the arguments, as in launch(). "
         "Arguments are converted to exactly the width and kind of their "
         "parameter, or refused:\n\n"
         "- pointer: a NumPy array, a torch CPU tensor, or an object with DLPack, the "
         "array interface or the\n"
         "  buffer protocol (array.array, bytearray, ctypes arrays); on the CPU, "
         "C-contiguous, of the element\n"
         "  type that the kernel reads (pointers to void, one byte or a struct take "
         "any), writeable unless it\n"
         "  is a pointer to const; None is the null pointer. The kernel works on the "
         "array's own memory: its\n"
         "  shape is not checked.\n"
         "- integer: int, bool, NumPy integer, within range. bool: bool, 0 or 1.\n"
         "- float: float, int, NumPy scalar; rounded, within range.\n"
         "- struct, 16-bit float: bytes, a ctypes structure or another buffer of exactly "
         "the parameter's size.\n\n"
         "Raises LaunchError naming the kernel and the parameter (counted from 0). "
         "Thread-safe: launches from\n"
         "several threads run side by side. Equal and hashed by the loaded kernel.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_instance<KernelData>)},
    {Py_tp_repr, reinterpret_cast<void*>(&kernel_repr)},
    {Py_tp_richcompare, reinterpret_cast<void*>(&kernel_compare)},
    {Py_tp_hash, reinterpret_cast<void*>(&kernel_hash)},
    {Py_mp_subscript, reinterpret_cast<void*>(&kernel_subscript)},
    {Py_tp_methods, kKernelMethods},
    {Py_tp_getset, kKernelGetters},
    {0, nullptr},
};

PyType_Spec kKernelSpec = {
    "deep_jit.Kernel", sizeof(Instance<KernelData>), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    kKernelSlots};

PyStructSequence_Field kParamFields[] = {
    {"kind", "'pointer', 'bool', 'signed', 'unsigned', 'float' or 'struct'"},
    {"size", "bytes"},
    {"alignment", "bytes"},
    {"element_kind",
     "what a pointer points to ('unknown': void or incomplete); None when it is no pointer"},
    {"element_size", "bytes; 0 when unknown; None when it is no pointer"},
    {"element_is_const",
     "whether the kernel only reads through the pointer; None when it is no pointer"},
    {nullptr, nullptr},
};

PyStructSequence_Desc kParamDescription = {"deep_jit.Param", "One parameter of a kernel.",
                                           kParamFields, 6};

ParameterKind to_kind(std::uint32_t kind) {
  switch (kind) {
    case host::abi::kPointer:
      return ParameterKind::kPointer;
    case host::abi::kBool:
      return ParameterKind::kBool;
    case host::abi::kSigned:
      return ParameterKind::kSigned;
    case host::abi::kUnsigned:
      return ParameterKind::kUnsigned;
    case host::abi::kFloat:
      return ParameterKind::kFloat;
    case host::abi::kStruct:
      return ParameterKind::kStruct;
    default:
      return ParameterKind::kUnknown;
  }
}

}  // namespace

Ref make_kernel(State& state, std::shared_ptr<HostRuntime> runtime,
                std::shared_ptr<Host::Kernel> kernel) {
  auto data = std::make_shared<KernelData>();
  data->signature.kernel = kernel->name();
  for (const auto& parameter : kernel->params()) {
    data->signature.parameters.push_back(
        {.kind = to_kind(parameter.kind),
         .size = static_cast<std::size_t>(parameter.size),
         .alignment = static_cast<std::size_t>(parameter.alignment),
         .element_kind = to_kind(parameter.element_kind),
         .element_size = static_cast<std::size_t>(parameter.element_size),
         .element_is_const = parameter.element_is_const != 0});
  }
  data->runtime = std::move(runtime);
  data->kernel = std::move(kernel);
  return Ref{make_instance<KernelData>(state.kernel_type, std::move(data))};
}

void add_kernel_types(PyObject* module, State& state) {
  const auto add = [module](Ref type) {
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
      throw PythonError{};
    return type.release();
  };
  state.kernel_type = add(checked(PyType_FromModuleAndSpec(module, &kKernelSpec, nullptr)));
  state.bound_launch_type = add(checked(PyType_FromModuleAndSpec(module, &kBoundSpec, nullptr)));
  state.param_type =
      add(checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&kParamDescription))));
}

}  // namespace deep_jit::python
