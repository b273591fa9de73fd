// SPDX-License-Identifier: MIT
//
// What a kernel must know of an array argument: where it lies, what its items are, and what keeps
// it there.
//
// The result of every way to look into an argument (arrays.h, dlpack.h, buffers.h). Holds no shape:
// a pointer parameter has none.
//
// Errors: none; `problem` is for the caller to report.
// Thread-safety: plain data. Drop it with the GIL held: `keep` may end in Python code.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "python/bindings/object.h"

namespace deep_jit::python {

// Something that keeps an array's memory where it is: dropped, it calls its release function, with
// the Python exception that may be on its way put aside.
struct Release {
  void (*function)(void*) = nullptr;
  void operator()(void* kept) const noexcept {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    function(kept);
    PyErr_Restore(type, value, traceback);
  }
};
using Keep = std::unique_ptr<void, Release>;

// Where a kernel reads and writes: a backend's memory.
enum class Memory { kCpu, kCuda };

struct ArrayAddress {
  bool is_array = false;  // false: not an array at all
  void* address = nullptr;
  char type_kind = 'V';       // NumPy's letter: b(ool) i(nt) u(int) f(loat) c(omplex) V(oid) ...
  std::size_t item_size = 0;  // bytes
  bool is_writeable = true;
  std::string problem = {};  // why the array cannot be passed; empty when it can
  Keep keep = {};  // holds the memory until the kernel is done; empty: the argument itself does
};

// An array that no kernel can take, and why.
inline ArrayAddress refuse_array(std::string problem) {
  return {.is_array = true, .problem = std::move(problem)};
}

}  // namespace deep_jit::python
