// SPDX-License-Identifier: MIT
//
// Calling a library that is opened when it is first needed, and never linked.
//
// What: two macros. DJ_DECL_LAZY_DL_HANDLE defines a function that opens a shared library once and
// returns its handle; DJ_DECL_LAZY_DL_FUNCTION defines `lazy_<name>(args...)`, which looks the
// symbol up once and calls it with the type that the header declares. A name that a header maps to
// a versioned one (`f` to `f_v2`) is looked up as the versioned one.
// When not: on a hot path keep the pointer: each call tests whether the look-up was done.
//
// Example:
//     DJ_DECL_LAZY_DL_HANDLE(get_cuda_handle, "libcuda.so.1")
//     DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAlloc)
//     lazy_cuMemAlloc(&pointer, size);  // calls cuMemAlloc_v2
//
// Errors: exception::Exception, from the call, when the library cannot be opened or has no such
// symbol; the next call tries again.
// Thread-safety: callable from any thread. A library that was opened stays open.
#pragma once

#include <dlfcn.h>

#include "deep_jit/base/exception.hpp"

#ifndef DJ_STRINGIFY
#define DJ_STRINGIFY_UNEXPANDED(text) #text
#define DJ_STRINGIFY(text) DJ_STRINGIFY_UNEXPANDED(text)
#endif

#ifndef DJ_DECL_LAZY_DL_HANDLE
#define DJ_DECL_LAZY_DL_HANDLE(func, lib)                                  \
  inline void* func() {                                                    \
    static void* const handle = ::deep_jit::detail::open_for_process(lib); \
    return handle;                                                         \
  }
#endif

#ifndef DJ_DECL_LAZY_DL_FUNCTION
#define DJ_DECL_LAZY_DL_FUNCTION(handle_func, name)                          \
  template <class... LazyArgs>                                               \
  auto lazy_##name(LazyArgs... lazy_args) {                                  \
    static const auto function = reinterpret_cast<decltype(&::name)>(        \
        ::deep_jit::detail::find_symbol(handle_func(), DJ_STRINGIFY(name))); \
    return function(lazy_args...);                                           \
  }
#endif

namespace deep_jit::detail {

// Never closed: threads may still be in the library while the program exits.
inline void* open_for_process(const char* library) {
  void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    DJ_PANIC("failed to load dynamic library {}: {}", library,
             reason == nullptr ? "unknown reason" : reason);
  }
  return handle;
}

inline void* find_symbol(void* handle, const char* name) {
  void* const address = ::dlsym(handle, name);
  if (address == nullptr) {
    const char* const reason = ::dlerror();
    DJ_PANIC("failed to find symbol '{}': {}", name, reason == nullptr ? "it is null" : reason);
  }
  return address;
}

}  // namespace deep_jit::detail
