// SPDX-License-Identifier: MIT
//
// Finds the address of an array's first element, or says why a kernel cannot use it.
//
// NumPy is asked through `__array_struct__` (the C side of its array interface: one capsule, no
// dict), torch through its tensor methods; neither library is imported or linked: their types are
// taken from sys.modules when one of their objects is met. The limited API of Python 3.10 has no
// buffer protocol, so plain `bytearray` and `array.array` objects are not taken.
//
//     const ArrayAddress found = find_array(state, argument);
//     if (found.is_array && found.problem.empty()) use(found.address);
//
// Errors: `problem` holds the reason in words; PythonError when a property of the argument raised.
// Thread-safety: the GIL is held.
#pragma once

#include <cstddef>
#include <string>

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

struct ArrayAddress {
  bool is_array = false;  // false: not an array at all
  void* address = nullptr;
  char type_kind = 'V';       // NumPy's letter: b(ool) i(nt) u(int) f(loat) c(omplex) V(oid) ...
  std::size_t item_size = 0;  // bytes
  bool is_writeable = true;
  std::string problem = {};  // why the array cannot be passed; empty when it can
};

ArrayAddress find_array(State& state, PyObject* object);

// True for numpy.generic objects (numpy.float32(1), a field of an array, ...).
bool is_numpy_scalar(State& state, PyObject* object);

}  // namespace deep_jit::python
