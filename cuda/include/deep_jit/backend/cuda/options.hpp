// SPDX-License-Identifier: MIT
//
// cuda::CompilerOptions and cuda::LaunchOptions.
//
// What: what a caller may set per kernel and per launch. Everything is optional: what is unset
// comes from the defaults, which are read from the environment once, when the runtime is made. The
// order of the members is part of the interface, for designated initialisers.
// When not: which nvcc or NVRTC is used is no option of a kernel; see toolkit.hpp and
// nvrtc_location.hpp.
//
// Example:
//     jit->compile("gemm", source, {.check_no_spills = true, .extra_nvcc_flags = {"-DN=4"}});
//     jit->launch(kernel, {.num_smem_bytes = 4096, .grid_dim = dim3(8), .block_dim = dim3(128)},
//                 x, n);
//
// Errors: exception::Exception when architecture, optimization level or register usage level are
// unset, and for a compiler that there is not; exception::LaunchError, naming the kernel, for
// launch options that are unset or out of range. Thread-safety: plain values.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/cuda_types.hpp"
#include "deep_jit/backend/cuda/device.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/runtime/options_fields.hpp"

namespace deep_jit::cuda {
inline namespace DJ_CUDA_TYPES {

// --- Compiler options ---

struct CompilerOptions {
  std::optional<std::string> optimize_level = {};  // The text after -O.
  std::optional<bool> fast_math = {};
  std::optional<bool> ptxas_verbose = {};  // Logs what nvcc and ptxas say.
  std::optional<int> ptxas_register_usage_level = {};
  std::optional<bool> check_no_spills = {};        // Spilled registers are an error.
  std::optional<bool> check_no_local_memory = {};  // Any use of local memory is an error.
  std::optional<bool> with_line_info = {};
  std::optional<bool> dump_ptx = {};     // Keeps kernel.ptx too. Not part of the key.
  std::optional<bool> dump_sass = {};    // Keeps kernel.sass too. Not part of the key.
  std::optional<std::string> arch = {};  // As in sm_<arch>: "90a", "100f".
  std::optional<std::vector<std::string>> nvcc_flags = {};  // Set replaces the default flags.
  std::vector<std::string> extra_nvcc_flags = {};  // Appended: defaults first, then per kernel.
  std::optional<std::string> post_hook = {};       // See runtime/post_hook.hpp; "" is none.
  // "nvcc" (the same as unset), "nvrtc" or "auto": see compilers.hpp.
  std::optional<std::string> compiler = {};

  // -O3, register usage level 10, the device's architecture, C++20 or JIT_CPP_STANDARD. JIT_DEBUG
  // turns on ptxas_verbose, with_line_info and both dumps, whatever their own variables say. On a
  // machine without a GPU the architecture stays unset, and has to be given. The compiler stays
  // unset without JIT_CUDA_COMPILER.
  static CompilerOptions default_options(const Env& env, Device& device);

  CompilerOptions override_with(const CompilerOptions& overrides) const {
    return override_fields(*this, overrides);
  }

  // In the order of the command line.
  std::vector<std::string> get_flags() const;

  // `compiler` only when it is set.
  nlohmann::ordered_json to_json() const;

  template <class Self, class F>
  static void visit_fields(Self& self, F&& f) {
    f("optimize_level", self.optimize_level);
    f("use_fast_math", self.fast_math);
    f("ptxas_verbose", self.ptxas_verbose);
    f("ptxas_register_usage_level", self.ptxas_register_usage_level);
    f("check_no_spills", self.check_no_spills);
    f("check_no_local_memory", self.check_no_local_memory);
    f("with_line_info", self.with_line_info);
    f("dump_ptx", self.dump_ptx);
    f("dump_sass", self.dump_sass);
    f("arch", self.arch);
    f("nvcc_flags", self.nvcc_flags);
    f("extra_nvcc_flags", self.extra_nvcc_flags);
    f("post_hook", self.post_hook);
    f("compiler", self.compiler);
  }
};

enum class CompilerChoice { kNvcc, kNvrtc, kAuto };

// Of the option `compiler`.
CompilerChoice parse_compiler_choice(const std::optional<std::string>& compiler);

// --- Launch options ---

struct LaunchOptions {
  // Unset: torch's current stream at the launch, or the default stream without torch. A null
  // stream that is set stays the default stream.
  std::optional<CUstream> stream = {};
  std::optional<int> num_smem_bytes = {};  // Dynamic shared memory of each block.
  std::optional<dim3> grid_dim = {};
  std::optional<dim3> block_dim = {};
  std::optional<dim3> cluster_dim = {};  // Blocks per cluster; (1, 1, 1) is no cluster launch.
  std::optional<bool> cooperative = {};
  std::optional<bool> enable_pdl = {};                        // Programmatic dependent launch.
  std::optional<bool> nonportable_cluster_size_allowed = {};  // More than 8 blocks per cluster.

  static LaunchOptions default_options(const Env&) {
    LaunchOptions options;
    options.num_smem_bytes = 0;
    options.cluster_dim = dim3(1, 1, 1);
    options.cooperative = false;
    options.enable_pdl = false;
    options.nonportable_cluster_size_allowed = false;
    return options;
  }

  LaunchOptions override_with(const LaunchOptions& overrides) const;

  // Throws LaunchError, naming the kernel, unless a launch can be made with these options.
  void validate(std::string_view kernel_name) const;

  template <class Self, class F>
  static void visit_fields(Self& self, F&& f) {
    f("stream", self.stream);
    f("num_smem_bytes", self.num_smem_bytes);
    f("grid_dim", self.grid_dim);
    f("block_dim", self.block_dim);
    f("cluster_dim", self.cluster_dim);
    f("cooperative", self.cooperative);
    f("enable_pdl", self.enable_pdl);
    f("nonportable_cluster_size_allowed", self.nonportable_cluster_size_allowed);
  }
};

// Blocks per cluster that every GPU with clusters can run.
inline constexpr std::uint64_t kPortableClusterSize = 8;

// --- Inline implementations ---

inline CompilerChoice parse_compiler_choice(const std::optional<std::string>& compiler) {
  if (!compiler || *compiler == "nvcc") return CompilerChoice::kNvcc;
  if (*compiler == "nvrtc") return CompilerChoice::kNvrtc;
  if (*compiler == "auto") return CompilerChoice::kAuto;
  DJ_PANIC("invalid value for the option compiler: {} (expected nvcc, nvrtc or auto)", *compiler);
}

inline nlohmann::ordered_json CompilerOptions::to_json() const {
  auto json = fields_to_json(*this);
  if (!compiler) json.erase("compiler");
  return json;
}

inline CompilerOptions CompilerOptions::default_options(const Env& env, Device& device) {
  const bool debug = env.get<bool>("JIT_DEBUG", false);
  const bool dump_asm = debug || env.get<bool>("JIT_DUMP_ASM", false);
  // Each is read, so that a malformed one is an error also under JIT_DEBUG.
  const auto get = [&env](std::string_view suffix, bool implied) {
    return env.get<bool>(suffix, false) || implied;
  };
  CompilerOptions options;
  options.optimize_level = "3";
  options.fast_math = false;
  options.ptxas_verbose = get("JIT_PTXAS_VERBOSE", debug);
  options.ptxas_register_usage_level = 10;
  options.check_no_spills = get("JIT_CHECK_NO_SPILLS", false);
  options.check_no_local_memory = get("JIT_CHECK_NO_LOCAL_MEMORY", false);
  options.with_line_info = get("JIT_WITH_LINEINFO", debug);
  options.dump_ptx = get("JIT_DUMP_PTX", dump_asm);
  options.dump_sass = get("JIT_DUMP_SASS", dump_asm);
  options.compiler = env.get<std::string>("JIT_CUDA_COMPILER");
  if (options.compiler && options.compiler->empty()) options.compiler.reset();
  parse_compiler_choice(options.compiler);
  try {
    options.arch = device.get_arch();
  } catch (const exception::Exception&) {
    // No driver, or no device. Kernels for a given architecture can be compiled all the same.
  }
  options.nvcc_flags = std::vector<std::string>{
      std::format("-std=c++{}", env.get<int>("JIT_CPP_STANDARD", 20)), "--compiler-options=-fPIC",
      "--compiler-options=-fconcepts", "--expt-relaxed-constexpr", "--expt-extended-lambda"};
  return options;
}

inline std::vector<std::string> CompilerOptions::get_flags() const {
  if (!arch || arch->empty()) {
    DJ_PANIC(
        "CUDA architecture must be specified: set arch, for example to \"90a\"; its default is "
        "the GPU's, but there is no NVIDIA driver, or it has no device");
  }
  if (!optimize_level) {
    DJ_PANIC("optimization level must be specified: set optimize_level, for example to \"3\"");
  }
  if (!ptxas_register_usage_level) {
    DJ_PANIC("register usage level must be specified: set ptxas_register_usage_level, 0 to 10");
  }
  std::vector<std::string> flags = {"--gpu-architecture=sm_" + *arch, "-O" + *optimize_level,
                                    "--compiler-options=-O" + *optimize_level};
  const auto add = [&flags](const std::optional<bool>& option, const char* flag) {
    if (option.value_or(false)) flags.emplace_back(flag);
  };
  add(fast_math, "--use_fast_math");
  add(ptxas_verbose, "--ptxas-options=--verbose");
  flags.push_back(
      std::format("--ptxas-options=--register-usage-level={}", *ptxas_register_usage_level));
  add(check_no_spills, "--ptxas-options=--warn-on-spills");
  add(check_no_local_memory, "--ptxas-options=--warn-on-local-memory-usage");
  add(with_line_info, "--generate-line-info");
  if (nvcc_flags) flags.insert(flags.end(), nvcc_flags->begin(), nvcc_flags->end());
  flags.insert(flags.end(), extra_nvcc_flags.begin(), extra_nvcc_flags.end());
  return flags;
}

// By hand and not by override_fields: this is on the way of each launch.
inline LaunchOptions LaunchOptions::override_with(const LaunchOptions& overrides) const {
  const auto choose = [](const auto& other, const auto& own) -> const auto& {
    return other.has_value() ? other : own;
  };
  return {.stream = choose(overrides.stream, stream),
          .num_smem_bytes = choose(overrides.num_smem_bytes, num_smem_bytes),
          .grid_dim = choose(overrides.grid_dim, grid_dim),
          .block_dim = choose(overrides.block_dim, block_dim),
          .cluster_dim = choose(overrides.cluster_dim, cluster_dim),
          .cooperative = choose(overrides.cooperative, cooperative),
          .enable_pdl = choose(overrides.enable_pdl, enable_pdl),
          .nonportable_cluster_size_allowed =
              choose(overrides.nonportable_cluster_size_allowed, nonportable_cluster_size_allowed)};
}

inline void LaunchOptions::validate(std::string_view kernel_name) const {
  const auto fail = [kernel_name](const std::string& text) {
    DJ_THROW(exception::LaunchError, "cannot launch kernel `{}`: {}", kernel_name, text);
  };
  const auto is_positive = [](const dim3& dim) { return dim.x != 0 && dim.y != 0 && dim.z != 0; };
  const auto text = [](const dim3& dim) {
    return std::format("({}, {}, {})", dim.x, dim.y, dim.z);
  };
  if (!num_smem_bytes) fail("shared-memory size must be specified: set num_smem_bytes");
  if (!grid_dim) fail("CUDA grid dimension must be specified: set grid_dim");
  if (!block_dim) fail("CUDA block dimension must be specified: set block_dim");
  if (!cluster_dim) fail("cluster dimension must be specified: set cluster_dim");
  if (!cooperative) fail("cooperative option must be specified: set cooperative");
  if (!enable_pdl) fail("PDL option must be specified: set enable_pdl");
  if (!nonportable_cluster_size_allowed) {
    fail("non-portable cluster option must be specified: set nonportable_cluster_size_allowed");
  }
  if (*num_smem_bytes < 0) {
    fail(std::format("shared-memory size must not be negative, but is {}", *num_smem_bytes));
  }
  if (!is_positive(*grid_dim)) {
    fail("grid dimensions must be positive, but are " + text(*grid_dim));
  }
  if (!is_positive(*block_dim)) {
    fail("block dimensions must be positive, but are " + text(*block_dim));
  }
  const dim3& cluster = *cluster_dim;
  if (!is_positive(cluster)) fail("cluster dimension must be positive, but is " + text(cluster));
  if (cluster.x == 1 && cluster.y == 1 && cluster.z == 1) return;
  if (grid_dim->x % cluster.x != 0 || grid_dim->y % cluster.y != 0 ||
      grid_dim->z % cluster.z != 0) {
    fail(std::format("the grid {} must be made of whole clusters of {} blocks", text(*grid_dim),
                     text(cluster)));
  }
  // Said here and not left to the driver, whose permission, once given, stays with the kernel.
  const std::uint64_t slice = std::uint64_t{cluster.x} * cluster.y;
  if (!*nonportable_cluster_size_allowed &&
      (slice > kPortableClusterSize || slice * cluster.z > kPortableClusterSize)) {
    fail(
        std::format("a cluster of {} blocks is larger than {}, which is portable: set "
                    "nonportable_cluster_size_allowed if this GPU can run it",
                    text(cluster), kPortableClusterSize));
  }
}

}  // namespace DJ_CUDA_TYPES
}  // namespace deep_jit::cuda
