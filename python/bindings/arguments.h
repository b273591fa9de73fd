// SPDX-License-Identifier: MIT
//
// Turns Python arguments into the storage that a kernel reads its parameters from.
//
// The kernel's own descriptor decides: each int, float or bool becomes exactly the width and kind
// of its parameter, arrays go to pointer parameters only, and anything that would be read wrongly
// is refused. Knows no backend: a backend's descriptor is copied into a Signature once, when its
// kernel is wrapped.
//
//     ArgumentPack pack(state, signature, args, count);
//     const GilRelease released;
//     kernel->launch_raw(options, pack.pointers(), pack.size());
//
// What each kind of parameter takes:
// - pointer on the GPU: what cuda_arrays.h takes, an int (the address), or None.
// - pointer on the CPU: NumPy array, torch CPU tensor, object with __array_struct__,
// __array_interface__,
//   DLPack or the buffer protocol, or None for null. Arrays must be C-contiguous, aligned, on the
//   CPU, writeable unless it is a pointer to const, and of a dtype that the element type reads
//   (void, char and struct pointers take any).
// - integer: int, bool, NumPy integer or bool, anything with __index__; within range.
// - float: float, int, NumPy scalar; rounded, within range.
// - bool: bool, NumPy bool, 0 or 1.
// - kSized: int (fits signed or unsigned), float (4 and 8 bytes), NumPy scalar (of that size as it
//   is, else by value), bytes or a buffer of exactly the size; of 8 bytes also an array or None.
// - others (structs, 16-bit and 128-bit floats, 128-bit integers): bytes, a ctypes structure or
//   another buffer of exactly the size.
//
// Errors: ArgumentError that names kernel and parameter; PythonError when a property of an argument
// raised.
// Thread-safety: built and dropped with the GIL held, read without it. It keeps no reference to the
// arguments: the caller of a METH_FASTCALL function does, until the function returns. It keeps the
// memory that DLPack and buffer objects lent.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "python/bindings/array_address.h"
#include "python/bindings/errors.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// kSized: only the size is known; the argument itself says what it is.
enum class ParameterKind { kUnknown, kPointer, kBool, kSigned, kUnsigned, kFloat, kStruct, kSized };

struct Parameter {
  ParameterKind kind;
  std::size_t size;       // bytes
  std::size_t alignment;  // bytes

  // For a pointer: what it points to; kUnknown when that is void or incomplete.
  ParameterKind element_kind = ParameterKind::kUnknown;
  std::size_t element_size = 0;  // bytes
  bool element_is_const = false;
};

struct Signature {
  std::string kernel;
  std::vector<Parameter> parameters;
  Memory memory = Memory::kCpu;  // Where the kernel's pointers point.
};

// "unknown", "pointer", "bool", "signed", "unsigned", "float", "struct" or "sized".
const char* kind_name(ParameterKind kind);

class ArgumentPack {
 public:
  ArgumentPack(State& state, const Signature& signature, PyObject* const* arguments,
               Py_ssize_t count);
  ArgumentPack(const ArgumentPack&) = delete;
  ArgumentPack& operator=(const ArgumentPack&) = delete;

  // Addresses of the parameter values, in order. Valid while the pack lives.
  void** pointers() noexcept { return pointers_; }
  std::size_t size() const noexcept { return size_; }

 private:
  struct alignas(16) Slot {
    std::byte bytes[16];
  };
  struct FreeBlock {
    void operator()(void* block) const noexcept;
  };

  void* add_block(const void* data, std::size_t size, std::size_t alignment);

  // Enough for most kernels without touching the heap.
  static constexpr std::size_t kInline = 16;

  std::size_t size_;
  std::array<Slot, kInline> inline_slots_;
  std::array<void*, kInline> inline_pointers_;
  std::vector<Slot> more_slots_;
  std::vector<void*> more_pointers_;
  std::vector<std::unique_ptr<void, FreeBlock>> blocks_;
  std::vector<Keep> keeps_;
  void** pointers_;
};

}  // namespace deep_jit::python
