// SPDX-License-Identifier: MIT
#include "python/bindings/cache_info.h"

#include <atomic>
#include <cstdint>

namespace deep_jit::python {
namespace {

// In the order of CacheCounters.
PyStructSequence_Field kFields[] = {
    {"hits", "look-ups on disk that found a whole, checked entry"},
    {"misses",
     "look-ups that found none; a compile looks twice, before and after it has the key's lock"},
    {"damaged", "entries found with a bad manifest, file size or checksum"},
    {"other_version", "entries found that another format version wrote"},
    {"unreadable", "cache roots or entries that could not be read"},
    {"published", "builds renamed to where nothing was"},
    {"publish_races", "builds dropped for one that another writer published first"},
    {"healed", "unusable entries that a build replaced"},
    {"kept_private", "builds that could not be published, used from the temporary directory"},
    {nullptr, nullptr},
};

PyStructSequence_Desc kDescription = {
    "deep_jit.CacheInfo",
    "What happened in one runtime's disk cache, in this process. It compiled "
    "published + publish_races + healed + kept_private kernels.",
    kFields, 9};

}  // namespace

Ref make_cache_info_type() {
  return checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&kDescription)));
}

Ref make_cache_info(State& state, const CacheCounters* counters) {
  Ref info = checked(PyStructSequence_New(reinterpret_cast<PyTypeObject*>(state.cache_info_type)));
  Py_ssize_t index = 0;
  for (std::atomic<std::uint64_t> CacheCounters::* counter :
       {&CacheCounters::hits, &CacheCounters::misses, &CacheCounters::damaged,
        &CacheCounters::other_version, &CacheCounters::unreadable, &CacheCounters::published,
        &CacheCounters::publish_races, &CacheCounters::healed, &CacheCounters::kept_private}) {
    const std::uint64_t value = counters != nullptr ? (counters->*counter).load() : 0;
    PyStructSequence_SetItem(info.get(), index++,
                             checked(PyLong_FromUnsignedLongLong(value)).release());
  }
  return info;
}

}  // namespace deep_jit::python
