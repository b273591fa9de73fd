// SPDX-License-Identifier: MIT
#include "python/bindings/dlpack.h"

#include <cstdint>
#include <format>
#include <string>
#include <utility>

#include "python/bindings/dlpack_abi.h"

namespace deep_jit::python {
namespace {

using dlpack::Managed;
using dlpack::ManagedVersioned;
using dlpack::Tensor;

constexpr const char* kOldName = "dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";

// The consumer takes a tensor over by renaming its capsule; from then on the deleter is its to
// call.
template <class Owner>
Owner* take(PyObject* capsule, const char* name, const char* used_name, Keep& keep) {
  auto* managed = static_cast<Owner*>(PyCapsule_GetPointer(capsule, name));
  if (managed == nullptr || PyCapsule_SetName(capsule, used_name) != 0) throw PythonError{};
  keep = Keep(managed, Release{[](void* kept) {
                auto* taken = static_cast<Owner*>(kept);
                if (taken->deleter != nullptr) taken->deleter(taken);
              }});
  return managed;
}

bool is_accessible(std::int32_t device_type, Memory memory) {
  return memory == Memory::kCuda ? dlpack::is_cuda_accessible(device_type)
                                 : device_type == dlpack::kCpu;
}

void describe(const Tensor& tensor, Memory memory, ArrayAddress& found) {
  const unsigned bits = static_cast<unsigned>(tensor.type.bits) * tensor.type.lanes;
  if (!is_accessible(tensor.device.type, memory)) {
    found.problem =
        std::format("has a DLPack tensor on device type {}, where the kernel cannot reach it",
                    tensor.device.type);
  } else if (bits == 0 || bits % 8 != 0) {
    found.problem = std::format("has items of {} bits, which have no address of their own", bits);
  } else if (memory == Memory::kCpu && !dlpack::is_c_contiguous(tensor)) {
    found.problem = "is not C-contiguous; pass a contiguous copy";
  } else {
    found.address = static_cast<char*>(tensor.data) + tensor.byte_offset;
    found.type_kind = dlpack::to_type_kind(tensor.type);
    found.item_size = bits / 8;
  }
}

// The producer's capsule: with the version that we know, or without when it knows no versions.
Ref call_dlpack(State& state, PyObject* object, Memory memory) {
  const Ref method = checked(PyObject_GetAttr(object, state.name_dlpack));
  const Ref none = checked(PyTuple_New(0));
  // -1: no waiting. Whoever launches on a stream orders it, as with every other kind of array.
  const Ref plain =
      checked(memory == Memory::kCuda ? Py_BuildValue("{si}", "stream", -1) : PyDict_New());
  const Ref keywords = checked(PyDict_Copy(plain.get()));
  const Ref version = checked(Py_BuildValue("(II)", dlpack::kMajor, 1U));
  if (PyDict_SetItemString(keywords.get(), "max_version", version.get()) != 0) throw PythonError{};
  Ref capsule{PyObject_Call(method.get(), none.get(), keywords.get())};
  if (capsule) return capsule;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError{};
  PyErr_Clear();
  return checked(PyObject_Call(method.get(), none.get(), plain.get()));
}

// (device type, device id) as the producer says it, before it exports anything: a GPU library may
// copy or wait when it is asked for a tensor.
long device_type(State& state, PyObject* object) {
  const Ref device = checked(PyObject_CallMethodObjArgs(object, state.name_dlpack_device, nullptr));
  const Ref type = checked(PySequence_GetItem(device.get(), 0));
  const Ref number = checked(PyNumber_Index(type.get()));
  const long value = PyLong_AsLong(number.get());
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
  return value;
}

bool has_attribute(PyObject* object, PyObject* name) {
  if (Ref{PyObject_GetAttr(object, name)}) return true;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw PythonError{};
  PyErr_Clear();
  return false;
}

}  // namespace

bool has_dlpack(State& state, PyObject* object) {
  return has_attribute(object, state.name_dlpack) &&
         has_attribute(object, state.name_dlpack_device);
}

ArrayAddress from_dlpack(State& state, PyObject* object, Memory memory) {
  if (const long type = device_type(state, object);
      !is_accessible(static_cast<std::int32_t>(type), memory)) {
    return refuse_array(
        std::format("lives on DLPack device type {}; a kernel of the {}", type,
                    memory == Memory::kCuda
                        ? std::format("cuda backend needs it on a GPU (type {})", dlpack::kCuda)
                        : std::format("host backend needs it on the CPU (type {})", dlpack::kCpu)));
  }
  const Ref capsule = call_dlpack(state, object, memory);
  ArrayAddress found{.is_array = true};
  if (PyCapsule_IsValid(capsule.get(), kVersionedName) != 0) {
    auto* managed = take<ManagedVersioned>(capsule.get(), kVersionedName, "used_dltensor_versioned",
                                           found.keep);
    if (managed->major != dlpack::kMajor) {
      found.problem = std::format("has a DLPack tensor of version {}.{}; {}.x is understood",
                                  managed->major, managed->minor, dlpack::kMajor);
      return found;
    }
    // Of a copy the kernel may read, but what it writes would be lost.
    found.is_writeable = (managed->flags & (dlpack::kReadOnly | dlpack::kCopied)) == 0;
    describe(managed->tensor, memory, found);
  } else if (PyCapsule_IsValid(capsule.get(), kOldName) != 0) {
    describe(take<Managed>(capsule.get(), kOldName, "used_dltensor", found.keep)->tensor, memory,
             found);
  } else {
    found.problem = "has a __dlpack__ that gives no unused DLPack capsule";
  }
  return found;
}

}  // namespace deep_jit::python
