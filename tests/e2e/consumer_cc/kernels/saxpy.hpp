// SPDX-License-Identifier: MIT
#pragma once

__device__ inline float saxpy(float a, float x, float y) {
  return a * x + y;
}
