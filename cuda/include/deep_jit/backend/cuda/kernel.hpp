// SPDX-License-Identifier: MIT
//
// cuda::Kernel: a loaded kernel, ready to launch.
//
// What: loads `kernel.cubin` of a directory, knows the parameters of its one kernel, and launches
// it. The code is on the device when load() returns, for the context that is current then. A launch
// in another context of the process loads it there, once; a thread without a current context lends
// itself the stream's, or else the primary one of the device that the kernel was loaded for. A
// launch is asynchronous, as in CUDA.
// When not: compiling and caching are Runtime's work; a binary with several kernels is refused.
//
// Example:
//     auto kernel = Kernel::load(directory, env);
//     kernel->launch(defaults.override_with({.grid_dim = dim3(16), .block_dim = dim3(256)}),
//                    out, x, n);
//
// Errors: load throws exception::CacheError for a file that is missing or no cubin, Exception with
// "expected exactly one kernel" and their names otherwise, and for one that this device cannot run.
// launch throws LaunchError, naming the kernel, for wrong options, argument count or sizes, and for
// what the driver refuses. What a kernel does wrong while it runs is reported by a later CUDA call.
// Thread-safety: launches may run at the same time, from any thread and in any context; unload()
// must not overlap with one. In a forked child a kernel of the parent can only be destroyed.
#pragma once

#include <cuda.h>
#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "deep_jit/backend/cuda/artifact.hpp"
#include "deep_jit/backend/cuda/capture.hpp"
#include "deep_jit/backend/cuda/context.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/driver.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/backend/cuda/torch_stream.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/no_ref_ptr.hpp"

namespace deep_jit::cuda {

namespace detail {

inline std::string demangle(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return text == nullptr ? symbol : text.get();
}

// "void lib::scale<float>(float*, int)" to "lib::scale<float>".
inline std::string name_of_symbol(const std::string& symbol) {
  std::string name = demangle(symbol);
  if (name.ends_with(')')) {
    int depth = 0;
    for (std::size_t i = name.size(); i-- > 0;) {
      depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
      if (depth == 0) {
        name.resize(i);
        break;
      }
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name.empty() ? symbol : name;
}

// Entry points that a compiler or a library adds to whatever it builds: device-side assert and
// printf, and CUB's empty kernel.
inline bool is_helper_kernel(std::string_view symbol) {
  return symbol == "__assertfail" || symbol == "__assert_fail" || symbol == "vprintf" ||
         symbol.starts_with("__nv_") || symbol.starts_with("__cuda_") ||
         (symbol.find("3cub") != symbol.npos && symbol.find("11EmptyKernel") != symbol.npos);
}

// What to do about a result that has nothing to do with the kernel; may be empty.
inline std::string_view advise(CUresult result) {
  if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED) {
    return "; a process that was forked after CUDA was initialised, or that is ending, cannot use "
           "CUDA: start workers with `spawn`";
  }
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    return "; a stream records a CUDA graph: compile and load kernels before that";
  }
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    return "; it is for another GPU: see the option arch";
  }
  return "";
}

// What a library that cannot be loaded means.
[[noreturn]] inline void fail_load(CUresult result, const std::string& path) {
  if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_SOURCE ||
      result == CUDA_ERROR_FILE_NOT_FOUND) {
    DJ_THROW(exception::CacheError, "cannot load {}: {}", path, driver::describe(result));
  }
  DJ_PANIC("cannot load {}: {}{}", path, driver::describe(result), advise(result));
}

}  // namespace detail

