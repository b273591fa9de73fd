// SPDX-License-Identifier: MIT
#include "python/bindings/stream.h"

#include "python/bindings/loaded_types.h"

namespace deep_jit::python {
namespace {

[[noreturn]] void refuse(PyObject* value) {
  PyErr_Format(PyExc_TypeError,
               "stream must be an int (cudaStream_t), a torch or CuPy stream, an object with "
               "__cuda_stream__, or None, not %R",
               value);
  throw PythonError{};
}

void* to_handle(PyObject* value, PyObject* number) {
  if (!PyLong_Check(number) || PyBool_Check(number)) refuse(value);
  void* const handle = PyLong_AsVoidPtr(number);
  if (handle == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
  return handle;
}

// (version, handle), from a method or, in its first form, an attribute.
void* from_protocol(PyObject* value, const Ref& member) {
  const Ref pair = PyCallable_Check(member.get()) != 0
                       ? checked(PyObject_CallFunctionObjArgs(member.get(), nullptr))
                       : Ref::borrow(member.get());
  if (!PyTuple_Check(pair.get()) || PyTuple_Size(pair.get()) != 2) refuse(value);
  return to_handle(value, PyTuple_GetItem(pair.get(), 1));
}

}  // namespace

void* to_stream(State& state, PyObject* value) {
  if (PyLong_CheckExact(value)) return to_handle(value, value);
  if (const Ref handle = optional_attribute(value, state.name_cuda_stream))
    return to_handle(value, handle.get());
  if (const Ref member = optional_attribute(value, state.name_cuda_stream_protocol))
    return from_protocol(value, member);
  if (const Ref handle = optional_attribute(value, state.name_ptr))
    return to_handle(value, handle.get());
  refuse(value);
}

}  // namespace deep_jit::python
