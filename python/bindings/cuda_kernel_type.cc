// SPDX-License-Identifier: MIT
#include "python/bindings/cuda_kernel_type.h"

#include <cstddef>
#include <utility>

#include "python/bindings/arguments.h"
#include "python/bindings/convert.h"
#include "python/bindings/cuda_signature.h"
#include "python/bindings/errors.h"
#include "python/bindings/kernel_binding.h"

namespace deep_jit::python {
namespace {

struct CudaKernelTraits {
  using Backend = CUDA;

  static constexpr const char* kKernelName = "deep_jit.CudaKernel";
  static constexpr const char* kBoundName = "deep_jit.CudaBoundLaunch";
  static constexpr const char* kDoc =
      "A compiled CUDA kernel, loaded by the driver. Made by Runtime(\"cuda\").compile.\n\n"
      "    kernel[grid, block](out, x, n)\n\n"
      "launches grid x block threads on torch's current stream, or the default stream without\n"
      "torch, and returns at once. Grid and block are ints or tuples of up to three. The keyword\n"
      "arguments of launch() may follow the kernel's own. Arguments:\n\n"
      "- pointer: a CUDA array of torch, CuPy, or another library with DLPack or\n"
      "  __cuda_array_interface__, also in pinned or managed memory; an int (the address); None.\n"
      "  The address of the first element is passed: shape and strides are the kernel's to know.\n"
      "- bool, integer, float, double: as of deep_jit.Kernel, within range.\n"
      "- any other type, and every parameter of an extern \"C\" kernel, of which only the size is\n"
      "  known: of 1, 2, 4 or 8 bytes an int that fits, signed or unsigned; of 4 or 8 bytes a "
      "float\n"
      "  of that width; of 8 bytes an array or None; a NumPy scalar; bytes of exactly the size\n"
      "  (structs, tensor maps).\n\n"
      "Raises LaunchError naming the kernel and the parameter (counted from 0). Thread-safe. "
      "Equal\n"
      "and hashed by the loaded kernel.";
  static constexpr const char* kLaunchDoc =
      "launch($self, /, *, grid, block, args=(), stream=None, num_smem_bytes=None, "
      "cluster_dim=None, cooperative=None, enable_pdl=None, "
      "nonportable_cluster_size_allowed=None)\n--\n\n"
      "Launches the kernel and returns at once.\n\n"
      "Args:\n"
      "    grid: blocks, an int or a tuple (x, y, z) of up to three.\n"
      "    block: threads per block, an int or a tuple of up to three.\n"
      "    args: one argument per parameter; see the class.\n"
      "    stream: a cudaStream_t as int (0: the default stream), a torch or CuPy stream, an "
      "object\n"
      "        with __cuda_stream__; None: torch's current stream, or the default one.\n"
      "    num_smem_bytes: dynamic shared memory of each block.\n"
      "    cluster_dim: blocks per cluster, an int or a tuple of up to three.\n"
      "    cooperative: whether all blocks run at once and may wait for each other.\n"
      "    enable_pdl: programmatic dependent launch.\n"
      "    nonportable_cluster_size_allowed: more than 8 blocks per cluster.\n\n"
      "Raises:\n"
      "    LaunchError: wrong dimensions or arguments, or the driver refuses the launch.";
  static constexpr const char* kBoundLaunchDoc =
      "launch($self, /, *args, stream=None, num_smem_bytes=None, cluster_dim=None, "
      "cooperative=None, enable_pdl=None, nonportable_cluster_size_allowed=None)\n--\n\n"
      "Launches the kernel with these arguments and returns at once. See deep_jit.CudaKernel.";

  static PyGetSetDef kGetters[];