inline namespace DJ_CUDA_TYPES {

// As the driver lays it out for the device.
struct KernelParameter {
  std::size_t offset;
  std::size_t size;
};

struct KernelAttributes {
  int num_registers;          // Per thread.
  int num_static_smem_bytes;  // Per block.
  int num_local_bytes;        // Per thread.
  int num_const_bytes;
  int max_threads_per_block;  // With these registers, on this device.
};

class Kernel {
 public:
  CUlibrary library_handle = nullptr;
  CUfunction kernel_handle = nullptr;  // In the context that was current at load.

  static std::shared_ptr<Kernel> load(const std::filesystem::path& directory, const Env& env);

  // Takes over a library with one kernel. `function` is that kernel in the current context; null:
  // it is asked for. `origin` is for error texts.
  explicit Kernel(CUlibrary library, CUfunction function = nullptr, std::string_view origin = {});
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  // One argument per parameter, of the parameter's exact size; a NoRefPtr stands for storage whose
  // size is the caller's business.
  template <class... Args>
  void launch(const LaunchOptions& options, const Args&... args) const;

  // The same with the addresses of `count` argument values.
  void launch_raw(const LaunchOptions& options, void* const* args, std::size_t count) const;

  // As a C++ programmer writes it, without the parameters: "lib::scale<float>".
  const std::string& name() const { return name_; }
  // As the binary has it.
  const std::string& symbol() const { return symbol_; }
  std::span<const KernelParameter> params() const { return params_; }
  KernelAttributes attributes() const;

  // Gives the code back; harmless when done twice, when the process ends, and when the context is
  // gone.
  void unload() noexcept;

 private:
  // The kernel in one context. Never removed while the kernel lives: launches read the list without
  // a lock.
  struct Binding {
    unsigned long long context_id;  // Never used again by the driver, unlike a context's address.
    CUdevice device;
    CUfunction function;
    std::mutex mutex;             // For changes of the limits.
    std::atomic<int> smem_limit;  // Dynamic shared memory that a launch may have so far.
    std::atomic<bool> is_nonportable{false};
    Binding* next;
  };

  void inspect(std::string_view origin);
  void check_loaded() const;
  void check_arguments(std::span<void* const> args, std::span<const std::size_t> sizes) const;
  void run(const LaunchOptions& options, void* const* args) const;
  void run_without_context(CUresult reason, const LaunchOptions& options, void* const* args) const;
  void run_in(unsigned long long context_id, const LaunchOptions& options, void* const* args) const;
  Binding& bind(unsigned long long context_id, const LaunchOptions& options) const;
  Binding& add_binding(unsigned long long context_id, CUfunction function) const;
  void raise_smem_limit(Binding& binding, int bytes) const;
  void allow_nonportable(Binding& binding) const;
  [[noreturn]] void fail(std::string_view problem) const;
  [[noreturn]] void fail(const LaunchOptions& options, CUresult result) const;

  const driver::Api* api_;
  CUkernel kernel_ = nullptr;  // Null after unload().
  CUdevice device_ = 0;        // That it was loaded for.
  pid_t process_;
  std::string symbol_;
  std::string name_;
  std::vector<KernelParameter> params_;
  mutable std::mutex mutex_;  // For additions to the list.
  mutable std::atomic<Binding*> bindings_{nullptr};
};

// --- Inline implementations ---

inline std::shared_ptr<Kernel> Kernel::load(const std::filesystem::path& directory, const Env&) {
  const auto path = directory / kCubinFileName;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) == 0 || error) {
    DJ_THROW(exception::CacheError, "missing CUDA CUBIN: {} is not there, or empty", path.string());
  }
  const driver::Api& api = driver::api();
  // An entry's folder is named after the tag that the kernel was compiled with.
  const std::string tag = directory.filename().string();
  refuse_during_capture("load", tag.substr(0, tag.rfind('.')));
  const auto load_here = [&] {
    CUlibrary library = nullptr;
    const CUresult result =
        api.cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) detail::fail_load(result, path.string());
    return std::make_shared<Kernel>(library, nullptr, path.string());
  };
  if (try_current_device(api)) return load_here();
  CUdevice device = 0;
  DJ_CUDA_DRIVER_CHECK(api.cuDeviceGet(&device, 0));
  const ContextScope lent(api, primary_context(api, device));
  return load_here();
}

