// SPDX-License-Identifier: MIT
//
// host::SharedMemory: the dynamic shared memory of the blocks that a thread runs.
//
// What: each operating system thread that runs blocks has one range of memory for `extern
// __shared__` arrays, at the same address for all its blocks and launches, because a kernel keeps
// that address in a thread_local reference. When AddressSanitizer is in the process, what lies
// beyond the size that was asked for is poisoned: a kernel built with it that goes too far is told
// so.
// When not: `__shared__` arrays of a fixed size are thread_local variables of the kernel's library.
//
// Example:
//     block.shared_memory = SharedMemory::of_this_thread().resize(options.num_smem_bytes);
//
// Errors: std::bad_alloc when the range cannot be reserved.
// Thread-safety: one object per thread, given back when the thread ends.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "deep_jit/backend/host/device.hpp"

namespace deep_jit::host {

class SharedMemory {
 public:
  // Reserved at once, taken page by page when touched.
  static constexpr std::size_t kMaxBytes = Device::kMaxSmemBytes;

  static SharedMemory& of_this_thread() {
    static thread_local SharedMemory memory;
    return memory;
  }

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // The range's address, aligned to a page; `size`, at most kMaxBytes, of it may be used. The bytes
  // are what the last block has left.
  void* resize(std::size_t size);

 private:
  using Mark = void (*)(const volatile void* begin, std::size_t size);

  SharedMemory() = default;

  void* memory_ = nullptr;
  std::size_t size_ = 0;
  Mark poison_ = nullptr;
  Mark unpoison_ = nullptr;
};

// --- Inline implementations ---

inline void* SharedMemory::resize(std::size_t size) {
  if (memory_ == nullptr) {
    void* memory = ::mmap(nullptr, kMaxBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = memory;
    poison_ = reinterpret_cast<Mark>(::dlsym(RTLD_DEFAULT, "__asan_poison_memory_region"));
    unpoison_ = reinterpret_cast<Mark>(::dlsym(RTLD_DEFAULT, "__asan_unpoison_memory_region"));
    if (poison_ != nullptr) poison_(memory_, kMaxBytes);
  }
  if (size != size_ && poison_ != nullptr) {
    char* bytes = static_cast<char*>(memory_);
    if (size > size_) {
      unpoison_(bytes, size);
    } else {
      poison_(bytes + size, size_ - size);
    }
  }
  size_ = size;
  return memory_;
}

inline SharedMemory::~SharedMemory() {
  if (memory_ == nullptr) return;
  if (unpoison_ != nullptr) unpoison_(memory_, kMaxBytes);  // Whoever gets the addresses next.
  ::munmap(memory_, kMaxBytes);
}

}  // namespace deep_jit::host
