// SPDX-License-Identifier: MIT
//
// A Python object that holds one std::shared_ptr to C++ data.
//
// All types of the extension are made this way: the Python object is a handle, the data may outlive
// it (a launch of another thread, a bound launch). Types made here hold no Python references, so
// the garbage collector need not know them. Types that users do not construct have the flag
// Py_TPFLAGS_DISALLOW_INSTANTIATION, the others a Py_tp_new that makes the data: an object without
// data never exists.
//
//     struct Data {...};
//     PyObject* object = make_instance<Data>(state.kernel_type, std::make_shared<Data>(...));
//     Data& data = data_of<Data>(object);
//
// Errors: PythonError.
// Thread-safety: the GIL is held; the last reference is dropped without it,
// because unloading a library or ending a runtime may take long.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "python/bindings/gil.h"
#include "python/bindings/object.h"

namespace deep_jit::python {

template <class Data>
struct Instance {
  PyObject ob_base;
  std::shared_ptr<Data> data;
};

template <class Data>
PyObject* make_instance(PyObject* type, std::shared_ptr<Data> data) {
  Ref object = checked(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), 0));
  new (&reinterpret_cast<Instance<Data>*>(object.get())->data)
      std::shared_ptr<Data>(std::move(data));
  return object.release();
}

template <class Data>
const std::shared_ptr<Data>& shared_data_of(PyObject* object) {
  return reinterpret_cast<Instance<Data>*>(object)->data;
}

template <class Data>
Data& data_of(PyObject* object) {
  return *shared_data_of<Data>(object);
}

// Py_tp_dealloc of such a type.
template <class Data>
void dealloc_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  {
    std::shared_ptr<Data> data = std::move(reinterpret_cast<Instance<Data>*>(object)->data);
    std::destroy_at(&reinterpret_cast<Instance<Data>*>(object)->data);
    if (data.use_count() == 1) {
      const GilRelease released;
      data.reset();
    }
  }
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

}  // namespace deep_jit::python
