// SPDX-License-Identifier: MIT
//
// The prelude: the text put in front of every Host kernel (`-include kernel_prelude.hpp`).
//
// What: it gives a C++ compiler CUDA's names (__global__, __shared__, threadIdx, __syncthreads,
// ...), with CUDA's types, so that index arithmetic is unsigned as it is there, and the macros that
// put a kernel into the module's list (kernel_abi.hpp). It needs C++17.
//
// The threads of a block run one after the other on one operating system thread, and take turns at
// barriers (block_runner.hpp). So a __shared__ variable is thread_local. `extern __shared__ T
// name[];` is turned into DJ_HOST_DYNAMIC_SHARED(name, T) by source_rewriter.hpp; a header has to
// write that itself. A barrier throws into the threads that wait when another thread of the block
// threw: it must not stand in a noexcept function.
// When not: atomics, warp shuffles and what else only a GPU has is not here and does not compile.
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
#define __shared__ thread_local

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
static constexpr int warpSize = 32;

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

inline constexpr std::string_view kPreludeBarriers = R"prelude(
static thread_local Block* current_block = nullptr;
// Set by the first barrier of a block. A variable of this file, so that a compiler sees that a
// kernel without barriers never sets it.
static thread_local bool is_split = false;

struct BlockEnded {};  // Thrown out of a barrier when another thread of the block threw.

// Sets threadIdx to the next thread that has not started; false when there is none.
inline bool take_thread(Block& block) {
  uint32_t* next = block.next;
  if (next[2] >= block.dim[2]) return false;
  threadIdx = uint3{next[0], next[1], next[2]};
  if (++next[0] == block.dim[0]) {
    next[0] = 0;
    if (++next[1] == block.dim[1]) {
      next[1] = 0;
      ++next[2];
    }
  }
  return true;
}

// The exceptions in flight and being handled, of which the C++ run-time keeps one list per
// operating system thread: a pointer and a counter in libstdc++ and in libc++abi.
struct Exceptions {
  void* caught;
  void* count;
};
extern "C" Exceptions* deep_jit_host_exceptions() noexcept __asm__("__cxa_get_globals");

__attribute__((noinline)) inline void wait(Scope scope, bool vote) {
  Block* const block = current_block;
  const uint3 thread = threadIdx;
  if (!is_split) {
    is_split = true;
    block->next[0] = thread.x;
    block->next[1] = thread.y;
    block->next[2] = thread.z;
    take_thread(*block);
  }
  Exceptions* const exceptions = deep_jit_host_exceptions();
  const Exceptions own = *exceptions;
  *exceptions = Exceptions{nullptr, nullptr};
  [[maybe_unused]] const bool has_ended = block->wait(block, scope, vote) != 0;
  *exceptions = own;
  threadIdx = thread;
#if defined(__cpp_exceptions)
  if (has_ended && ::std::uncaught_exceptions() == 0) throw BlockEnded();
#endif
}

template <class TElement>
inline auto dynamic_shared() -> TElement (&)[] {
  return *static_cast<TElement(*)[]>(current_block->shared_memory);
}

}  // namespace deep_jit_host

// All threads of the block that have not returned wait for each other, at whichever barrier.
inline void __syncthreads() { deep_jit_host::wait(deep_jit_host::kBlockScope, false); }
inline int __syncthreads_count(int predicate) {
  deep_jit_host::wait(deep_jit_host::kBlockScope, predicate != 0);
  return static_cast<int>(deep_jit_host::current_block->votes_true);
}
inline int __syncthreads_and(int predicate) {
  deep_jit_host::wait(deep_jit_host::kBlockScope, predicate != 0);
  return deep_jit_host::current_block->votes_true == deep_jit_host::current_block->votes;
}
inline int __syncthreads_or(int predicate) {
  deep_jit_host::wait(deep_jit_host::kBlockScope, predicate != 0);
  return deep_jit_host::current_block->votes_true != 0;
}
// Waits for all lanes of the warp that have not returned, whatever the mask.
inline void __syncwarp(unsigned int = 0xffffffffu) {
  deep_jit_host::wait(deep_jit_host::kWarpScope, false);
}
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// `extern __shared__ type name[]`
#define DJ_HOST_DYNAMIC_SHARED(name, ...)                     \
  static thread_local __attribute__((unused)) auto& name = \
      ::deep_jit_host::dynamic_shared<__VA_ARGS__>()
#define DJ_HOST_IGNORE(...)

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

  // Until the first barrier, as a plain loop.
  template <size_t... kIndices>
  static void run_in_order([[maybe_unused]] void* const* args, dim3 dim,
                           ::std::index_sequence<kIndices...>) {
    for (unsigned int z = 0; z < dim.z; ++z) {
      for (unsigned int y = 0; y < dim.y; ++y) {
        for (unsigned int x = 0; x < dim.x; ++x) {
          threadIdx = uint3{x, y, z};
          Function(*static_cast<const TParameters*>(args[kIndices])...);
          if (is_split) return;
        }
      }
    }
  }

  // The threads that the others have left.
  template <size_t... kIndices>
  static void run_rest([[maybe_unused]] void* const* args, ::std::index_sequence<kIndices...>) {
    while (take_thread(*current_block)) {
      Function(*static_cast<const TParameters*>(args[kIndices])...);
    }
  }

  static void run(Block& block) {
    constexpr ::std::make_index_sequence<sizeof...(TParameters)> indices;
    if (block.is_started == 0) {
      block.is_started = 1;
      is_split = false;
      run_in_order(block.args, blockDim, indices);
    }
    if (is_split) run_rest(block.args, indices);
  }

  static int32_t run_threads(Block* block) noexcept {
    current_block = block;
    blockIdx = uint3{block->index[0], block->index[1], block->index[2]};
    gridDim = dim3(block->grid[0], block->grid[1], block->grid[2]);
    blockDim = dim3(block->dim[0], block->dim[1], block->dim[2]);
#if defined(__cpp_exceptions)
    try {
      run(*block);
    } catch (const BlockEnded&) {
      return 2;
    } catch (const ::std::exception& exception) {
      copy_text(exception.what(), block->error, block->error_size);
      return 1;
    } catch (...) {
      copy_text("an object that is no std::exception", block->error, block->error_size);
      return 1;
    }
#else
    run(*block);
#endif
    return 0;
  }

  static bool add(const char* name) {
    static Kernel kernel = {nullptr, name, sizeof...(TParameters), parameters, &run_threads};
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
                                      .append(detail::kPreludeBarriers)
                                      .append(detail::kPreludeRegistration);
  return text;
}

}  // namespace deep_jit::host
