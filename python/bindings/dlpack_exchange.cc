// SPDX-License-Identifier: MIT
#include "python/bindings/dlpack_exchange.h"

#include "python/bindings/loaded_types.h"

namespace deep_jit::python {
namespace {

const dlpack::ExchangeApi* ask_type(State& state, PyObject* type) {
  const Ref capsule = optional_attribute(type, state.name_exchange_api);
  if (!capsule || PyCapsule_IsValid(capsule.get(), dlpack::kExchangeName) == 0) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeName));
  while (api != nullptr && api->major != dlpack::kMajor) api = api->previous;
  return api != nullptr && api->view_from_object != nullptr ? api : nullptr;
}

}  // namespace

const dlpack::ExchangeApi* find_exchange_api(State& state, PyObject* object) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  for (int i = 0; i < State::kExchangeTypes; ++i) {
    if (state.exchange_types[i] == type)
      return static_cast<const dlpack::ExchangeApi*>(state.exchange_apis[i]);
  }
  const dlpack::ExchangeApi* api = ask_type(state, type);
  const Ref oldest{state.exchange_types[State::kExchangeTypes - 1]};
  for (int i = State::kExchangeTypes - 1; i > 0; --i) {
    state.exchange_types[i] = state.exchange_types[i - 1];
    state.exchange_apis[i] = state.exchange_apis[i - 1];
  }
  state.exchange_types[0] = Ref::borrow(type).release();
  state.exchange_apis[0] = api;
  return api;
}

dlpack::Tensor view(const dlpack::ExchangeApi& api, PyObject* object) {
  dlpack::Tensor tensor{};
  if (api.view_from_object(object, &tensor) != 0) {
    if (PyErr_Occurred() == nullptr)
      PyErr_SetString(PyExc_BufferError, "DLPack's C interface failed without an error");
    throw PythonError{};
  }
  return tensor;
}

}  // namespace deep_jit::python