inline Kernel::Kernel(CUlibrary library, CUfunction function, std::string_view origin)
    : library_handle(library), kernel_handle(function), api_(&driver::api()), process_(::getpid()) {
  try {
    inspect(origin);
  } catch (...) {
    unload();
    throw;
  }
}

inline Kernel::~Kernel() {
  unload();
  for (Binding* binding = bindings_.load(); binding != nullptr;) {
    delete std::exchange(binding, binding->next);
  }
}

inline void Kernel::inspect(std::string_view origin) {
  unsigned int count = 0;
  DJ_CUDA_DRIVER_CHECK(api_->cuLibraryGetKernelCount(&count, library_handle));
  std::vector<CUkernel> kernels(count);
  if (count != 0) {
    DJ_CUDA_DRIVER_CHECK(api_->cuLibraryEnumerateKernels(kernels.data(), count, library_handle));
  }
  std::string names;
  std::size_t found = 0;
  for (CUkernel candidate : kernels) {
    const char* symbol = nullptr;
    DJ_CUDA_DRIVER_CHECK(api_->cuKernelGetName(&symbol, candidate));
    if (detail::is_helper_kernel(symbol)) continue;
    names += (found++ == 0 ? "" : ", ") + detail::demangle(symbol);
    kernel_ = candidate;
    symbol_ = symbol;
  }
  if (found != 1) {
    DJ_PANIC(
        "expected exactly one kernel in {}, found {}{}: the source must define, or instantiate, "
        "one __global__ function",
        origin.empty() ? "the library" : origin, found, found == 0 ? "" : " (" + names + ")");
  }
  name_ = detail::name_of_symbol(symbol_);
  for (std::size_t i = 0;; ++i) {
    KernelParameter parameter{};
    const CUresult result =
        api_->cuKernelGetParamInfo(kernel_, i, &parameter.offset, &parameter.size);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // There are no more.
    driver::check_cuda_driver(result, "cuKernelGetParamInfo");
    params_.push_back(parameter);
  }
  unsigned long long context_id = 0;
  DJ_CUDA_DRIVER_CHECK(api_->cuCtxGetId(nullptr, &context_id));
  DJ_CUDA_DRIVER_CHECK(api_->cuCtxGetDevice(&device_));
  kernel_handle = add_binding(context_id, kernel_handle).function;
}

inline KernelAttributes Kernel::attributes() const {
  check_loaded();
  const auto get = [this](CUfunction_attribute attribute) {
    int value = 0;
    DJ_CUDA_DRIVER_CHECK(api_->cuKernelGetAttribute(&value, attribute, kernel_, device_));
    return value;
  };
  return {.num_registers = get(CU_FUNC_ATTRIBUTE_NUM_REGS),
          .num_static_smem_bytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
          .num_local_bytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
          .num_const_bytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
          .max_threads_per_block = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
}

inline void Kernel::unload() noexcept {
  // The driver of a forked child knows nothing of the parent's libraries. Errors are expected when
  // the driver has shut down before us.
  if (library_handle != nullptr && ::getpid() == process_) api_->cuLibraryUnload(library_handle);
  library_handle = nullptr;
  kernel_handle = nullptr;
  kernel_ = nullptr;
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
  // One more, so that neither array is empty. 0: not known.
  void* const addresses[] = {address(args)..., nullptr};
  static constexpr std::size_t kSizes[] = {
      (std::is_base_of_v<NoRefPtr, Args> ? std::size_t{0} : sizeof(Args))..., 0};
  check_arguments(std::span(addresses, sizeof...(Args)), std::span(kSizes, sizeof...(Args)));
  run(options, addresses);
}

inline void Kernel::launch_raw(const LaunchOptions& options, void* const* args,
                               std::size_t count) const {
  check_loaded();
  check_arguments(std::span(args, count), {});
  run(options, args);
}

inline void Kernel::check_loaded() const {
  if (kernel_ == nullptr) [[unlikely]] {
    DJ_THROW(exception::LaunchError,
             "kernel must be loaded before launch: unload() was called on this one; compile again");
  }
}

// `sizes` is empty, or has 0 where a size is not known.
inline void Kernel::check_arguments(std::span<void* const> args,
                                    std::span<const std::size_t> sizes) const {
  if (args.size() != params_.size()) [[unlikely]] {
    fail(std::format("it has {} parameters, but {} arguments were given", params_.size(),
                     args.size()));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 0 && sizes[i] != params_[i].size) [[unlikely]] {
      fail(
          std::format("parameter {} has {} bytes, but the argument has {}: convert it to the "
                      "parameter's type",
                      i, params_[i].size, sizes[i]));
    }
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == nullptr) [[unlikely]] {
      fail(std::format("the storage of argument {} is at a null address", i));
    }
  }
}

