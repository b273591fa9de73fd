// SPDX-License-Identifier: MIT
//
// deep_jit.CacheInfo: the counters of a disk cache as a named tuple.
//
//     Ref info = make_cache_info(state, &runtime->disk_cache.counters());
//
// Errors: PythonError.
// Thread-safety: the GIL is held; the counters may be counting meanwhile.
#pragma once

#include "deep_jit/cache/disk_cache.hpp"

#include "python/bindings/object.h"
#include "python/bindings/state.h"

namespace deep_jit::python {

Ref make_cache_info_type();

// Null counters are all zero.
Ref make_cache_info(State& state, const CacheCounters* counters);

}  // namespace deep_jit::python
