// SPDX-License-Identifier: MIT
//
// CudaTest: a fixture with the stand-ins for driver and NVRTC, and fake toolkits.
//
// What: loads the stand-ins for libcuda.so.1 and libnvrtc (environment variables FAKE_CUDA and
// FAKE_NVRTC, set by the BUILD file; without FAKE_CUDA there is no driver), and writes shell
// scripts that act as nvcc and cuobjdump. When not: tests that need neither use ScratchTest.
//
// Errors: a failed step fails the test. Thread-safety: for the test's own thread.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "deep_jit/base/dynamic_library.hpp"
#include "deep_jit/runtime/config.hpp"
#include "tests/cuda/fake_driver.hpp"
#include "tests/cuda/fake_nvrtc.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit::testing {

inline CUstream to_stream(std::uintptr_t number) {
  return reinterpret_cast<CUstream>(number);
}

class CudaTest : public ScratchTest {
 protected:
  CudaTest() {
    for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CUDAHOSTCXX", "NVCC_CCBIN",
                             "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"}) {
      unset_env(name);
    }
    for (const char* suffix : {"CUDA_COMPILER", "NVRTC_LIBRARY", "NVCC_COMPILER", "ALLOW_OLD_NVCC",
                               "PTXAS_VERBOSE", "CHECK_NO_SPILLS", "CHECK_NO_LOCAL_MEMORY",
                               "WITH_LINEINFO", "DUMP_ASM", "DUMP_PTX", "DUMP_SASS"}) {
      unset_env(std::string("DJ_JIT_") + suffix);
      unset_env(std::string("TESTLIB_JIT_") + suffix);
    }
    if (has_driver()) {
      driver().reset();
      set_device(0);
      for (int device : {0, 1}) {
        set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9);
        set_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
      }
      driver().function_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
    }
  }

  // --- The driver ---

  static bool has_driver() { return try_get_env<std::string>("FAKE_CUDA").has_value(); }
  static const DynamicLibrary& driver_library() {
    static const DynamicLibrary* const library = new DynamicLibrary(
        DynamicLibrary::open(std::filesystem::absolute(get_env<std::string>("FAKE_CUDA"))));
    return *library;
  }
  static FakeDriver& driver() { return *driver_library().symbol<FakeGetDriver>("fake_driver")(); }
  static void set_device(int device) {
    driver_library().symbol<FakeSetDevice>("fake_set_device")(device);
  }
  static void set_device_attribute(int device, CUdevice_attribute attribute, int value) {
    driver().device_attributes[{device, attribute}] = value;
  }

  // --- NVRTC ---

  static std::filesystem::path nvrtc_file() {
    return std::filesystem::absolute(get_env<std::string>("FAKE_NVRTC"));
  }
  static FakeNvrtc& nvrtc() {
    static const DynamicLibrary* const library =
        new DynamicLibrary(DynamicLibrary::open(nvrtc_file()));
    return *library->symbol<FakeGetNvrtc>("fake_nvrtc")();
  }
  void use_nvrtc() {
    nvrtc().reset();
    set_env("TESTLIB_JIT_NVRTC_LIBRARY", nvrtc_file().string());
  }

  // --- Toolkits ---

  Config config(const std::string& python = "/no/such/python") const {
    return Config(scratch(), "TESTLIB", "", {scratch() / "include"}, {"lib/"}, python);
  }
  Env env() const { return Env("TESTLIB"); }

  static std::string version_text(const std::string& version) {
    return "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release " + version +
           "\n";
  }

  // A script that answers --version, and runs `body` for all else. There $out is the file named by
  // --output-file.
  std::filesystem::path add_nvcc(const std::filesystem::path& relative,
                                 const std::string& body = kWriteOutput,
                                 const std::string& version = "13.0, V13.0.88") const {
    return write_script(relative, "case \"$*\" in *--version*) cat <<'EOF'\n" +
                                      version_text(version) +
                                      "EOF\nexit 0;; esac\n"
                                      "out=; last=\n"
                                      "for word in \"$@\"; do\n"
                                      "  [ \"$last\" = --output-file ] && out=$word\n"
                                      "  last=$word\n"
                                      "done\n" +
                                      body + "\n");
  }
  static constexpr char kWriteOutput[] = "echo \"made of $*\" > \"$out\"";

  // What the toolkit at `root` would be: nvcc that appends each command line to `log_file()`.
  void use_toolkit(const std::string& body = kWriteOutput) {
    add_nvcc("toolkit/bin/nvcc", "echo \"$*\" >> '" + log_file().string() + "'\n" + body);
    set_env("CUDA_HOME", (scratch() / "toolkit").string());
  }
  std::filesystem::path log_file() const { return scratch() / "nvcc.log"; }
  std::size_t compilations() const { return count_lines(log_file()); }
};

}  // namespace deep_jit::testing
