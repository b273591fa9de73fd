// SPDX-License-Identifier: MIT
#include "python/bindings/loaded_types.h"

namespace deep_jit::python {

namespace {

PyObject* loaded_type(PyObject*& cached, PyObject* module_name, const char* type_name) {
  if (cached != nullptr) return cached;
  const Ref module{PyImport_GetModule(module_name)};
  Ref type;
  if (module) type = Ref{PyObject_GetAttrString(module.get(), type_name)};
  PyErr_Clear();  // not there, or still being imported by another thread
  if (type && PyType_Check(type.get())) cached = type.release();
  return cached;
}

bool is_instance(PyObject* object, PyObject* type) {
  return type != nullptr &&
         PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(type)) != 0;
}

}  // namespace

Ref optional_attribute(PyObject* object, PyObject* name) {
  Ref value{PyObject_GetAttr(object, name)};
  if (!value) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw PythonError{};
    PyErr_Clear();
  }
  return value;
}

bool is_true(const Ref& value) {
  const int result = PyObject_IsTrue(value.get());
  if (result < 0) throw PythonError{};
  return result != 0;
}

bool is_ndarray(State& state, PyObject* object) {
  return is_instance(object, loaded_type(state.ndarray_type, state.name_numpy, "ndarray"));
}

bool is_tensor(State& state, PyObject* object) {
  return is_instance(object, loaded_type(state.tensor_type, state.name_torch, "Tensor"));
}

bool is_cupy_array(State& state, PyObject* object) {
  return is_instance(object, loaded_type(state.cupy_type, state.name_cupy, "ndarray"));
}

bool is_numpy_scalar(State& state, PyObject* object) {
  return is_instance(object, loaded_type(state.numpy_scalar_type, state.name_numpy, "generic"));
}

}  // namespace deep_jit::python
