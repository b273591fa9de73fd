// SPDX-License-Identifier: MIT
//
// The prelude: the text put in front of every Host kernel (`-include kernel_prelude.hpp`).
//
// What: it gives a C++ compiler CUDA's names (__global__, threadIdx, dim3, ...), with CUDA's types,
// so that index arithmetic is unsigned as it is there, and the macros that put a kernel into the
// module's list (kernel_abi.hpp). It needs C++17.
// When not: what needs threads of a block to wait for each other (__syncthreads, __shared__) is not
// here and does not compile: the threads of a block run one after the other.
//
// Example, of a kernel that exists only through a macro, which source_rewriter.hpp cannot see:
//     DEFINE_SCALE_KERNEL(float)
//     DJ_HOST_REGISTER(scale_float)
//
// Errors: none. Thread-safety: constant data.
#pragma once

#include <string>
#include <string_view>

#include "deep_jit/backend/host/kernel_abi.hpp"

namespace deep_jit::host {

inline constexpr std::string_view kPreludeFileName = "kernel_prelude.hpp";

// The whole text; it depends on nothing but this version of DeepJIT.
const std::string& get_prelude();

// --- Inline implementations ---

namespace detail {

inline constexpr std::string_view kPreludeNames = R"prelude(// SPDX-License-Identifier: MIT
// Written by DeepJIT (Host backend) in front of the kernel: CUDA's names for a C++ compiler.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <exception>
#include <type_traits>
#include <utility>

// The names here are long on purpose: the flag of a kernel (-DN=4) is a macro by now.
#define DEEP_JIT_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned int x, y, z;
};

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

static thread_local uint3 threadIdx = {0, 0, 0};
static thread_local uint3 blockIdx = {0, 0, 0};
static thread_local dim3 blockDim;
static thread_local dim3 gridDim;

namespace deep_jit_host {
// The common type of two numbers.
template <class TFirst, class TSecond>
using Common = ::std::enable_if_t<::std::is_arithmetic<TFirst>::value &&
                                      ::std::is_arithmetic<TSecond>::value,
                                  ::std::common_type_t<TFirst, TSecond>>;
}  // namespace deep_jit_host

template <class TFirst, class TSecond, class TValue = deep_jit_host::Common<TFirst, TSecond>>
constexpr TValue min(TFirst a, TSecond b) {
  return TValue(b) < TValue(a) ? TValue(b) : TValue(a);
}
template <class TFirst, class TSecond, class TValue = deep_jit_host::Common<TFirst, TSecond>>
constexpr TValue max(TFirst a, TSecond b) {
  return TValue(a) < TValue(b) ? TValue(b) : TValue(a);
}

namespace deep_jit_host {
)prelude";

inline constexpr std::string_view kPreludeRegistration = R"prelude(
static Module registry = {kMagic, kVersion, nullptr};

// Appends, so that kernels are listed in the order of the source.
inline bool append(Kernel& kernel) {
  const Kernel** link = &registry.first;
  while (*link != nullptr) link = const_cast<const Kernel**>(&(*link)->next);
  *link = &kernel;
  return true;
}

template <class TValue, class = void>
struct SizeOf : ::std::integral_constant<uint64_t, 0> {};
template <class TValue>
struct SizeOf<TValue,
              ::std::enable_if_t<(!::std::is_void<TValue>::value &&
                                  !::std::is_function<TValue>::value && sizeof(TValue) > 0)>>
    : ::std::integral_constant<uint64_t, sizeof(TValue)> {};

template <class TValue>
constexpr bool is_unsigned_integer() {
  if constexpr (::std::is_enum<TValue>::value) {
    return ::std::is_unsigned<::std::underlying_type_t<TValue>>::value;
  } else {
    return ::std::is_unsigned<TValue>::value;
  }
}

template <class TValue>
constexpr uint32_t kind_of() {
  if constexpr (SizeOf<TValue>::value == 0) return kUnknown;
  else if constexpr (::std::is_pointer<TValue>::value) return kPointer;
  else if constexpr (::std::is_same<::std::remove_cv_t<TValue>, bool>::value) return kBool;
  else if constexpr (::std::is_floating_point<TValue>::value) return kFloat;
  else if constexpr (::std::is_integral<TValue>::value || ::std::is_enum<TValue>::value)
    return is_unsigned_integer<TValue>() ? kUnsigned : kSigned;
  else if constexpr (::std::is_class<TValue>::value || ::std::is_union<TValue>::value)
    return kStruct;
  else return kUnknown;
}

template <class TValue>
constexpr Parameter describe() {
  static_assert(!::std::is_reference<TValue>::value, "kernel parameters are passed by value");
  static_assert(::std::is_trivially_copyable<TValue>::value,
                "kernel parameters must be trivially copyable");
  using Element = ::std::remove_pointer_t<TValue>;
  constexpr bool is_pointer = ::std::is_pointer<TValue>::value;
  return Parameter{kind_of<TValue>(),
                   static_cast<uint32_t>(alignof(TValue)),
                   sizeof(TValue),
                   is_pointer ? kind_of<Element>() : uint32_t(kUnknown),
                   is_pointer && ::std::is_const<Element>::value,
                   is_pointer ? SizeOf<Element>::value : 0};
}

struct SavedIndices {  // A kernel may launch a kernel of the same module.
  const uint3 thread = threadIdx, block = blockIdx;
  const dim3 block_dim = blockDim, grid = gridDim;
  ~SavedIndices() {
    threadIdx = thread;
    blockIdx = block;
    blockDim = block_dim;
    gridDim = grid;
  }
};

inline void copy_text(const char* text, char* to, uint64_t size) {
  for (; size > 1 && *text != '\0'; --size) *to++ = *text++;
  if (size > 0) *to = '\0';
}

template <auto Function>
struct Entry;
template <class... TParameters, void (*Function)(TParameters...)>
struct Entry<Function> {
  static constexpr Parameter parameters[sizeof...(TParameters) + 1] = {
      describe<TParameters>()..., Parameter{}};

