// SPDX-License-Identifier: MIT
//
// The stand-in for libcuda.so.1; see fake_driver.hpp.

// <cuda.h> declares what this library exports.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda/fake_driver.hpp"

namespace deep_jit::testing {
namespace {

FakeDriver& fake() {
  static FakeDriver* const driver = new FakeDriver();
  return *driver;
}

// The handles: numbers that say what they are.
constexpr std::uintptr_t kContext = 0x10000;   // + device
constexpr std::uintptr_t kLibrary = 0x20000;   // + count
constexpr std::uintptr_t kKernel = 0x30000;    // + index
constexpr std::uintptr_t kFunction = 0x40000;  // + context id * 256 + index

template <class Handle>
Handle to_handle(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}
template <class Handle>
std::uintptr_t to_number(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

std::vector<CUcontext>& contexts() {
  static thread_local std::vector<CUcontext> stack;
  return stack;
}
CUcontext current() {
  return contexts().empty() ? nullptr : contexts().back();
}
int device_of(CUcontext context) {
  return static_cast<int>(to_number(context) - kContext);
}
unsigned long long id_of(CUcontext context) {
  auto& ids = fake().context_ids;
  const int device = device_of(context);
  if (ids.find(device) == ids.end()) fake().reset_context(device);
  return ids[device];
}

// One entry point: its call is written down, and fails when the test says so.
class Call {
 public:
  explicit Call(const char* name) : lock_(fake().mutex) {
    fake().calls.emplace_back(name);
    const auto failure = fake().failures.find(name);
    if (failure != fake().failures.end()) result_ = failure->second;
  }
  bool fails() const { return result_ != CUDA_SUCCESS; }
  CUresult result() const { return result_; }

 private:
  std::lock_guard<std::mutex> lock_;
  CUresult result_ = CUDA_SUCCESS;
};

#define FAKE_CALL(name)  \
  const Call call(name); \
  if (call.fails()) return call.result()

}  // namespace

}  // namespace deep_jit::testing

using namespace deep_jit::testing;  // NOLINT: the entry points are global.

extern "C" {

__attribute__((visibility("default"))) FakeDriver* fake_driver() {
  return &fake();
}

__attribute__((visibility("default"))) void fake_set_device(int device) {
  contexts().clear();
  if (device >= 0) contexts().push_back(to_handle<CUcontext>(kContext + device));
}

CUresult cuInit(unsigned int) {
  FAKE_CALL("cuInit");
  return CUDA_SUCCESS;
}

// The real NVRTC asks for it when there is a driver, and takes for granted that the function
// exists.
__attribute__((visibility("default"))) CUresult cuGetExportTable(const void**, const CUuuid*) {
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "text of the error";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CALL("cuDeviceGet");
  if (ordinal >= fake().num_devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_CALL("cuDeviceGetCount");
  *count = fake().num_devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  FAKE_CALL("cuDeviceGetName");
  std::strncpy(name, ("Fake " + std::to_string(device)).c_str(), static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  FAKE_CALL("cuDeviceGetUuid");
  std::memset(uuid, device + 1, sizeof(*uuid));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_CALL("cuDeviceGetAttribute");
  const auto found = fake().device_attributes.find({device, attribute});
  *value = found == fake().device_attributes.end() ? 0 : found->second;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  FAKE_CALL("cuDeviceTotalMem");
  *bytes = std::size_t{3} << 40;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE_CALL("cuDevicePrimaryCtxRetain");
  *context = to_handle<CUcontext>(kContext + static_cast<std::uintptr_t>(device));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  FAKE_CALL("cuCtxGetCurrent");
  *context = current();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CALL("cuCtxGetDevice");
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = device_of(current());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  FAKE_CALL("cuCtxGetId");
  if (context == nullptr) context = current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = id_of(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  FAKE_CALL("cuCtxPushCurrent");
  contexts().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  FAKE_CALL("cuCtxPopCurrent");
  *context = current();
  if (!contexts().empty()) contexts().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CALL("cuStreamGetCtx");
  const auto found = fake().stream_contexts.find(stream);
  if (found == fake().stream_contexts.end()) return CUDA_ERROR_INVALID_HANDLE;
  *context = found->second;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALL("cuStreamIsCapturing");
  if (stream == CU_STREAM_LEGACY && fake().is_blocking_capture) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const auto found = fake().captures.find(stream);
  *status = found == fake().captures.end() ? CU_STREAM_CAPTURE_STATUS_NONE : found->second;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, CUjit_option*, void**,
                               unsigned int, CUlibraryOption*, void**, unsigned int) {
  FAKE_CALL("cuLibraryLoadFromFile");
  fake().loaded_files.emplace_back(file);
  *library = to_handle<CUlibrary>(kLibrary + fake().loaded_files.size());
  fake().libraries.insert(*library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  FAKE_CALL("cuLibraryUnload");
  return fake().libraries.erase(library) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary) {
  FAKE_CALL("cuLibraryGetKernelCount");
  *count = static_cast<unsigned int>(fake().kernels.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary) {
  FAKE_CALL("cuLibraryEnumerateKernels");
  for (unsigned int i = 0; i < count; ++i) kernels[i] = to_handle<CUkernel>(kKernel + i);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  FAKE_CALL("cuKernelGetName");
  *name = fake().kernels[to_number(kernel) - kKernel].symbol.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  FAKE_CALL("cuKernelGetFunction");
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *function =
      to_handle<CUfunction>(kFunction + id_of(current()) * 256 + (to_number(kernel) - kKernel));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* size) {
  FAKE_CALL("cuKernelGetParamInfo");
  const auto& sizes = fake().kernels[to_number(kernel) - kKernel].parameter_sizes;
  if (index >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (std::size_t i = 0; i < index; ++i) *offset += sizes[i];
  *size = sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
  FAKE_CALL("cuKernelGetAttribute");
  *value = fake().function_attributes[attribute];
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  FAKE_CALL("cuFuncGetAttribute");
  const auto found = fake().set_attributes.find({function, attribute});
  *value =
      found == fake().set_attributes.end() ? fake().function_attributes[attribute] : found->second;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  FAKE_CALL("cuFuncSetAttribute");
  fake().set_attributes[{function, attribute}] = value;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction) {
  FAKE_CALL("cuFuncLoad");
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void**) {
  FAKE_CALL("cuLaunchKernelEx");
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::uintptr_t number = to_number(function) - kFunction;
  if (number / 256 != id_of(current())) return CUDA_ERROR_INVALID_HANDLE;  // Another context's.
  FakeLaunch launch{function, current(), *config, {}, {}};
  launch.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  launch.config.attrs = nullptr;
  const auto& sizes = fake().kernels[number % 256].parameter_sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    launch.arguments.emplace_back(static_cast<const char*>(arguments[i]), sizes[i]);
  }
  fake().launches.push_back(std::move(launch));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr, std::size_t) {
  FAKE_CALL("cuMemAddressFree");
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
  FAKE_CALL("cuMemGetAddressRange_v2");
  *base = pointer;
  *size = 16;
  return CUDA_SUCCESS;
}

}  // extern "C"
