// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/kernel.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/backend/host/compiler.hpp"
#include "tests/runtime/backend/host/host_test.hpp"

namespace deep_jit::host {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class KernelTest : public testing::HostTest {
 protected:
  std::filesystem::path compile(const std::string& source,
                                const std::vector<std::string>& flags = {}) {
    return compile_kernel(source, {.extra_cxx_flags = flags});
  }
  std::shared_ptr<Kernel> make(const std::string& source,
                               const std::vector<std::string>& flags = {}) {
    return make_kernel(source, {.extra_cxx_flags = flags});
  }
};

// --- Running ---

TEST_F(KernelTest, RunsAGridStrideKernel) {
  auto kernel = make(R"(
      #include <cmath>
      #include <cstdint>
      template <typename T>
      __global__ void __launch_bounds__(256) saxpy(T* __restrict__ y, const T* __restrict__ x,
                                                          T a, int64_t n) {
        for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
          y[i] = std::fma(a, x[i], y[i]);
      }
      template __global__ void saxpy<float>(float*, const float*, float, int64_t);)");
  EXPECT_EQ(kernel->name(), "saxpy<float>");
  std::vector<float> x(10007);
  std::vector<float> y(x.size(), 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  kernel->launch(dims(Dim3{7}, Dim3{64}), y.data(), static_cast<const float*>(x.data()), 2.0f,
                 static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 2.0f * static_cast<float>(i) + 1) << i;
}

TEST_F(KernelTest, GivesEachThreadOfA3dGridItsIndices) {
  auto kernel = make(R"(
      __global__ void f(unsigned* out) {
        unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
        out[i] += 1 + i + 1000000 * gridDim.z + 10000000 * blockDim.y;
      })");
  for (const int threads : {1, 3}) {
    std::vector<unsigned> out(2 * 3 * 4 * 5 * 6 * 7, 0);
    kernel->launch(dims(Dim3{2, 3, 4}, Dim3{5, 6, 7}, threads), out.data());
    for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 1 + i + 4000000 + 60000000) << i;
  }
}

TEST_F(KernelTest, PassesArgumentsOfEveryKind) {
  struct Pair {
    double a;
    std::int8_t b;
  };
  auto kernel = make(R"(
      #include <cstdint>
      struct Pair { double a; int8_t b; };
      enum class E : uint16_t { k = 9 };
      __global__ void f(double* out, bool b, int8_t i8, uint16_t u16, int i, uint64_t u64,
                        float f32, double f64, E e, Pair p, const void* null, Pair q) {
        *out = 0.0 + b + i8 + u16 + i + u64 + f32 + f64 + unsigned(e) + p.a + p.b +
               (null == nullptr) + q.a * q.b;
      })");
  double out = 0;
  Pair blob{3, 5};
  struct Derived : NoRefPtr {};
  kernel->launch(dims(Dim3{1}, Dim3{1}), &out, true, std::int8_t{-2}, std::uint16_t{300}, -7,
                 std::uint64_t{1} << 33, 0.5f, 0.25, std::uint16_t{9}, Pair{10, 20}, nullptr,
                 Derived{{&blob}});
  EXPECT_EQ(out, 1 - 2 + 300 - 7 + 8589934592.0 + 0.5 + 0.25 + 9 + 30 + 1 + 15);
}

TEST_F(KernelTest, EachThreadGetsItsOwnCopyOfAStruct) {
  struct Counter {
    int value;
  };
  auto kernel = make(
      "struct C { int v; };\n__global__ void f(int* out, C c) {"
      " c.v += 1; out[threadIdx.x] = c.v; }");
  std::vector<int> out(8);
  kernel->launch(dims(Dim3{1}, Dim3{8}), out.data(), Counter{5});
  EXPECT_THAT(out, Each(6));
}

TEST_F(KernelTest, StaticVariablesOfTwoKernelsAreApart) {
  const std::string source =
      "template <int> struct S { static inline int value = N; };\n"
      "inline int& counter() { static int c = N; return c; }\n"
      "__global__ void f(int* out) { *out = S<0>::value + ++counter(); }";
  auto one = make(source, {"-DN=10"});
  auto two = make(source, {"-DN=20"});
  int out = 0;
  one->launch(dims(Dim3{1}, Dim3{1}), &out);
  EXPECT_EQ(out, 21);
  two->launch(dims(Dim3{1}, Dim3{1}), &out);
  EXPECT_EQ(out, 41);
}

TEST_F(KernelTest, LaunchesFromManyThreadsAtOnce) {
  auto kernel =
      make("__global__ void f(unsigned* out, unsigned k) { out[blockIdx.x] = blockIdx.x + k; }");
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned k = 0; k < 8; ++k) {
      threads.emplace_back([&, k] {
        for (int round = 0; round < 20; ++round) {
          std::vector<unsigned> out(100);
          kernel->launch(dims(Dim3{100}, Dim3{1}), out.data(), k);
          for (unsigned i = 0; i < 100; ++i) wrong += out[i] != i + k;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(KernelTest, ANestedLaunchKeepsTheOuterIndices) {
  // The kernel calls back into the program, which launches the same kernel again.
  auto kernel = make(R"(
      __global__ void f(void (*call)(void*), void* data, unsigned* out) {
        const unsigned before = blockIdx.x * blockDim.x + threadIdx.x;
        if (call) call(data);
        out[before] = blockIdx.x * blockDim.x + threadIdx.x + gridDim.x;
      })");
  struct Data {
    Kernel* kernel;
  } data{kernel.get()};
  void (*call)(void*) = [](void* raw) {
    unsigned inner[6] = {};
    static_cast<Data*>(raw)->kernel->launch(dims(Dim3{2}, Dim3{3}), nullptr, nullptr, &inner[0]);
  };
  std::vector<unsigned> out(20);
  kernel->launch(dims(Dim3{4}, Dim3{5}), call, static_cast<void*>(&data), out.data());
  for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i + 4);
}

TEST_F(KernelTest, MacrosOfAKernelDoNotReachThePrelude) {
  std::vector<std::string> flags;
  for (char c = 'A'; c <= 'Z'; ++c) flags.push_back(std::string("-D") + c + "=4");
  for (const char* name : {"BLOCK", "GRID", "SIZE", "TYPE", "VALUE", "KERNEL", "THREADS"}) {
    flags.push_back(std::string("-D") + name + "=4");
  }
  int out = 0;
  make("__global__ void f(int* out) { *out = max(N, T) + BLOCK; }", flags)
      ->launch(dims(Dim3{1}, Dim3{1}), &out);
  EXPECT_EQ(out, 8);
}

// --- Errors ---

TEST_F(KernelTest, AThrowingKernelIsALaunchError) {
  auto kernel = make(R"(
      #include <stdexcept>
      #include <string>
      __global__ void f(unsigned bad, int kind) {
        if (blockIdx.x != bad) return;
        if (kind == 0) throw std::runtime_error("bad block " + std::to_string(bad));
        if (kind == 1) throw std::runtime_error(std::string(5000, 'x'));
        if (kind == 2) throw 42;
      })");
  for (const int threads : {1, 4}) {
    DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(dims(Dim3{9}, Dim3{2}, threads), 5u, 0),
                    AllOf(HasSubstr("kernel `f` threw in block (5, 0, 0): bad block 5")));
    DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(dims(Dim3{9}, Dim3{2}, threads), 5u, 1),
                    HasSubstr(std::string(1023, 'x')));
    DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(dims(Dim3{9}, Dim3{2}, threads), 5u, 2),
                    HasSubstr("no std::exception"));
    EXPECT_NO_THROW(kernel->launch(dims(Dim3{9}, Dim3{2}, threads), 5u, 3));
  }
}

TEST_F(KernelTest, ChecksArgumentCountSizesAndStorage) {
  auto kernel = make("__global__ void scale(float* out, int n) { (void)out; (void)n; }");
  const auto options = dims(Dim3{1}, Dim3{1});
  float out = 0;
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options, &out),
                  HasSubstr("`scale`: it has 2 parameters, but 1 arguments were given"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options, &out, 1, 2),
                  HasSubstr("3 arguments"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options, &out, std::int64_t{1}),
                  HasSubstr("`scale`: parameter 1 has 4 bytes, but the argument has 8"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options, 1.0f, 1),
                  HasSubstr("parameter 0 has 8 bytes"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(options, &out, NoRefPtr{}),
                  HasSubstr("argument 1"));
  float* pointer = &out;
  alignas(8) char storage[16] = {};
  void* misaligned[] = {&pointer, storage + 1};
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch_raw(options, misaligned, 2),
                  HasSubstr("multiple of 4"));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch_raw(options, misaligned, 1),
                  HasSubstr("1 arguments"));
  void* good[] = {&pointer, storage};
  EXPECT_NO_THROW(kernel->launch_raw(options, good, 2));
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch({}, &out, 1),
                  HasSubstr("grid dimension must be specified"));
  DJ_EXPECT_ERROR(exception::LaunchError,
                  kernel->launch(dims(Dim3{~0u, ~0u, ~0u}, Dim3{1}), &out, 1),
                  HasSubstr("too large"));
}

