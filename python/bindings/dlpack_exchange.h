// SPDX-License-Identifier: MIT
//
// Arrays through DLPack's C interface (DLPack 1.3): a look at an array in one C call.
//
// What: a type that has the attribute `__dlpack_c_exchange_api__` (torch.Tensor of torch 2.13 has)
// gives address, device, type, shape and strides of an object without a Python call, a capsule or a
// reference: the quickest way there is.
// When not: types without it; see dlpack.h for the protocol that all have.
//
//     if (const auto* api = find_exchange_api(state, object)) view(*api, object);
//
// Errors: PythonError when the library raised (a sparse tensor has no address).
// Thread-safety: the GIL is held. The view is valid while the object is alive and unchanged.
#pragma once

#include "python/bindings/dlpack_abi.h"
#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

// Null when the object's type has none. What the last few types answered is remembered.
const dlpack::ExchangeApi* find_exchange_api(State& state, PyObject* object);

dlpack::Tensor view(const dlpack::ExchangeApi& api, PyObject* object);

}  // namespace deep_jit::python
