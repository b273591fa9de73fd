// SPDX-License-Identifier: MIT
//
// The C structures of DLPack 1.x (https://dmlc.github.io/dlpack/latest/c_api.html), whose layout
// may only change with the major version. Written down here: sixty lines, against a dependency.
//
// Errors: none. Thread-safety: plain data.
#pragma once

#include <cstdint>

namespace deep_jit::python::dlpack {

inline constexpr std::uint32_t kMajor = 1;

struct Device {
  std::int32_t type;
  std::int32_t id;
};
inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;  // Pinned.
inline constexpr std::int32_t kCudaManaged = 13;

// Whether a CUDA kernel can read and write memory of this device type.
inline constexpr bool is_cuda_accessible(std::int32_t device_type) {
  return device_type == kCuda || device_type == kCudaHost || device_type == kCudaManaged;
}

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
inline constexpr std::uint8_t kComplex = 5;

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // In items; null: C-contiguous.
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
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kCopied = 2;

// What a type has as __dlpack_c_exchange_api__, in a capsule of this name.
inline constexpr const char* kExchangeName = "dlpack_exchange_api";

struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* previous;  // For consumers of older versions.
  void* allocator;
  void* managed_from_object;
  void* managed_to_object;
  // Fills a view that lives as long as the object; -1 with a Python exception. Waits for nothing.
  int (*view_from_object)(void* object, Tensor* view);
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);
};

inline bool is_c_contiguous(const Tensor& tensor) {
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

// NumPy's letter for a type code.
inline char to_type_kind(const DataType& type) {
  if (type.lanes != 1) return 'V';  // Vectors, which no pointer to a number reads.
  constexpr char kKinds[] = {'i', 'u', 'f', 'V' /* handle */, 'V' /* bfloat */, 'c', 'b'};
  return type.code < sizeof(kKinds) ? kKinds[type.code] : 'V';
}

}  // namespace deep_jit::python::dlpack