  template <size_t... kIndices>
  static void run_threads([[maybe_unused]] void* const* args, dim3 dim,
                          ::std::index_sequence<kIndices...>) {
    for (unsigned int z = 0; z < dim.z; ++z) {
      for (unsigned int y = 0; y < dim.y; ++y) {
        for (unsigned int x = 0; x < dim.x; ++x) {
          threadIdx = uint3{x, y, z};
          Function(*static_cast<const TParameters*>(args[kIndices])...);
        }
      }
    }
  }

  static int32_t run_block(void* const* args, const uint32_t* block, const uint32_t* grid,
                           const uint32_t* block_dim, [[maybe_unused]] char* error,
                           [[maybe_unused]] uint64_t error_size) noexcept {
    const SavedIndices saved;
    blockIdx = uint3{block[0], block[1], block[2]};
    gridDim = dim3(grid[0], grid[1], grid[2]);
    blockDim = dim3(block_dim[0], block_dim[1], block_dim[2]);
#if defined(__cpp_exceptions)
    try {
      run_threads(args, blockDim, ::std::make_index_sequence<sizeof...(TParameters)>());
    } catch (const ::std::exception& exception) {
      copy_text(exception.what(), error, error_size);
      return 1;
    } catch (...) {
      copy_text("an object that is no std::exception", error, error_size);
      return 1;
    }
#else
    run_threads(args, blockDim, ::std::make_index_sequence<sizeof...(TParameters)>());
#endif
    return 0;
  }

  static bool add(const char* name) {
    static Kernel kernel = {nullptr, name, sizeof...(TParameters), parameters, &run_block};
    return append(kernel);
  }
};

template <class... TParameters>
constexpr auto plain(void (*function)(TParameters...)) -> void (*)(TParameters...) {
  return function;
}

}  // namespace deep_jit_host

#define DJ_HOST_CONCAT_(a, b) a##b
#define DJ_HOST_CONCAT(a, b) DJ_HOST_CONCAT_(a, b)
// DJ_HOST_REGISTER(name): lists the kernel; in the namespace that it is defined in.
#define DJ_HOST_REGISTER(...)                                                              \
  [[maybe_unused]] static const bool DJ_HOST_CONCAT(deep_jit_host_registered_, __COUNTER__) = \
      ::deep_jit_host::Entry<::deep_jit_host::plain(&__VA_ARGS__)>::add(#__VA_ARGS__);
// The same where the name alone is ambiguous: `type` is void(parameters).
#define DJ_HOST_REGISTER_AS(type, ...)                                                     \
  [[maybe_unused]] static const bool DJ_HOST_CONCAT(deep_jit_host_registered_, __COUNTER__) = \
      ::deep_jit_host::Entry<static_cast<::std::add_pointer_t<type>>(&__VA_ARGS__)>::add(  \
          #__VA_ARGS__);

extern "C" __attribute__((visibility("default"))) const deep_jit_host::Module*
deep_jit_host_module() {
  return &deep_jit_host::registry;
}
)prelude";

}  // namespace detail

inline const std::string& get_prelude() {
  static const std::string text = std::string(detail::kPreludeNames)
                                      .append(abi::kStructsText)
                                      .append(detail::kPreludeRegistration);
  return text;
}

}  // namespace deep_jit::host
