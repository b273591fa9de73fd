// SPDX-License-Identifier: MIT
#include "python/bindings/kernel_type.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "python/bindings/arguments.h"
#include "python/bindings/convert.h"
#include "python/bindings/errors.h"
#include "python/bindings/kernel_binding.h"

namespace deep_jit::python {
namespace {

struct HostKernelTraits {
  using Backend = Host;

  static constexpr const char* kKernelName = "deep_jit.Kernel";
  static constexpr const char* kBoundName = "deep_jit.BoundLaunch";
  static constexpr const char* kDoc =
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
      "several threads run side by side. Equal and hashed by the loaded kernel.";
  static constexpr const char* kLaunchDoc =
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
      "    LaunchError: wrong dimensions or arguments, or the kernel threw a C++ exception.";
  static constexpr const char* kBoundLaunchDoc =
      "launch($self, /, *args, num_smem_bytes=None, num_threads=None)\n--\n\n"
      "Runs the kernel with these arguments and waits until it is done. See deep_jit.Kernel.";

  static PyGetSetDef kGetters[];

  static PyObject*& bound_type(State& state) { return state.bound_launch_type; }
  static Signature make_signature(const Host::Kernel& kernel);
};

using Binding = KernelBinding<HostKernelTraits>;

// --- Parameters ---

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

Signature HostKernelTraits::make_signature(const Host::Kernel& kernel) {
  Signature signature{.kernel = kernel.name(), .parameters = {}};
  for (const auto& parameter : kernel.params()) {
    signature.parameters.push_back(
        {.kind = to_kind(parameter.kind),
         .size = static_cast<std::size_t>(parameter.size),
         .alignment = static_cast<std::size_t>(parameter.alignment),
         .element_kind = to_kind(parameter.element_kind),
         .element_size = static_cast<std::size_t>(parameter.element_size),
         .element_is_const = parameter.element_is_const != 0});
  }
  return signature;
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

PyObject* kernel_name(PyObject* self, void*) {
  return guarded(state_of(self),
                 [&] { return from_output(Binding::data(self).signature.kernel).release(); });
}

PyObject* kernel_params(PyObject* self, void*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    const auto& parameters = Binding::data(self).signature.parameters;
    Ref params = checked(PyTuple_New(static_cast<Py_ssize_t>(parameters.size())));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Ref param = make_param(state, parameters[i]);
      if (PyTuple_SetItem(params.get(), static_cast<Py_ssize_t>(i), param.release()) != 0)
        throw PythonError{};
    }
    return params.release();
  });
}

PyGetSetDef HostKernelTraits::kGetters[] = {
    {"name", kernel_name, nullptr, "Name of the kernel function in the source.", nullptr},
    {"params", kernel_params, nullptr, "Its parameters in order, a tuple of deep_jit.Param.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

Ref make_kernel(State& state, std::shared_ptr<Runtime<Host>> runtime,
                std::shared_ptr<Host::Kernel> kernel) {
  return Binding::make(state.kernel_type, std::move(runtime), std::move(kernel));
}

void add_kernel_types(PyObject* module, State& state) {
  const auto add = [module](Ref type) {
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
      throw PythonError{};
    return type.release();
  };
  state.kernel_type = add(Binding::make_kernel_type(module));
  state.bound_launch_type = add(Binding::make_bound_type(module));
  state.param_type =
      add(checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&kParamDescription))));
}

}  // namespace deep_jit::python
