// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/kernel.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeLaunch;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::to_stream;

class KernelTest : public testing::CudaTest {
 protected:
  KernelTest() { write("scale.0123/kernel.cubin", "a cubin"); }

  std::shared_ptr<Kernel> load() const { return Kernel::load(scratch() / "scale.0123", env()); }
  static LaunchOptions options(const LaunchOptions& overrides = {}) {
    LaunchOptions options = LaunchOptions::default_options(Env("TESTLIB"));
    options.grid_dim = dim3(8, 4, 2);
    options.block_dim = dim3(32, 2);
    return options.override_with(overrides);
  }
  // Launches with arguments that fit, and returns what the driver got.
  static FakeLaunch launch(const Kernel& kernel, const LaunchOptions& overrides = {}) {
    float* const out = nullptr;
    kernel.launch(options(overrides), out, out, 3);
    return driver().launches.back();
  }
  template <class T>
  static std::string bytes(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
};

// --- Load ---

TEST_F(KernelTest, LoadsTheFileAndTheCode) {
  const auto kernel = load();
  EXPECT_THAT(driver().loaded_files, ElementsAre((scratch() / "scale.0123/kernel.cubin").string()));
  EXPECT_EQ(kernel->name(), "scale");
  EXPECT_EQ(kernel->symbol(), "_Z5scalePfPKfi");
  EXPECT_NE(kernel->kernel_handle, nullptr);
  EXPECT_EQ(driver().count("cuFuncLoad"), 1u) << "not left to the first launch";
  ASSERT_THAT(kernel->params(), SizeIs(3));
  EXPECT_EQ(kernel->params()[2].size, 4u);
  EXPECT_EQ(kernel->params()[2].offset, 16u);
}

TEST_F(KernelTest, Attributes) {
  driver().function_attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 40;
  driver().function_attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
  driver().function_attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = 16;
  driver().function_attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = 1024;
  const auto attributes = load()->attributes();
  EXPECT_EQ(attributes.num_registers, 40);
  EXPECT_EQ(attributes.max_threads_per_block, 512);
  EXPECT_EQ(attributes.num_local_bytes, 16);
  EXPECT_EQ(attributes.num_static_smem_bytes, 1024);
}

TEST_F(KernelTest, Names) {
  struct Case {
    const char* symbol;
    const char* name;
  };
  for (const auto& [symbol, name] :
       {Case{"plain_c", "plain_c"}, Case{"_Z1kIfLi4EEvPT_", "k<float, 4>"},
        Case{"_ZN3lib1kEPFviE", "lib::k"}, Case{"_Z1kv", "k"}}) {
    driver().kernels = {{symbol, {}}};
    EXPECT_EQ(load()->name(), name);
  }
}

TEST_F(KernelTest, MissingOrBrokenFileIsACacheError) {
  write("scale.0123/kernel.cubin", "");
  DJ_EXPECT_ERROR(exception::CacheError, load(), HasSubstr("missing CUDA CUBIN"));
  std::filesystem::remove(scratch() / "scale.0123/kernel.cubin");
  DJ_EXPECT_ERROR(exception::CacheError, load(), HasSubstr("missing CUDA CUBIN"));
  write("scale.0123/kernel.cubin", "a cubin");
  driver().failures["cuLibraryLoadFromFile"] = CUDA_ERROR_INVALID_IMAGE;
  DJ_EXPECT_ERROR(exception::CacheError, load(), HasSubstr("kernel.cubin"));
  driver().failures["cuLibraryLoadFromFile"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  try {
    load();
    ADD_FAILURE();
  } catch (const exception::CacheError&) {
    ADD_FAILURE() << "compiling again would give the same";
  } catch (const exception::Exception& error) {
    EXPECT_THAT(error.message, HasSubstr("arch"));
  }
}

TEST_F(KernelTest, ExactlyOneKernel) {
  driver().kernels = {};
  DJ_EXPECT_ERROR(exception::Exception, load(),
                  AllOf(HasSubstr("expected exactly one kernel"), HasSubstr("found 0")));
  driver().kernels = {{"_Z1ai", {4}}, {"plain", {}}};
  DJ_EXPECT_ERROR(exception::Exception, load(),
                  AllOf(HasSubstr("expected exactly one kernel"), HasSubstr("(a(int), plain)")));
  EXPECT_THAT(driver().libraries, SizeIs(0)) << "what was refused is unloaded";
  driver().kernels = {{"__assertfail", {}},
                      {"_Z5scalePfPKfi", {8, 8, 4}},
                      {"vprintf", {}},
                      {"_ZN3cub17CUB_200700_900_NS11EmptyKernelIvEEvv", {}}};
  EXPECT_EQ(load()->name(), "scale");
}

TEST_F(KernelTest, IsRefusedDuringACapture) {
  driver().is_blocking_capture = true;
  DJ_EXPECT_ERROR(exception::LaunchError, load(), HasSubstr("cannot load kernel `scale`"));
  EXPECT_EQ(driver().count("cuLibraryLoadFromFile"), 0u) << "the capture stays valid";
  driver().is_blocking_capture = false;
  EXPECT_NO_THROW(launch(*load()));
}

TEST_F(KernelTest, TakesOverALibrary) {
  const auto known = load();
  Kernel kernel(std::exchange(known->library_handle, nullptr), known->kernel_handle);
  EXPECT_EQ(launch(kernel).function, kernel.kernel_handle);
}

TEST_F(KernelTest, UnloadIsQuietAndFinal) {
  const auto kernel = load();
  EXPECT_THAT(driver().libraries, SizeIs(1));
  kernel->unload();
  EXPECT_THAT(driver().libraries, SizeIs(0));
  kernel->unload();
  EXPECT_EQ(driver().count("cuLibraryUnload"), 1u);
  DJ_EXPECT_ERROR(exception::LaunchError, launch(*kernel),
                  HasSubstr("kernel must be loaded before launch"));
  driver().failures["cuLibraryUnload"] = CUDA_ERROR_DEINITIALIZED;
  load().reset();
}

TEST_F(KernelTest, AForkedChildOnlyForgets) {
  auto kernel = load();
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_clear = true;
    for (const char* function : {"cuCtxGetId", "cuLaunchKernelEx"}) {
      driver().failures = {{function, CUDA_ERROR_NOT_INITIALIZED}};
      try {
        launch(*kernel);
        is_clear = false;
      } catch (const exception::LaunchError& error) {
        is_clear = is_clear && error.message.find("forked") != std::string::npos;
      }
    }
    const auto calls = driver().count("cuLibraryUnload");
    kernel.reset();
    ::_exit(is_clear && driver().count("cuLibraryUnload") == calls ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// --- Arguments ---

struct Big {
  std::array<char, 1024> bytes;
};

struct Storage : NoRefPtr {
  int unused = 0;
};

TEST_F(KernelTest, ArgumentsArriveByteForByte) {
  driver().kernels = {{"k", {1, 1, 2, 4, 8, 4, 8, 8, 1024, 8, 64, 16}}};
  Big big{};
  big.bytes[1023] = 7;
  CUtensorMap map{};
  map.opaque[15] = 9;
  driver().kernels[0].parameter_sizes.push_back(sizeof(map));
  const std::string elsewhere(64, 'x');
  const std::string derived(16, 'y');
  Storage storage;
  storage.ptr = const_cast<char*>(derived.data());
  float* const pointer = reinterpret_cast<float*>(0x1234);
  const auto kernel = load();
  kernel->launch(options(), true, 'c', short{-2}, 1.5f, 2.5, 3u, 4ll, pointer, big, nullptr,
                 NoRefPtr{const_cast<char*>(elsewhere.data())}, storage, map);
  EXPECT_THAT(driver().launches.back().arguments,
              ElementsAre(bytes(true), bytes('c'), bytes(short{-2}), bytes(1.5f), bytes(2.5),
                          bytes(3u), bytes(4ll), bytes(pointer), bytes(big), std::string(8, '\0'),
                          elsewhere, derived, bytes(map)));
}

TEST_F(KernelTest, NoArguments) {
  driver().kernels = {{"k", {}}};
  EXPECT_NO_THROW(load()->launch(options()));
  EXPECT_THAT(driver().launches, SizeIs(1));
}

TEST_F(KernelTest, CountAndSizesAreChecked) {
  const auto kernel = load();
  float* const x = nullptr;
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options(), x, x),
                  AllOf(HasSubstr("kernel `scale`"), HasSubstr("3 parameters, but 2 arguments")));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options(), x, x, 1, 2),
                  HasSubstr("3 parameters, but 4 arguments"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options(), x, x, 1ll),
                  HasSubstr("parameter 2 has 4 bytes, but the argument has 8"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options(), x, x, NoRefPtr{}),
                  HasSubstr("argument 2 is at a null address"));
  void* const none[] = {nullptr};
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch_raw(options(), none, 1),
                  HasSubstr("3 parameters, but 1 arguments"));
  EXPECT_THAT(driver().launches, SizeIs(0));
}

