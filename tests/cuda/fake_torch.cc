// SPDX-License-Identifier: MIT
//
// The stand-in for libtorch_cuda.so: a current stream per device and thread.

#include <cstdint>

namespace {

thread_local void* streams[2] = {nullptr, nullptr};
int last_device = -1;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void fake_torch_set_stream(int device, void* stream) {
  streams[device] = stream;
}

__attribute__((visibility("default"))) int fake_torch_last_device() {
  return last_device;
}

__attribute__((visibility("default"))) std::int32_t aoti_torch_get_current_cuda_stream(
    std::int32_t device, void** stream) {
  last_device = device;
  if (device >= 2) return 1;
  *stream = streams[device];
  return 0;
}

}  // extern "C"
