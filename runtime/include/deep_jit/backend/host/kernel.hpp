// SPDX-License-Identifier: MIT
//
// host::Kernel: a loaded kernel, ready to launch.
//
// What: opens `kernel.so` of a directory, reads its descriptor (kernel_abi.hpp) and runs a grid of
// blocks over the thread pool. A launch returns when every block is done.
// When not: compiling and caching are Runtime's work; a library with several kernels is refused.
//
// Example:
//     auto kernel = Kernel::load(directory, env);
//     kernel->launch({.grid_dim = Dim3{16}, .block_dim = Dim3{256}, .num_threads = 4}, out, x, n);
//
// Errors: load throws exception::CacheError when the file cannot be opened as a module of this
// version, Exception with "expected exactly one kernel" otherwise, and for a kernel built with a
// sanitizer that this process does not have. launch throws LaunchError for
// wrong options, argument count or sizes, and with the text of what a kernel threw.
// Thread-safety: launches may run at the same time; unload() must not overlap with one.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <format>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "deep_jit/backend/host/block_runner.hpp"
#include "deep_jit/backend/host/kernel_abi.hpp"
#include "deep_jit/backend/host/options.hpp"
#include "deep_jit/backend/host/shared_memory.hpp"
#include "deep_jit/backend/host/thread_pool.hpp"
#include "deep_jit/base/dynamic_library.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/no_ref_ptr.hpp"

namespace deep_jit::host {

using KernelParameter = abi::Parameter;

class Kernel {
 public:
  static std::shared_ptr<Kernel> load(const std::filesystem::path& directory, const Env& env);

  // One argument per parameter, of the parameter's exact size; a NoRefPtr stands for storage whose
  // size is the caller's business.
  template <class... Args>
  void launch(const LaunchOptions& options, const Args&... args) const;

  // The same with the addresses of `count` argument values.
  void launch_raw(const LaunchOptions& options, void* const* args, std::size_t count) const;

  // As in the source; empty after unload().
  std::string name() const { return kernel_ == nullptr ? "" : kernel_->name; }
  std::span<const KernelParameter> params() const {
    return kernel_ == nullptr ? std::span<const KernelParameter>()
                              : std::span(kernel_->parameters, kernel_->parameter_count);
  }

  // Closes the library; harmless when done twice.
  void unload() noexcept {
    kernel_ = nullptr;
    library_.close();
  }

 private:
  struct Grid;

  Kernel(DynamicLibrary library, const abi::Kernel* kernel)
      : library_(std::move(library)), kernel_(kernel) {}

  void check_loaded() const;
  void check_arguments(std::span<void* const> args, std::span<const std::size_t> sizes) const;
  void run(const LaunchOptions& options, void* const* args) const;
  static void run_elsewhere(Grid& grid);

