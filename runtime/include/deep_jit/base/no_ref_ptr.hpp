// SPDX-License-Identifier: MIT
//
// How a launch argument becomes the address that a launch call wants.
//
// What: a launch passes one pointer per kernel argument, the address where its value is stored.
// `kernel_arg_pointer(x)` is that address. A `NoRefPtr` (or a type derived from it) already *is*
// such an address: it is passed on as it is, for arguments whose storage lives elsewhere, such as a
// struct that only a binding knows the layout of.
//
// When not: a plain pointer argument (`float*`) is not a NoRefPtr: its value is the argument, so
// its address is passed.
//
// Example:
//     std::vector<char> bytes = ...;                    // the bytes of one struct argument
//     jit->launch(kernel, options, NoRefPtr{bytes.data()}, n);
//
// Errors: none. Thread-safety: nothing shared. The address is good for as long as the argument
// lives.
#pragma once

#include <memory>
#include <type_traits>

namespace deep_jit {

struct NoRefPtr {
  void* ptr = nullptr;
};

template <class T>
void* kernel_arg_pointer(const T& argument) {
  if constexpr (std::is_base_of_v<NoRefPtr, T>) {
    return argument.ptr;
  } else {
    // Launch calls take void** for reading only; they do not write through it.
    return const_cast<void*>(static_cast<const volatile void*>(std::addressof(argument)));
  }
}

}  // namespace deep_jit
