// SPDX-License-Identifier: MIT
//
// host::Device: the CPU that kernels run on.
//
// What: how many threads run at once here, and how much shared memory a block may have.
// When not: it says nothing about instruction sets; give
// `-march=...` as a compiler flag where a kernel needs one.
//
// Example:
//     int grid = host::Device().get_num_threads() * 4;
//
// Errors: none. Thread-safety: a plain value.
#pragma once

#include <algorithm>
#include <thread>

namespace deep_jit::host {

class Device {
 public:
  // Threads that this process may run at once; at least 1.
  int get_num_threads() const {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }

  // Dynamic shared memory that a block may ask for: more than any GPU has.
  static constexpr int kMaxSmemBytes = 16 << 20;
  int get_num_smem_bytes() const { return kMaxSmemBytes; }

  // The name that device code written for several backends asks for.
  int get_num_sms() const { return get_num_threads(); }
};

}  // namespace deep_jit::host