TEST_F(KernelTest, DescribesItsParameters) {
  auto kernel = make(R"(
      #include <cstdint>
      struct S { double a; char b; }; struct Opaque;
      enum E : int8_t { kE };
      __global__ void f(const float* a, uint8_t* b, Opaque* c, void* d, bool e, int64_t f,
                        unsigned g, double h, S i,
                        E j, bool* k, const S* l, char** m) {})");
  struct Expected {
    std::uint32_t kind, alignment;
    std::uint64_t size;
    std::uint32_t element_kind, element_is_const;
    std::uint64_t element_size;
  };
  const std::vector<Expected> expected = {{abi::kPointer, 8, 8, abi::kFloat, 1, 4},
                                          {abi::kPointer, 8, 8, abi::kUnsigned, 0, 1},
                                          {abi::kPointer, 8, 8, abi::kUnknown, 0, 0},
                                          {abi::kPointer, 8, 8, abi::kUnknown, 0, 0},
                                          {abi::kBool, 1, 1, 0, 0, 0},
                                          {abi::kSigned, 8, 8, 0, 0, 0},
                                          {abi::kUnsigned, 4, 4, 0, 0, 0},
                                          {abi::kFloat, 8, 8, 0, 0, 0},
                                          {abi::kStruct, 8, 16, 0, 0, 0},
                                          {abi::kSigned, 1, 1, 0, 0, 0},
                                          {abi::kPointer, 8, 8, abi::kBool, 0, 1},
                                          {abi::kPointer, 8, 8, abi::kStruct, 1, 16},
                                          {abi::kPointer, 8, 8, abi::kPointer, 0, 8}};
  const auto params = kernel->params();
  ASSERT_EQ(params.size(), expected.size());
  for (std::size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(params[i].kind, expected[i].kind) << i;
    EXPECT_EQ(params[i].alignment, expected[i].alignment) << i;
    EXPECT_EQ(params[i].size, expected[i].size) << i;
    EXPECT_EQ(params[i].element_kind, expected[i].element_kind) << i;
    EXPECT_EQ(params[i].element_is_const, expected[i].element_is_const) << i;
    EXPECT_EQ(params[i].element_size, expected[i].element_size) << i;
  }
}

