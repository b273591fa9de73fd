// SPDX-License-Identifier: MIT
//
// Does not compile: no environment variable is a double.
#include "deep_jit/base/env.hpp"

double get() {
  return deep_jit::get_env<double>("EXAMPLE");
}