  DynamicLibrary library_;
  const abi::Kernel* kernel_;  // Inside the library.
};

// --- Inline implementations ---

namespace detail {

// Throws unless the kernel's sanitizers, if it has some, can work in this process. A run-time that
// is loaded too late for the process ends it.
inline void check_sanitizers(const std::filesystem::path& directory, std::string_view sanitizers) {
  struct Runtime {
    std::string_view name;
    const char* symbol;
    const char* library;
  };
  for (const Runtime& runtime : {Runtime{"address\n", "__asan_init", "libasan.so"},
                                 Runtime{"thread\n", "__tsan_init", "libtsan.so"}}) {
    if (sanitizers.find(runtime.name) != sanitizers.npos &&
        ::dlsym(RTLD_DEFAULT, runtime.symbol) == nullptr) {
      const auto name = runtime.name.substr(0, runtime.name.size() - 1);
      DJ_PANIC(
          "cannot load the kernel of {}: it was built with -fsanitize={}, and this process does "
          "not have that sanitizer's run-time: build the program with it or start it with "
          "LD_PRELOAD={} of the kernel's compiler, or compile the kernel without `sanitize`",
          directory.string(), name, runtime.library);
    }
  }
}

}  // namespace detail

inline std::shared_ptr<Kernel> Kernel::load(const std::filesystem::path& directory, const Env&) {
  const auto path = directory / kArtifactFileName;
  constexpr std::size_t kMaxSanitizersBytes = 4096;
  std::string sanitizers;
  if (try_read_regular(directory / kSanitizersFileName, kMaxSanitizersBytes, sanitizers) == 0) {
    detail::check_sanitizers(directory, sanitizers);
  }
  DynamicLibrary library;
  const abi::Module* module_info = nullptr;
  try {
    library = DynamicLibrary::open(path);
    module_info = library.symbol<const abi::Module*()>(abi::kModuleSymbol)();
  } catch (const exception::Exception& error) {
    if (!sanitizers.empty()) {
      DJ_PANIC(
          "cannot load the kernel of {}, which was built with a sanitizer; has this process its "
          "run-time? {}",
          directory.string(), error.error);
    }
    DJ_THROW(exception::CacheError, "cannot load the kernel of {}: {}", directory.string(),
             error.error);
  }
  if (module_info->magic != abi::kMagic || module_info->version != abi::kVersion) {
    DJ_THROW(exception::CacheError,
             "cannot load {}: it has magic {:#x} and interface version {}, expected {:#x} and {}",
             path.string(), module_info->magic, module_info->version, abi::kMagic, abi::kVersion);
  }
  std::string names;
  std::size_t count = 0;
  for (const auto* kernel = module_info->first; kernel != nullptr; kernel = kernel->next) {
    names += (count++ == 0 ? "" : ", ") + std::string(kernel->name);
  }
  if (count != 1) {
    DJ_PANIC(
        "expected exactly one kernel in {}, found {}{}: the source must define, or explicitly "
        "instantiate, one __global__ function itself (not through a macro or a header)",
        directory.string(), count, count == 0 ? "" : " (" + names + ")");
  }
  return std::shared_ptr<Kernel>(new Kernel(std::move(library), module_info->first));
}

template <class... Args>
void Kernel::launch(const LaunchOptions& options, const Args&... args) const {
  static_assert(((std::is_trivially_copyable_v<Args> || std::is_base_of_v<NoRefPtr, Args>) && ...),
                "kernel arguments are passed as bytes: they must be trivially copyable");
  check_loaded();
  static constexpr void* kNull = nullptr;
  [[maybe_unused]] const auto address = []<class T>(const T& argument) -> void* {
    // An object of type nullptr_t need not hold the bytes of a null pointer.
    if constexpr (std::is_null_pointer_v<T>)
      return const_cast<void**>(&kNull);
    else
      return kernel_arg_pointer(argument);
  };
  [[maybe_unused]] const auto size = []<class T>(const T&) {
    return std::is_base_of_v<NoRefPtr, T> ? std::size_t{0} : sizeof(T);
  };
  // One more, so that neither array is empty.
  void* const addresses[] = {address(args)..., nullptr};
  const std::size_t sizes[] = {size(args)..., 0};
  check_arguments(std::span(addresses, sizeof...(Args)), std::span(sizes, sizeof...(Args)));
  run(options, addresses);
}

inline void Kernel::launch_raw(const LaunchOptions& options, void* const* args,
                               std::size_t count) const {
  check_loaded();
  check_arguments(std::span(args, count), {});
  run(options, args);
}

inline void Kernel::check_loaded() const {
  if (kernel_ == nullptr) {
    DJ_THROW(exception::LaunchError,
             "kernel must be loaded before launch: unload() was called on this one; compile again");
  }
}

// `sizes` is empty, or has 0 where a size is not known.
inline void Kernel::check_arguments(std::span<void* const> args,
                                    std::span<const std::size_t> sizes) const {
  const auto parameters = params();
  if (args.size() != parameters.size()) {
    DJ_THROW(exception::LaunchError,
             "cannot launch kernel `{}`: it has {} parameters, but {} arguments were given",
             kernel_->name, parameters.size(), args.size());
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    const auto& parameter = parameters[i];
    if (!sizes.empty() && sizes[i] != 0 && sizes[i] != parameter.size) {
      DJ_THROW(exception::LaunchError,
               "cannot launch kernel `{}`: parameter {} has {} bytes, but the argument has {}: "
               "convert it to the parameter's type",
               kernel_->name, i, parameter.size, sizes[i]);
    }
    if (args[i] == nullptr ||
        reinterpret_cast<std::uintptr_t>(args[i]) % parameter.alignment != 0) {
      DJ_THROW(
          exception::LaunchError,
          "cannot launch kernel `{}`: the storage of argument {} is at {}, expected an address "
          "that is not null and a multiple of {}",
          kernel_->name, i, args[i], parameter.alignment);
    }
  }
}

// One launch: its blocks in a row, and the first failure.
struct Kernel::Grid {
  const abi::Kernel& kernel;
  void* const* args;
  const Dim3 grid;
  const Dim3 block;
  const std::size_t num_smem_bytes;
  const std::uint64_t count;
  const int num_threads;
  std::atomic<bool> failed{false};
  std::mutex mutex{};
  std::string error{};  // Under the mutex.