  static PyObject*& bound_type(State& state) { return state.cuda_bound_launch_type; }
  static Signature make_signature(const cuda::Kernel& kernel) {
    return make_cuda_signature(kernel.name(), cuda::detail::demangle(kernel.symbol()),
                               kernel.params());
  }
};

using Binding = KernelBinding<CudaKernelTraits>;

// --- Properties ---

PyStructSequence_Field kParamFields[] = {
    {"kind",
     "'pointer', 'bool', 'signed', 'unsigned', 'float', 'struct', or 'sized' when only the "
     "size is known"},
    {"size", "bytes"},
    {"offset", "bytes, in the kernel's parameter memory"},
    {nullptr, nullptr},
};
PyStructSequence_Desc kParamDescription = {"deep_jit.CudaParam", "One parameter of a CUDA kernel.",
                                           kParamFields, 3};

PyStructSequence_Field kAttributesFields[] = {
    {"num_regs", "registers per thread"},
    {"shared_size_bytes", "static shared memory per block"},
    {"local_size_bytes", "local memory per thread: spilled registers, arrays"},
    {"const_size_bytes", "constant memory"},
    {"max_threads_per_block", "the largest block that can be launched on this device"},
    {nullptr, nullptr},
};
PyStructSequence_Desc kAttributesDescription = {"deep_jit.KernelAttributes",
                                                "What the driver says of a loaded CUDA kernel.",
                                                kAttributesFields, 5};

Ref new_tuple(PyObject* type) {
  return checked(PyStructSequence_New(reinterpret_cast<PyTypeObject*>(type)));
}

PyObject* kernel_name(PyObject* self, void*) {
  return guarded(state_of(self),
                 [&] { return from_output(Binding::data(self).signature.kernel).release(); });
}

PyObject* kernel_params(PyObject* self, void*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    const auto& data = Binding::data(self);
    const auto& parameters = data.signature.parameters;
    Ref params = checked(PyTuple_New(static_cast<Py_ssize_t>(parameters.size())));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Ref param = new_tuple(state.cuda_param_type);
      PyStructSequence_SetItem(
          param.get(), 0, checked(PyUnicode_FromString(kind_name(parameters[i].kind))).release());
      PyStructSequence_SetItem(param.get(), 1,
                               checked(PyLong_FromSize_t(parameters[i].size)).release());
      PyStructSequence_SetItem(
          param.get(), 2, checked(PyLong_FromSize_t(data.kernel->params()[i].offset)).release());
      if (PyTuple_SetItem(params.get(), static_cast<Py_ssize_t>(i), param.release()) != 0)
        throw PythonError{};
    }
    return params.release();
  });
}

PyObject* kernel_attributes(PyObject* self, void*) {
  State& state = state_of(self);
  return guarded(state, [&] {
    const cuda::KernelAttributes found = Binding::data(self).kernel->attributes();
    Ref attributes = new_tuple(state.kernel_attributes_type);
    Py_ssize_t index = 0;
    for (const int value : {found.num_registers, found.num_static_smem_bytes, found.num_local_bytes,
                            found.num_const_bytes, found.max_threads_per_block}) {
      PyStructSequence_SetItem(attributes.get(), index++,
                               checked(PyLong_FromLong(value)).release());
    }
    return attributes.release();
  });
}

PyGetSetDef CudaKernelTraits::kGetters[] = {
    {"name", kernel_name, nullptr, "Name of the kernel function, without its parameters.", nullptr},
    {"params", kernel_params, nullptr, "Its parameters in order, a tuple of deep_jit.CudaParam.",
     nullptr},
    {"attributes", kernel_attributes, nullptr,
     "Registers, memory and largest block, asked of the driver: a deep_jit.KernelAttributes.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

Ref make_kernel(State& state, std::shared_ptr<Runtime<CUDA>> runtime,
                std::shared_ptr<CUDA::Kernel> kernel) {
  return Binding::make(state.cuda_kernel_type, std::move(runtime), std::move(kernel));
}

void add_cuda_kernel_types(PyObject* module, State& state) {
  const auto add = [module](Ref type) {
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) != 0)
      throw PythonError{};
    return type.release();
  };
  const auto make_tuple_type = [](PyStructSequence_Desc& description) {
    return checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&description)));
  };
  state.cuda_kernel_type = add(Binding::make_kernel_type(module));
  state.cuda_bound_launch_type = add(Binding::make_bound_type(module));
  state.cuda_param_type = add(make_tuple_type(kParamDescription));
  state.kernel_attributes_type = add(make_tuple_type(kAttributesDescription));
}

}  // namespace deep_jit::python