// --- Options ---

TEST_F(KernelTest, DimensionsAndNoAttributes) {
  const FakeLaunch seen = launch(*load());
  EXPECT_EQ(seen.config.gridDimX, 8u);
  EXPECT_EQ(seen.config.gridDimY, 4u);
  EXPECT_EQ(seen.config.gridDimZ, 2u);
  EXPECT_EQ(seen.config.blockDimX, 32u);
  EXPECT_EQ(seen.config.blockDimY, 2u);
  EXPECT_EQ(seen.config.blockDimZ, 1u);
  EXPECT_EQ(seen.config.sharedMemBytes, 0u);
  EXPECT_EQ(seen.config.hStream, nullptr);
  EXPECT_THAT(seen.attributes, SizeIs(0));
}

TEST_F(KernelTest, EachAttribute) {
  const auto kernel = load();
  const FakeLaunch cooperative = launch(*kernel, {.cooperative = true});
  ASSERT_THAT(cooperative.attributes, SizeIs(1));
  EXPECT_EQ(cooperative.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE)->value.cooperative, 1);

  const FakeLaunch cluster = launch(*kernel, {.cluster_dim = dim3(4, 2, 1)});
  ASSERT_THAT(cluster.attributes, SizeIs(1));
  const auto& dim = cluster.find(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)->value.clusterDim;
  EXPECT_THAT((std::array{dim.x, dim.y, dim.z}), ElementsAre(4u, 2u, 1u));

  const FakeLaunch dependent = launch(*kernel, {.enable_pdl = true});
  ASSERT_THAT(dependent.attributes, SizeIs(1));
  EXPECT_EQ(dependent.find(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
                ->value.programmaticStreamSerializationAllowed,
            1);

  const FakeLaunch all = launch(*kernel, {.cluster_dim = dim3(2, 2, 2),
                                          .cooperative = true,
                                          .enable_pdl = true,
                                          .nonportable_cluster_size_allowed = true});
  EXPECT_THAT(all.attributes, SizeIs(3));
}

