// SPDX-License-Identifier: MIT
//
// The memory of objects with the buffer protocol: array.array, bytearray, bytes, memoryview, mmap,
// ctypes arrays and structures.
//
// The limited API has `Py_buffer` only from 3.11 on. What 3.10's has is enough: a memoryview tells
// the format and keeps the memory from being resized or freed, and PyObject_AsReadBuffer gives its
// address. That function left the headers in 3.13, but is part of the stable ABI since 3.2 and so
// of every CPython 3, and abi3audit knows it. The other ways are worse: a Py_buffer of our own
// layout with PyObject_GetBuffer by dlsym would step around the ABI instead of standing on it, and
// ctypes would have to be imported and refuses read-only memory.
//
//     ArrayAddress found = from_buffer(argument);            // found.keep is the memoryview
//
// Errors: `problem` holds the reason in words; PythonError when the exporter raised.
// Thread-safety: the GIL is held. While the result lives, the exporter cannot be resized.
#pragma once

#include <cstddef>

#include "python/bindings/array_address.h"
#include "python/bindings/object.h"

namespace deep_jit::python {

// What the object exports; `is_array` is false when it has no buffer protocol. `size`, when given,
// gets the number of bytes.
ArrayAddress from_buffer(PyObject* object, std::size_t* size = nullptr);

}  // namespace deep_jit::python
