// SPDX-License-Identifier: MIT
//
// What a device can do, asked from the driver.
//
// What: DeviceProperties is `cudaDeviceProp` where CUDA's runtime headers are on the include path,
// and otherwise a struct of our own with the same names for what kernel libraries look at. Either
// is filled from driver attributes; libcudart is not called. Members for which the driver has no
// attribute (limits of textures and surfaces, luid) are zero.
// When not: clocks are not part of it, newer runtimes have dropped them; see Device.
//
// Example:
//     const cuda::DeviceProperties properties = cuda::query_properties(api, device);
//
// Errors: exception::Exception for a driver call that fails. An attribute that this driver does not
// know is zero.
// Thread-safety: a free function and plain values.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/driver.hpp"

namespace deep_jit::cuda {

namespace detail {

// A template, so that members which this version of cudaDeviceProp does not have are left out.
template <class Properties>
void fill_properties(const driver::Api& api, CUdevice device, Properties& p) {
  const auto get = [&](CUdevice_attribute attribute) {
    int value = 0;
    return api.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
  };
  DJ_CUDA_DRIVER_CHECK(api.cuDeviceGetName(p.name, static_cast<int>(sizeof(p.name)), device));
  DJ_CUDA_DRIVER_CHECK(api.cuDeviceTotalMem(&p.totalGlobalMem, device));
  DJ_CUDA_DRIVER_CHECK(api.cuDeviceGetUuid(&p.uuid, device));
  constexpr CUdevice_attribute kBlockDims[] = {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                               CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                               CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
  constexpr CUdevice_attribute kGridDims[] = {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                              CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                              CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
  for (int i = 0; i < 3; ++i) {
    p.maxThreadsDim[i] = get(kBlockDims[i]);
    p.maxGridSize[i] = get(kGridDims[i]);
  }
#define DJ_CUDA_FILL(member, attribute)                                              \
  if constexpr (requires { p.member; }) {                                            \
    p.member = static_cast<std::remove_cvref_t<decltype(p.member)>>(get(attribute)); \
  }
  DJ_CUDA_FILL(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
  DJ_CUDA_FILL(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
  DJ_CUDA_FILL(multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
  DJ_CUDA_FILL(warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE)
  DJ_CUDA_FILL(memPitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH)
  DJ_CUDA_FILL(sharedMemPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)
  DJ_CUDA_FILL(sharedMemPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
  DJ_CUDA_FILL(sharedMemPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
  DJ_CUDA_FILL(reservedSharedMemPerBlock, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)
  DJ_CUDA_FILL(totalConstMem, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)
  DJ_CUDA_FILL(regsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)
  DJ_CUDA_FILL(regsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)
  DJ_CUDA_FILL(maxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
  DJ_CUDA_FILL(maxThreadsPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
  DJ_CUDA_FILL(maxBlocksPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)
  DJ_CUDA_FILL(l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
  DJ_CUDA_FILL(persistingL2CacheMaxSize, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)
  DJ_CUDA_FILL(accessPolicyMaxWindowSize, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE)
  DJ_CUDA_FILL(memoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
  DJ_CUDA_FILL(clockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
  DJ_CUDA_FILL(memoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
  DJ_CUDA_FILL(asyncEngineCount, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)
  DJ_CUDA_FILL(textureAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)
  DJ_CUDA_FILL(texturePitchAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)
  DJ_CUDA_FILL(surfaceAlignment, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT)
  DJ_CUDA_FILL(concurrentKernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)
  DJ_CUDA_FILL(cooperativeLaunch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
  DJ_CUDA_FILL(clusterLaunch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
  DJ_CUDA_FILL(computePreemptionSupported, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED)
  DJ_CUDA_FILL(streamPrioritiesSupported, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED)
  DJ_CUDA_FILL(globalL1CacheSupported, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED)
  DJ_CUDA_FILL(localL1CacheSupported, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED)
  DJ_CUDA_FILL(memoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
  DJ_CUDA_FILL(memoryPoolSupportedHandleTypes, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
  DJ_CUDA_FILL(unifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
  DJ_CUDA_FILL(unifiedFunctionPointers, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS)
  DJ_CUDA_FILL(managedMemory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)
  DJ_CUDA_FILL(concurrentManagedAccess, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
  DJ_CUDA_FILL(directManagedMemAccessFromHost,
               CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)
  DJ_CUDA_FILL(pageableMemoryAccess, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)
  DJ_CUDA_FILL(pageableMemoryAccessUsesHostPageTables,
               CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)
  DJ_CUDA_FILL(hostNativeAtomicSupported, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)
  DJ_CUDA_FILL(hostRegisterSupported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)
  DJ_CUDA_FILL(hostRegisterReadOnlySupported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
  DJ_CUDA_FILL(canUseHostPointerForRegisteredMem,
               CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
  DJ_CUDA_FILL(canMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)
  DJ_CUDA_FILL(sparseCudaArraySupported, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED)
  DJ_CUDA_FILL(deferredMappingCudaArraySupported,
               CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED)
  DJ_CUDA_FILL(timelineSemaphoreInteropSupported,
               CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED)
  DJ_CUDA_FILL(gpuDirectRDMASupported, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)
  DJ_CUDA_FILL(gpuDirectRDMAFlushWritesOptions,
               CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)
  DJ_CUDA_FILL(gpuDirectRDMAWritesOrdering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
  DJ_CUDA_FILL(ipcEventSupported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)
  DJ_CUDA_FILL(integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED)
  DJ_CUDA_FILL(ECCEnabled, CU_DEVICE_ATTRIBUTE_ECC_ENABLED)
  DJ_CUDA_FILL(tccDriver, CU_DEVICE_ATTRIBUTE_TCC_DRIVER)
  DJ_CUDA_FILL(isMultiGpuBoard, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD)
  DJ_CUDA_FILL(multiGpuBoardGroupID, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID)
  DJ_CUDA_FILL(pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
  DJ_CUDA_FILL(pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
  DJ_CUDA_FILL(pciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
#undef DJ_CUDA_FILL
}

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

#if DJ_CUDA_HAS_RUNTIME_HEADERS

using DeviceProperties = ::cudaDeviceProp;

#else

// The names are those of cudaDeviceProp.
struct DeviceProperties {
  char name[256];
  CUuuid uuid;
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  std::size_t sharedMemPerBlockOptin;
  std::size_t sharedMemPerMultiprocessor;
  std::size_t reservedSharedMemPerBlock;
  std::size_t totalConstMem;
  int major;
  int minor;
  int multiProcessorCount;
  int warpSize;
  int regsPerBlock;
  int regsPerMultiprocessor;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int maxBlocksPerMultiProcessor;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int accessPolicyMaxWindowSize;
  int memoryBusWidth;
  int asyncEngineCount;
  int concurrentKernels;
  int cooperativeLaunch;
  int clusterLaunch;
  int computePreemptionSupported;
  int streamPrioritiesSupported;
  int memoryPoolsSupported;
  int unifiedAddressing;
  int managedMemory;
  int concurrentManagedAccess;
  int pageableMemoryAccess;
  int integrated;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
};

#endif

DeviceProperties query_properties(const driver::Api& api, CUdevice device);

// --- Inline implementations ---

inline DeviceProperties query_properties(const driver::Api& api, CUdevice device) {
  DeviceProperties properties{};
  detail::fill_properties(api, device, properties);
  return properties;
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