inline void Kernel::run(const LaunchOptions& options, void* const* args) const {
  options.validate(name_);
  unsigned long long context_id = 0;
  const CUresult result = api_->cuCtxGetId(nullptr, &context_id);
  if (result == CUDA_SUCCESS) [[likely]] {
    run_in(context_id, options, args);
  } else {
    run_without_context(result, options, args);
  }
}

inline void Kernel::run_without_context(CUresult reason, const LaunchOptions& options,
                                        void* const* args) const {
  if (reason == CUDA_ERROR_NOT_INITIALIZED || reason == CUDA_ERROR_DEINITIALIZED) {
    fail(driver::describe(reason) + std::string(detail::advise(reason)));
  }
  CUcontext context = nullptr;
  // The special streams belong to whatever context is current.
  const CUstream stream = options.stream.value_or(nullptr);
  if (stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
    const CUresult result = api_->cuStreamGetCtx(stream, &context);
    if (result != CUDA_SUCCESS) fail("its stream is not valid: " + driver::describe(result));
  } else {
    context = primary_context(*api_, device_);
  }
  const ContextScope lent(*api_, context);
  unsigned long long context_id = 0;
  DJ_CUDA_DRIVER_CHECK(api_->cuCtxGetId(nullptr, &context_id));
  run_in(context_id, options, args);
}

inline void Kernel::run_in(unsigned long long context_id, const LaunchOptions& options,
                           void* const* args) const {
  Binding* binding = bindings_.load(std::memory_order_acquire);
  while (binding != nullptr && binding->context_id != context_id) binding = binding->next;
  if (binding == nullptr) [[unlikely]]
    binding = &bind(context_id, options);

  const int smem = *options.num_smem_bytes;
  if (smem > binding->smem_limit.load(std::memory_order_relaxed)) [[unlikely]] {
    raise_smem_limit(*binding, smem);
  }
  CUlaunchAttribute attributes[3];
  unsigned int count = 0;
  if (*options.cooperative) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[count++].value.cooperative = 1;
  }
  const dim3& cluster = *options.cluster_dim;
  if (cluster.x != 1 || cluster.y != 1 || cluster.z != 1) {
    if (*options.nonportable_cluster_size_allowed &&
        !binding->is_nonportable.load(std::memory_order_relaxed)) [[unlikely]] {
      allow_nonportable(*binding);
    }
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim.x = cluster.x;
    attributes[count].value.clusterDim.y = cluster.y;
    attributes[count++].value.clusterDim.z = cluster.z;
  }
  if (*options.enable_pdl) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config{};
  config.gridDimX = options.grid_dim->x;
  config.gridDimY = options.grid_dim->y;
  config.gridDimZ = options.grid_dim->z;
  config.blockDimX = options.block_dim->x;
  config.blockDimY = options.block_dim->y;
  config.blockDimZ = options.block_dim->z;
  config.sharedMemBytes = static_cast<unsigned int>(smem);
  config.hStream =
      options.stream ? *options.stream : try_torch_stream(binding->device).value_or(nullptr);
  config.attrs = attributes;
  config.numAttrs = count;
  // The driver reads the arguments only.
  const CUresult result =
      api_->cuLaunchKernelEx(&config, binding->function, const_cast<void**>(args), nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail(options, result);
}