TEST_F(KernelTest, SharedMemoryLimitOnlyGrows) {
  const auto kernel = load();
  const auto limit = [&] {
    return driver()
        .set_attributes[{kernel->kernel_handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES}];
  };
  EXPECT_EQ(launch(*kernel, {.num_smem_bytes = 48 << 10}).config.sharedMemBytes, 48u << 10);
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 0u) << "that much may be had without asking";
  launch(*kernel, {.num_smem_bytes = 100 << 10});
  EXPECT_EQ(limit(), 100 << 10);
  EXPECT_EQ(launch(*kernel, {.num_smem_bytes = 64 << 10}).config.sharedMemBytes, 64u << 10);
  launch(*kernel, {.num_smem_bytes = 100 << 10});
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 1u);
  EXPECT_EQ(limit(), 100 << 10);

  set_device_attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10);
  driver().failures["cuFuncSetAttribute"] = CUDA_ERROR_INVALID_VALUE;
  DJ_EXPECT_ERROR(exception::LaunchError, launch(*kernel, {.num_smem_bytes = 228 << 10}),
                  AllOf(HasSubstr("kernel `scale`"), HasSubstr("233472 bytes"), HasSubstr("232448"),
                        HasSubstr("CUDA_ERROR_INVALID_VALUE")));
  EXPECT_NO_THROW(launch(*kernel, {.num_smem_bytes = 100 << 10}));
}

// Which context, and go: nothing is asked or set again.
TEST_F(KernelTest, AWarmLaunchIsOneLaunchCall) {
  const auto kernel = load();
  const LaunchOptions overrides{.num_smem_bytes = 100 << 10,
                                .cluster_dim = dim3(2, 1, 1),
                                .cooperative = true,
                                .enable_pdl = true,
                                .nonportable_cluster_size_allowed = true};
  launch(*kernel, overrides);
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 2u);
  for (const LaunchOptions& given : {overrides, LaunchOptions{}}) {
    driver().calls.clear();
    launch(*kernel, given);
    EXPECT_THAT(driver().calls, ElementsAre("cuCtxGetId", "cuLaunchKernelEx"));
  }
}

TEST_F(KernelTest, NonPortableClustersAreAllowedOnce) {
  const auto kernel = load();
  const LaunchOptions large{.cluster_dim = dim3(8, 2), .nonportable_cluster_size_allowed = true};
  launch(*kernel, {.nonportable_cluster_size_allowed = true});
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 0u) << "no cluster";
  launch(*kernel, large);
  launch(*kernel, large);
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 1u);
  EXPECT_EQ((driver().set_attributes[{kernel->kernel_handle,
                                      CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED}]),
            1);
  // The driver's permission stays; ours does not.
  DJ_EXPECT_ERROR(exception::LaunchError, launch(*kernel, {.cluster_dim = dim3(8, 2)}),
                  HasSubstr("nonportable_cluster_size_allowed"));
}

TEST_F(KernelTest, WhatTheDriverRefuses) {
  driver().function_attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
  const auto kernel = load();
  driver().failures["cuLaunchKernelEx"] = CUDA_ERROR_INVALID_VALUE;
  DJ_EXPECT_ERROR(
      exception::LaunchError,
      launch(*kernel, {.num_smem_bytes = 16, .block_dim = dim3(1025), .cooperative = true}),
      AllOf(HasSubstr("kernel `scale`"), HasSubstr("CUDA_ERROR_INVALID_VALUE (1)"),
            HasSubstr("block (1025, 1, 1)"), HasSubstr("16 bytes"), HasSubstr("cooperative"),
            HasSubstr("512 threads")));
}

