// SPDX-License-Identifier: MIT
//
// Another translation unit of the same extension, which knows nothing of Python (DJ_DISABLE_GIL).
//
// Errors: those of the runtime.
// Thread-safety: all of it.
#pragma once

#include <string>

namespace deep_jit::testing {

// What `probe` returns while a GilScopedRelease of this unit lives.
int probe_in_plain_unit(int (*probe)());

// What a linker calls this unit's Runtime<Host>.
std::string runtime_name_in_plain_unit();

// Compiles `source` with a runtime of this unit and returns what its kernel writes.
int run_in_plain_unit(const std::string& library_root, const std::string& prefix,
                      const std::string& source);

}  // namespace deep_jit::testing