// The first launch in a context.
inline auto Kernel::bind(unsigned long long context_id, const LaunchOptions& options) const
    -> Binding& {
  const std::lock_guard lock(mutex_);
  for (Binding* known = bindings_.load(); known != nullptr; known = known->next) {
    if (known->context_id == context_id) return *known;
  }
  refuse_during_capture("load", name_);
  if (options.stream && is_capturing(*api_, *options.stream)) {
    fail(
        "it is not loaded in this context yet, and its stream records a CUDA graph: launch it "
        "there once before the capture begins");
  }
  return add_binding(context_id, nullptr);
}

inline auto Kernel::add_binding(unsigned long long context_id, CUfunction function) const
    -> Binding& {
  if (function == nullptr) {
    const CUresult result = api_->cuKernelGetFunction(&function, kernel_);
    if (result != CUDA_SUCCESS) detail::fail_load(result, std::format("kernel `{}`", name_));
  }
  // Under lazy loading the code would come with the first launch, which may be in a capture, or
  // wait for a running kernel.
  if (const CUresult result = api_->cuFuncLoad(function); result != CUDA_SUCCESS) {
    detail::fail_load(result, std::format("kernel `{}`", name_));
  }
  CUdevice device = 0;
  DJ_CUDA_DRIVER_CHECK(api_->cuCtxGetDevice(&device));
  int smem_limit = 0;
  DJ_CUDA_DRIVER_CHECK(api_->cuFuncGetAttribute(
      &smem_limit, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  auto* const binding = new Binding{.context_id = context_id,
                                    .device = device,
                                    .function = function,
                                    .mutex = {},
                                    .smem_limit = smem_limit,
                                    .next = bindings_.load()};
  bindings_.store(binding, std::memory_order_release);
  return *binding;
}

// Never lowers it: another thread may rely on it. What a launch takes is what it asks for, whatever
// the limit.
inline void Kernel::raise_smem_limit(Binding& binding, int bytes) const {
  const std::lock_guard lock(binding.mutex);
  if (bytes <= binding.smem_limit.load()) return;
  const CUresult result = api_->cuFuncSetAttribute(
      binding.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  if (result != CUDA_SUCCESS) {
    int most = 0;
    int fixed = 0;
    api_->cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               binding.device);
    api_->cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, binding.function);
    fail(
        std::format("{} bytes of dynamic shared memory per block cannot be had: the device has {} "
                    "per block, and the kernel itself takes {}: {}",
                    bytes, most, fixed, driver::describe(result)));
  }
  binding.smem_limit.store(bytes);
}

inline void Kernel::allow_nonportable(Binding& binding) const {
  const std::lock_guard lock(binding.mutex);
  if (binding.is_nonportable.load()) return;
  const CUresult result = api_->cuFuncSetAttribute(
      binding.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  if (result != CUDA_SUCCESS) {
    fail("non-portable cluster sizes cannot be allowed: " + driver::describe(result));
  }
  binding.is_nonportable.store(true);
}

inline void Kernel::fail(std::string_view problem) const {
  DJ_THROW(exception::LaunchError, "cannot launch kernel `{}`: {}", name_, problem);
}

inline void Kernel::fail(const LaunchOptions& options, CUresult result) const {
  const auto text = [](const dim3& dim) {
    return std::format("({}, {}, {})", dim.x, dim.y, dim.z);
  };
  int most = 0;
  api_->cuKernelGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel_, device_);
  fail(
      std::format("{} (grid {}, block {}, cluster {}, {} bytes of dynamic shared memory{}; the "
                  "kernel can have {} threads per block){}",
                  driver::describe(result), text(*options.grid_dim), text(*options.block_dim),
                  text(*options.cluster_dim), *options.num_smem_bytes,
                  *options.cooperative ? ", cooperative" : "", most, detail::advise(result)));
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
