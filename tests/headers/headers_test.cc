// SPDX-License-Identifier: MIT
//
// Every public header compiles alone, first in its translation unit and without warnings, and all
// those units link into one program, which is this one: nothing is defined twice.
#include <gtest/gtest.h>

#include "deep_jit/backend/host/backend.hpp"

namespace deep_jit {
namespace {

TEST(Headers, ProgramOfAllUnitsRuns) {
  EXPECT_EQ(Host::kName, "host");
}

}  // namespace
}  // namespace deep_jit
