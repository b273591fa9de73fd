// SPDX-License-Identifier: MIT
//
// FakeDriver: what the stand-in for libcuda.so.1 has been told and has seen.
//
// What: tests load the stand-in (fake_driver.cc), a real shared library with libcuda's name, before
// the code under test asks for the driver. It has devices, contexts, libraries and streams enough
// to see who called what; its answers and failures are set here.
// When not: it runs no kernel. What a GPU does is for tests/cuda/gpu.
//
// Errors: as the real driver, by CUresult.
// Thread-safety: entry points lock `mutex`; a test reads and writes while no other thread calls.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace deep_jit::testing {

struct FakeKernel {
  std::string symbol;
  std::vector<std::size_t> parameter_sizes;
};

struct FakeLaunch {
  CUfunction function;
  CUcontext context;
  CUlaunchConfig config;
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::string> arguments;  // Bytes, by the sizes of the kernel's parameters.

  const CUlaunchAttribute* find(CUlaunchAttributeID id) const {
    for (const auto& attribute : attributes) {
      if (attribute.id == id) return &attribute;
    }
    return nullptr;
  }
};

struct FakeDriver {
  std::mutex mutex;

  // --- What is there ---
  int num_devices = 2;
  std::map<std::pair<int, CUdevice_attribute>, int> device_attributes;  // Default 0.
  std::vector<FakeKernel> kernels = {{"_Z5scalePfPKfi", {8, 8, 4}}};    // Of each library.
  std::map<CUfunction_attribute, int> function_attributes;              // As a new function has it.
  std::map<CUstream, CUcontext> stream_contexts;
  std::map<CUstream, CUstreamCaptureStatus> captures;
  bool is_blocking_capture = false;  // A stream that the legacy one waits for is capturing.

  // --- What goes wrong ---
  std::map<std::string, CUresult> failures;  // By name of the entry point.

  // --- What was done ---
  std::vector<std::string> calls;
  std::vector<FakeLaunch> launches;
  std::vector<std::string> loaded_files;
  std::set<CUlibrary> libraries;                  // Loaded and not unloaded.
  std::map<int, unsigned long long> context_ids;  // Of the primary contexts that were made.
  unsigned long long next_context_id = 100;
  std::map<std::pair<CUfunction, CUfunction_attribute>, int> set_attributes;

  std::size_t count(const std::string& name) const {
    return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), name));
  }
  // Everything as new. Contexts that the code under test keeps stay.
  void reset() {
    num_devices = 2;
    device_attributes.clear();
    kernels = {{"_Z5scalePfPKfi", {8, 8, 4}}};
    function_attributes.clear();
    stream_contexts.clear();
    captures.clear();
    is_blocking_capture = false;
    failures.clear();
    calls.clear();
    launches.clear();
    loaded_files.clear();
    libraries.clear();
    set_attributes.clear();
  }
  // As cuDevicePrimaryCtxReset: the same address, another context.
  void reset_context(int device) { context_ids[device] = next_context_id++; }
};

// Makes device `device`'s primary context the thread's only one; -1: none.
using FakeSetDevice = void(int device);
using FakeGetDriver = FakeDriver*();

}  // namespace deep_jit::testing
