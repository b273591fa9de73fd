// SPDX-License-Identifier: MIT
//
// host::CompilerOptions, host::LaunchOptions and Dim3.
//
// What: what a caller may set per kernel and per launch. Everything is optional: what is unset
// comes from the defaults, which are read from the environment once, when the runtime is made. When
// not: which compiler is used is no option of a kernel; see toolchain.hpp.
//
// Example:
//     jit->compile("scale", source, {.optimize_level = "2", .extra_cxx_flags = {"-DN=4"}});
//     jit->launch(kernel, {.grid_dim = Dim3{8}, .block_dim = Dim3{16, 16}}, x, n);
//
// Errors: exception::Exception when the optimization level is unset or the sanitizer unknown;
// exception::LaunchError for dimensions that are unset or not positive, and for a shared-memory
// size out of range. Thread-safety: plain values.
#pragma once

#include <format>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/host/device.hpp"
#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/runtime/options_fields.hpp"

namespace deep_jit::host {

// --- Compiler options ---

struct CompilerOptions {
  std::optional<std::string> optimize_level = {};  // "0" to "3", "s", "fast": the text after -O.
  std::optional<bool> debug_info = {};
  std::optional<std::string> sanitize = {};  // "address", "thread" or "undefined"; "" is none.
  std::optional<bool> dump_asm = {};  // Keeps kernel.s too. Not part of the key: see compiler.hpp.
  std::optional<std::vector<std::string>> cxx_flags = {};  // Set replaces the default flags.
  std::vector<std::string> extra_cxx_flags = {};  // Appended: defaults first, then per kernel.
  std::optional<std::string> post_hook = {};      // See runtime/post_hook.hpp; "" is none.

  // -O3, C++20 or JIT_CPP_STANDARD; debug information and assembly under JIT_DEBUG, assembly under
  // JIT_DUMP_ASM. Symbols are hidden, so that two kernels never share a static variable through the
  // dynamic linker.
  static CompilerOptions default_options(const Env& env, const Device&) {
    const int standard = env.get<int>("JIT_CPP_STANDARD", 20);
    const bool debug = env.get<bool>("JIT_DEBUG", false);
    const bool dump_asm = env.get<bool>("JIT_DUMP_ASM", false);
    return {.optimize_level = "3",
            .debug_info = debug,
            .sanitize = std::nullopt,
            .dump_asm = debug || dump_asm,
            .cxx_flags = std::vector<std::string>{std::format("-std=c++{}", standard), "-fPIC",
                                                  "-fvisibility=hidden"},
            .extra_cxx_flags = {},
            .post_hook = std::nullopt};
  }

  CompilerOptions override_with(const CompilerOptions& overrides) const {
    return override_fields(*this, overrides);
  }

  // In the order of the command line.
  std::vector<std::string> get_flags() const;

  nlohmann::ordered_json to_json() const { return fields_to_json(*this); }

  template <class Self, class F>
  static void visit_fields(Self& self, F&& f) {
    f("optimize_level", self.optimize_level);
    f("debug_info", self.debug_info);
    f("sanitize", self.sanitize);
    f("dump_asm", self.dump_asm);
    f("cxx_flags", self.cxx_flags);
    f("extra_cxx_flags", self.extra_cxx_flags);
    f("post_hook", self.post_hook);
  }
};

// --- Launch options ---

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  bool operator==(const Dim3&) const = default;
};

struct LaunchOptions {
  std::optional<int> num_smem_bytes = {};  // Dynamic shared memory of each block; unset is 0.
  std::optional<Dim3> grid_dim = {};
  std::optional<Dim3> block_dim = {};
  std::optional<int> num_threads =
      {};  // Threads that run blocks at once, the calling one included.

  // JIT_NUM_THREADS, or as many threads as the machine runs at once.
  static LaunchOptions default_options(const Env& env) {
    return {.num_smem_bytes = 0,
            .grid_dim = std::nullopt,
            .block_dim = std::nullopt,
            .num_threads = env.get<int>("JIT_NUM_THREADS", Device().get_num_threads())};
  }

  LaunchOptions override_with(const LaunchOptions& overrides) const {
    return override_fields(*this, overrides);
  }

  // Throws LaunchError, naming the kernel, unless a launch can be made with these options.
  void validate(std::string_view kernel_name) const;

  template <class Self, class F>
  static void visit_fields(Self& self, F&& f) {
    f("num_smem_bytes", self.num_smem_bytes);
    f("grid_dim", self.grid_dim);
    f("block_dim", self.block_dim);
    f("num_threads", self.num_threads);
  }
};

// --- Inline implementations ---

inline std::vector<std::string> CompilerOptions::get_flags() const {
  if (!optimize_level) {
    DJ_PANIC("optimization level must be specified: set optimize_level, for example to \"3\"");
  }
  std::vector<std::string> flags = {"-O" + *optimize_level};
  if (debug_info.value_or(false)) flags.emplace_back("-g");
  if (const std::string sanitizer = sanitize.value_or(""); !sanitizer.empty()) {
    if (sanitizer != "address" && sanitizer != "thread" && sanitizer != "undefined") {
      DJ_PANIC("sanitize must be \"address\", \"thread\" or \"undefined\", but is \"{}\"",
               sanitizer);
    }
    flags.insert(flags.end(), {"-fsanitize=" + sanitizer, "-fno-omit-frame-pointer"});
  }
  if (cxx_flags) flags.insert(flags.end(), cxx_flags->begin(), cxx_flags->end());
  flags.insert(flags.end(), extra_cxx_flags.begin(), extra_cxx_flags.end());
  return flags;
}

inline void LaunchOptions::validate(std::string_view kernel_name) const {
  const auto fail = [kernel_name](const std::string& text) {
    DJ_THROW(exception::LaunchError, "cannot launch kernel `{}`: {}", kernel_name, text);
  };
  const auto check = [&fail](const std::optional<Dim3>& dim, const char* what) {
    if (!dim) fail(std::format("{0} dimension must be specified: set {0}_dim", what));
    if (dim->x == 0 || dim->y == 0 || dim->z == 0) {
      fail(std::format("{} dimensions must be positive, but are ({}, {}, {})", what, dim->x, dim->y,
                       dim->z));
    }
  };
  check(grid_dim, "grid");
  check(block_dim, "block");
  const int smem = num_smem_bytes.value_or(0);
  if (smem < 0) fail(std::format("shared-memory size must not be negative, but is {}", smem));
  if (smem > Device::kMaxSmemBytes) {
    fail(std::format("shared-memory size must be at most {} bytes, but is {}",
                     Device::kMaxSmemBytes, smem));
  }
  if (num_threads && *num_threads <= 0) {
    fail(std::format("num_threads must be positive, but is {}", *num_threads));
  }
}

}  // namespace deep_jit::host
