// SPDX-License-Identifier: MIT
#include "python/bindings/dlpack.h"

#include <cstdint>
#include <format>
#include <string>
#include <utility>

namespace deep_jit::python {
namespace {

// The C structures of DLPack 1.1 (https://dmlc.github.io/dlpack/latest/c_api.html), whose layout
// may only change with the major version. Written down here: forty lines, against a dependency.
struct Device {
  std::int32_t type;
  std::int32_t id;
};
constexpr std::int32_t kCpu = 1;

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in items; null: C-contiguous
  std::uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr std::uint32_t kMajor = 1;
constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint64_t kCopied = 2;

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

bool is_c_contiguous(const Tensor& tensor) {
  for (std::int32_t i = 0; i < tensor.dimensions; ++i) {
    if (tensor.shape[i] == 0) return true;
  }
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimensions - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// NumPy's letter for a DLPack type code.
char to_type_kind(const DataType& type) {
  if (type.lanes != 1) return 'V';  // vectors, which no pointer to a number reads
  constexpr char kKinds[] = {'i', 'u', 'f', 'V' /* handle */, 'V' /* bfloat */, 'c', 'b'};
  return type.code < sizeof(kKinds) ? kKinds[type.code] : 'V';
}

void describe(const Tensor& tensor, ArrayAddress& found) {
  const unsigned bits = static_cast<unsigned>(tensor.type.bits) * tensor.type.lanes;
  if (tensor.device.type != kCpu) {
    found.problem = std::format("has a DLPack tensor on device type {}, not on the CPU (type {})",
                                tensor.device.type, kCpu);
  } else if (bits == 0 || bits % 8 != 0) {
    found.problem = std::format("has items of {} bits, which have no address of their own", bits);
  } else if (!is_c_contiguous(tensor)) {
    found.problem = "is not C-contiguous; pass a contiguous copy";
  } else {
    found.address = static_cast<char*>(tensor.data) + tensor.byte_offset;
    found.type_kind = to_type_kind(tensor.type);
    found.item_size = bits / 8;
  }
}

// The producer's capsule: with the version that we know, or without when it knows no versions.
Ref call_dlpack(State& state, PyObject* object) {
  const Ref method = checked(PyObject_GetAttr(object, state.name_dlpack));
  const Ref none = checked(PyTuple_New(0));
  const Ref keywords = checked(Py_BuildValue("{s(II)}", "max_version", kMajor, 1U));
  Ref capsule{PyObject_Call(method.get(), none.get(), keywords.get())};
  if (capsule) return capsule;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError{};
  PyErr_Clear();
  return checked(PyObject_Call(method.get(), none.get(), nullptr));
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

ArrayAddress from_dlpack(State& state, PyObject* object) {
  if (const long type = device_type(state, object); type != kCpu) {
    return refuse_array(
        std::format("lives on DLPack device type {}; a kernel of the host backend needs it on the "
                    "CPU (type {})",
                    type, kCpu));
  }
  const Ref capsule = call_dlpack(state, object);
  ArrayAddress found{.is_array = true};
  if (PyCapsule_IsValid(capsule.get(), kVersionedName) != 0) {
    auto* managed = take<ManagedVersioned>(capsule.get(), kVersionedName, "used_dltensor_versioned",
                                           found.keep);
    if (managed->major != kMajor) {
      found.problem = std::format("has a DLPack tensor of version {}.{}; {}.x is understood",
                                  managed->major, managed->minor, kMajor);
      return found;
    }
    // Of a copy the kernel may read, but what it writes would be lost.
    found.is_writeable = (managed->flags & (kReadOnly | kCopied)) == 0;
    describe(managed->tensor, found);
  } else if (PyCapsule_IsValid(capsule.get(), kOldName) != 0) {
    describe(take<Managed>(capsule.get(), kOldName, "used_dltensor", found.keep)->tensor, found);
  } else {
    found.problem = "has a __dlpack__ that gives no unused DLPack capsule";
  }
  return found;
}

}  // namespace deep_jit::python