// --- Streams and contexts ---

TEST_F(KernelTest, ExplicitStreams) {
  const auto kernel = load();
  EXPECT_EQ(launch(*kernel, {.stream = to_stream(0x77)}).config.hStream, to_stream(0x77));
  EXPECT_EQ(launch(*kernel, {.stream = nullptr}).config.hStream, nullptr);
  LaunchOptions defaults = options();
  defaults.stream = to_stream(0x88);
  kernel->launch(defaults, static_cast<float*>(nullptr), static_cast<float*>(nullptr), 1);
  EXPECT_EQ(driver().launches.back().config.hStream, to_stream(0x88));
}

TEST_F(KernelTest, EachContextHasItsOwnFunction) {
  const auto kernel = load();
  const CUfunction first = launch(*kernel).function;
  EXPECT_EQ(first, kernel->kernel_handle);
  set_device(1);
  const CUfunction second = launch(*kernel, {.num_smem_bytes = 64 << 10}).function;
  EXPECT_NE(second, first);
  set_device(0);
  const auto calls = driver().count("cuKernelGetFunction");
  EXPECT_EQ(launch(*kernel).function, first);
  EXPECT_EQ(driver().count("cuKernelGetFunction"), calls);
  launch(*kernel, {.num_smem_bytes = 64 << 10});
  EXPECT_EQ(driver().count("cuFuncSetAttribute"), 2u) << "a limit per context";
}

TEST_F(KernelTest, AResetContextAtTheSameAddressIsANewOne) {
  const auto kernel = load();
  const CUfunction first = launch(*kernel).function;
  driver().reset_context(0);
  EXPECT_NE(launch(*kernel).function, first);
}

TEST_F(KernelTest, FirstLaunchInAContextIsRefusedDuringACapture) {
  const auto kernel = load();
  set_device(1);
  driver().captures[to_stream(0x77)] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const auto calls = driver().count("cuKernelGetFunction");
  DJ_EXPECT_ERROR(exception::LaunchError, launch(*kernel, {.stream = to_stream(0x77)}),
                  AllOf(HasSubstr("kernel `scale`"), HasSubstr("CUDA graph")));
  EXPECT_EQ(driver().count("cuKernelGetFunction"), calls);
  driver().captures.clear();
  launch(*kernel, {.stream = to_stream(0x77)});
  driver().captures[to_stream(0x77)] = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_NO_THROW(launch(*kernel, {.stream = to_stream(0x77)})) << "it is loaded";
}

TEST_F(KernelTest, AThreadWithoutAContext) {
  set_device(1);
  const auto kernel = load();
  set_device(0);
  driver().stream_contexts[to_stream(0x77)] = reinterpret_cast<CUcontext>(0x10000);  // Device 0's.
  std::thread([&] {
    EXPECT_EQ(launch(*kernel).context, reinterpret_cast<CUcontext>(0x10001))
        << "that of the device it was loaded for";
    EXPECT_EQ(launch(*kernel, {.stream = to_stream(0x77)}).context,
              reinterpret_cast<CUcontext>(0x10000))
        << "the stream's";
    EXPECT_EQ(launch(*kernel, {.stream = CU_STREAM_PER_THREAD}).context,
              reinterpret_cast<CUcontext>(0x10001));
    DJ_EXPECT_ERROR(exception::LaunchError, launch(*kernel, {.stream = to_stream(0x99)}),
                    HasSubstr("its stream is not valid"));
    EXPECT_FALSE(try_current_device(driver::api()).has_value()) << "nothing is left behind";
  }).join();
}

TEST_F(KernelTest, LoadsInAThreadWithoutAContext) {
  set_device(-1);
  const auto kernel = load();
  EXPECT_FALSE(try_current_device(driver::api()).has_value());
  EXPECT_EQ(launch(*kernel).context, reinterpret_cast<CUcontext>(0x10000));
}

TEST_F(KernelTest, ThreadsLaunchAtTheSameTime) {
  const auto kernel = load();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      set_device(i % 2);
      float* const x = nullptr;
      for (int round = 0; round < 100; ++round) {
        kernel->launch(options({.num_smem_bytes = (49 + round) << 10}), x, x, i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(driver().launches, SizeIs(800));
  EXPECT_EQ(driver().count("cuKernelGetFunction"), 2u);
  for (const auto& [attribute, value] : driver().set_attributes) EXPECT_EQ(value, 148 << 10);
}

}  // namespace
}  // namespace deep_jit::cuda