TEST_F(KernelTest, RefusesAnyNumberOfKernelsButOne) {
  const auto none = compile("void f() {}");
  DJ_EXPECT_ERROR(exception::Exception, Kernel::load(none, env()),
                  AllOf(HasSubstr("expected exactly one kernel"), HasSubstr("found 0")));
  const auto two =
      compile("namespace a { __global__ void first() {} }\n__global__ void second(int) {}");
  DJ_EXPECT_ERROR(
      exception::Exception, Kernel::load(two, env()),
      AllOf(HasSubstr("expected exactly one kernel"), HasSubstr("found 2 (first, second)")));
}

TEST_F(KernelTest, WhatIsNoModuleIsACacheError) {
  const auto missing = scratch() / "missing";
  DJ_EXPECT_ERROR(exception::CacheError, Kernel::load(missing, env()), HasSubstr(missing.string()));
  write("text/kernel.so", "not a library");
  DJ_EXPECT_ERROR(exception::CacheError, Kernel::load(scratch() / "text", env()),
                  HasSubstr("kernel.so"));
  const auto future = compile("__global__ void f() {}");
  std::string prelude = get_prelude();
  const std::string version = "kVersion = 2";
  prelude.replace(prelude.find(version), version.size(), "kVersion = 9");
  write_file_sync(future / "kernel_prelude.hpp", prelude);
  Command command{
      .arguments = Compiler(find_toolchain(env(), config()))
                       .get_command(config(), CompilerOptions::default_options(env(), Device())),
      .working_directory = future};
  run_checked_command(command);
  DJ_EXPECT_ERROR(exception::CacheError, Kernel::load(future, env()),
                  HasSubstr("interface version 9"));
}

TEST_F(KernelTest, UnloadsTwiceAndThenRefusesToLaunch) {
  auto kernel = make("__global__ void f() {}");
  kernel->launch(dims(Dim3{1}, Dim3{1}));
  kernel->unload();
  kernel->unload();
  EXPECT_EQ(kernel->name(), "");
  EXPECT_TRUE(kernel->params().empty());
  DJ_EXPECT_ERROR(exception::LaunchError, kernel->launch(dims(Dim3{1}, Dim3{1})),
                  HasSubstr("kernel must be loaded before launch"));
}

}  // namespace
}  // namespace deep_jit::host