  // Whether the calling thread is inside a block.
  static bool& is_inside() {
    static thread_local bool inside = false;
    return inside;
  }

  void run() {
    if (count == 1 || num_threads == 1) {
      for (std::uint64_t i = 0; i < count; ++i) run_block(i);
    } else {
      ThreadPool::shared().run(count, num_threads, [this](std::uint64_t i) { run_block(i); });
    }
  }

  void run_block(std::uint64_t index) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const std::uint64_t row = index / grid.x;
    char text[1024];  // Longer texts of exceptions are cut.
    text[0] = '\0';
    abi::Block running{.args = args,
                       .index = {static_cast<std::uint32_t>(index % grid.x),
                                 static_cast<std::uint32_t>(row % grid.y),
                                 static_cast<std::uint32_t>(row / grid.y)},
                       .grid = {grid.x, grid.y, grid.z},
                       .dim = {block.x, block.y, block.z},
                       .next = {},
                       .is_started = 0,
                       .votes = 0,
                       .votes_true = 0,
                       .reserved = 0,
                       .shared_memory = nullptr,
                       .error = text,
                       .error_size = sizeof(text),
                       .wait = nullptr,
                       .owner = nullptr};
    try {
      running.shared_memory = SharedMemory::of_this_thread().resize(num_smem_bytes);
    } catch (const std::bad_alloc&) {
      return fail(running, "there is no memory for its shared memory");
    }
    is_inside() = true;
    if (!BlockRunner(kernel, running).run()) fail(running, text);
    is_inside() = false;
  }

  void fail(const abi::Block& at, const char* text) {
    const std::lock_guard lock(mutex);
    if (failed.exchange(true)) return;
    error = std::format("kernel `{}` threw in block ({}, {}, {}): {}", kernel.name, at.index[0],
                        at.index[1], at.index[2], text);
  }
};

inline void Kernel::run(const LaunchOptions& options, void* const* args) const {
  options.validate(kernel_->name);
  const Dim3 dim = *options.grid_dim;
  const std::uint64_t slice = std::uint64_t{dim.x} * dim.y;
  if (slice > std::numeric_limits<std::uint64_t>::max() / dim.z) {
    DJ_THROW(exception::LaunchError,
             "cannot launch kernel `{}`: a grid of ({}, {}, {}) blocks is too large", kernel_->name,
             dim.x, dim.y, dim.z);
  }
  Grid grid{.kernel = *kernel_,
            .args = args,
            .grid = dim,
            .block = *options.block_dim,
            .num_smem_bytes = static_cast<std::size_t>(options.num_smem_bytes.value_or(0)),
            .count = slice * dim.z,
            .num_threads = options.num_threads.value_or(1)};
  if (Grid::is_inside()) {
    run_elsewhere(grid);
  } else {
    grid.run();
  }
  if (grid.failed) DJ_THROW(exception::LaunchError, "{}", grid.error);
}

// For a launch from inside a kernel: the block that makes it keeps its indices and its shared
// memory, which are variables of this thread, and the rest of a stack that may be small.
inline void Kernel::run_elsewhere(Grid& grid) {
  try {
    std::thread([&grid] { grid.run(); }).join();
  } catch (const std::system_error& error) {
    DJ_THROW(exception::LaunchError,
             "cannot launch kernel `{}` from inside a kernel: no thread could be started: {}",
             grid.kernel.name, error.what());
  }
}

}  // namespace deep_jit::host
