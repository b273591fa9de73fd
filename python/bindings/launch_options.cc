// SPDX-License-Identifier: MIT
#include "python/bindings/launch_options.h"

namespace deep_jit::python {

unsigned to_extent(const std::string& kernel, PyObject* value, const char* what) {
  const auto refuse = [&](const char* problem) -> unsigned {
    throw ArgumentError{std::format("cannot launch kernel `{}`: {} {}", kernel, what, problem),
                        kernel, std::nullopt};
  };
  if (!PyIndex_Check(value)) return refuse("must be an int or a tuple of up to three ints");
  const Ref number = checked(PyNumber_Index(value));
  int overflow = 0;
  const long long extent = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow > 0 || extent > std::numeric_limits<unsigned>::max())
    return refuse("dimensions must be below 2**32");
  if (overflow < 0 || extent < 0) return refuse("dimensions must be positive");
  return static_cast<unsigned>(extent);
}

void to_extents(const std::string& kernel, PyObject* value, const char* what, unsigned* extents) {
  if (!PyTuple_Check(value) && !PyList_Check(value)) {
    extents[0] = to_extent(kernel, value, what);
    return;
  }
  const Py_ssize_t size = PySequence_Size(value);
  if (size < 1 || size > 3) {
    throw ArgumentError{
        std::format("cannot launch kernel `{}`: {} must have one to three dimensions, not {}",
                    kernel, what, size),
        kernel, std::nullopt};
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref item = checked(PySequence_GetItem(value, i));
    extents[i] = to_extent(kernel, item.get(), what);
  }
}

}  // namespace deep_jit::python
