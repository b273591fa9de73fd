// SPDX-License-Identifier: MIT
//
// deep_jit::Host: the backend that runs CUDA-style C++ kernels on the CPU. The one header to
// include.
//
// What: compiles with the C++ compiler of the machine, loads with dlopen, launches over a thread
// pool. Everything that Runtime does for a GPU it does here too, for real.
// When not: it takes what CUDA and C++ have in common, __shared__ memory and barriers included, not
// a GPU's own instructions (prelude.hpp).
//
// Example:
//     auto jit = deep_jit::create_lazy_jit<deep_jit::Host>(deep_jit::Config("/opt/mylib",
//     "MYLIB")); auto kernel = jit->compile("scale", R"(
//         __global__ void scale(float* out, const float* x, int n) {
//           int i = blockIdx.x * blockDim.x + threadIdx.x;
//           if (i < n) out[i] = 2 * x[i];
//         })");
//     jit->launch(kernel, {.grid_dim = deep_jit::host::Dim3{4},
//                          .block_dim = deep_jit::host::Dim3{256}}, out, x, n);
//
// Errors: see compiler.hpp, kernel.hpp and toolchain.hpp.
// Thread-safety: const members may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/backend/host/compiler.hpp"
#include "deep_jit/backend/host/device.hpp"
#include "deep_jit/backend/host/kernel.hpp"
#include "deep_jit/backend/host/options.hpp"
#include "deep_jit/backend/host/toolchain.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/runtime.hpp"

namespace deep_jit {

class Host {
 public:
  using Device = host::Device;
  using Kernel = host::Kernel;
  using CompilerOptions = host::CompilerOptions;
  using LaunchOptions = host::LaunchOptions;
  using CompilerInfo = host::Toolchain;

  static constexpr std::string_view kName = "host";

  // Finds the compiler and asks for its version.
  Host(const Env& env, const Config& config) : compiler_(host::find_toolchain(env, config)) {}

  CompilerInfo get_compiler_info() const { return compiler_.toolchain(); }

  void add_to_key(Key& key) const { compiler_.add_to_key(key); }

  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const {
    return compiler_.compile(source, directory, env, config, options);
  }

  static std::shared_ptr<Kernel> load(const std::filesystem::path& directory, const Env& env) {
    return Kernel::load(directory, env);
  }

 private:
  host::Compiler compiler_;
};

static_assert(Backend<Host>);

}  // namespace deep_jit
