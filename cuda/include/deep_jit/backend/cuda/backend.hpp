// SPDX-License-Identifier: MIT
//
// deep_jit::CUDA: the backend that runs kernels on NVIDIA GPUs. The one header to include.
//
// What: compiles with nvcc or NVRTC (compilers.hpp), loads and launches through the driver, which
// is opened when it is first needed. <cuda.h> is all that is needed to compile, and nothing of CUDA
// is linked. When not: on a machine without a GPU kernels can be compiled, when their architecture
// is given, but not loaded.
//
// Example:
//     auto jit = deep_jit::create_lazy_jit<deep_jit::CUDA>(deep_jit::Config("/opt/mylib",
//     "MYLIB")); auto kernel = jit->compile("scale", R"(
//         __global__ void scale(float* out, const float* x, int n) {
//           int i = blockIdx.x * blockDim.x + threadIdx.x;
//           if (i < n) out[i] = 2 * x[i];
//         })");
//     jit->launch(kernel, {.grid_dim = dim3(4), .block_dim = dim3(256)}, out, x, n);
//
// Errors: see compilers.hpp, kernel.hpp and toolkit.hpp.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/backend/cuda/compilers.hpp"
#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/device.hpp"
#include "deep_jit/backend/cuda/driver.hpp"
#include "deep_jit/backend/cuda/kernel.hpp"
#include "deep_jit/backend/cuda/options.hpp"
#include "deep_jit/backend/cuda/toolkit.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/runtime.hpp"

namespace deep_jit {
inline namespace DJ_CUDA_TYPES {

class CUDA {
 public:
  using Device = cuda::Device;
  using Kernel = cuda::Kernel;
  using CompilerOptions = cuda::CompilerOptions;
  using LaunchOptions = cuda::LaunchOptions;
  using CompilerInfo = cuda::CompilerInfo;
  using Toolkit = cuda::Toolkit;

  static constexpr std::string_view kName = "cuda";

  // Finds the toolkit and asks for its version.
  CUDA(const Env& env, const Config& config) : compilers_(env, config) {}

  // Throws when there is no nvcc.
  const Toolkit& toolkit() const { return compilers_.nvcc().toolkit(); }

  // nvcc's.
  CompilerInfo get_compiler_info() const { return compilers_.info(); }

  // --- The compiler depends on the options: see ChoosesCompiler in backend_concept.hpp ---

  void add_compiler_to_key(Key& key, const CompilerOptions& options) const {
    compilers_.add_to_key(key, options);
  }
  void add_to_key(Key& key, const CompilerOptions& options) const {
    compilers_.add_environment_to_key(key, options);
  }

  CompileRecord compile(const std::string& source, const std::filesystem::path& directory,
                        const Env& env, const Config& config,
                        const CompilerOptions& options) const {
    return compilers_.compile(source, directory, env, config, options);
  }

  // --- Dumps may be added later: see AddsDumps in backend_concept.hpp ---

  std::vector<std::string> missing_dumps(const std::filesystem::path& entry,
                                         const CompilerOptions& options) const {
    return compilers_.missing_dumps(entry, options);
  }
  void add_dumps(const std::string& source, const std::filesystem::path& entry,
                 const std::filesystem::path& directory, const Env& env, const Config& config,
                 const CompilerOptions& options) const {
    compilers_.add_dumps({source, directory, env, config, options}, entry);
  }

  static std::shared_ptr<Kernel> load(const std::filesystem::path& directory, const Env& env) {
    return Kernel::load(directory, env);
  }

 private:
  cuda::Compilers compilers_;
};

static_assert(Backend<CUDA>);

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit
