// SPDX-License-Identifier: MIT
//
// The CUDA backend on a real GPU, in one program that needs nvcc, libcuda.so.1 and nothing else.
//
// What: compiles and launches kernels and looks at what they did; a line `PASS name`, `FAIL name:
// why` or `SKIP name: why` per check, `INFO` lines with measured times, and as the last one
// `N passed, M failed, K skipped`. Exit code 0 when nothing failed.
// `--without NAME`, as often as wanted: leaves that check out, as one must under a sanitizer.
// `--compile-only ARCH`: without a GPU; compiles every kernel for sm_ARCH.
// When not: what can be seen without a GPU is tested by the other files of tests/cuda.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <format>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "deep_jit/backend/cuda/backend.hpp"
#include "deep_jit/base/unique_name.hpp"

namespace {

using deep_jit::Config;
using deep_jit::CUDA;
using deep_jit::NoRefPtr;
using deep_jit::Runtime;
using deep_jit::cuda::Dim3;
using deep_jit::cuda::Kernel;
using deep_jit::cuda::driver::get_cuda_handle;
using LaunchOptions = deep_jit::cuda::LaunchOptions;

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAlloc)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemFree)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemcpyDtoH)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemcpyHtoD)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemsetD8)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSynchronize)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSetCurrent)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxDestroy)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamCreate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamDestroy)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamSynchronize)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamBeginCapture)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuStreamEndCapture)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphGetNodes)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphInstantiate)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuGraphLaunch)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuDevicePrimaryCtxReset)

// --- Kernels ---

constexpr char kScale[] = R"(
__global__ void scale(float* out, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factor * x[i];
})";

constexpr char kReverse[] = R"(
extern __shared__ int tile[];
__global__ void reverse(int* out, int ints) {
  for (int i = threadIdx.x; i < ints; i += blockDim.x) tile[i] = i;
  __syncthreads();
  for (int i = threadIdx.x; i < ints; i += blockDim.x) out[i] = tile[ints - 1 - i];
})";

constexpr char kCluster[] = R"(
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// Each block reads the number that the next block of its cluster holds.
__global__ void exchange(int* out) {
  __shared__ int own;
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks();
  if (threadIdx.x == 0) own = rank + 1;
  cluster.sync();
  if (threadIdx.x == 0) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[2 * block] = *cluster.map_shared_rank(&own, (rank + 1) % blocks);
    out[2 * block + 1] = blocks;
  }
  cluster.sync();
})";

constexpr char kCooperative[] = R"(
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void sum(int* partial, int* result) {
  cg::grid_group grid = cg::this_grid();
  if (!grid.is_valid()) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *result = -1;
    return;
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = blockIdx.x + 1;
  grid.sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += partial[i];
    *result = total;
  }
})";

constexpr char kMixed[] = R"(
struct Pair { char tag; double value; };
struct Big { int words[256]; };
__global__ void mixed(bool b, char c, short s, int i, long long l, unsigned u, float f, double d,
                      const int* null, Pair pair, Big big, Pair elsewhere, double* out) {
  *out = d + f + b + c + s + i + l + u + (null == nullptr) + pair.tag + pair.value +
         big.words[255] + elsewhere.tag + elsewhere.value;
})";

constexpr char kHelpers[] = R"(
#include <cassert>
#include <cstdio>
__global__ void helpers(int* out, int n) {
  assert(n > 0);
  if (n == 123456) printf("never\n");
  *out = n;
})";

constexpr char kTwo[] = "__global__ void first() {} __global__ void second(int) {}";
constexpr char kEmpty[] = "extern \"C\" __global__ void empty() {}";

// The host side of kMixed's structs.
struct Pair {
  char tag;
  double value;
};
struct Big {
  std::array<int, 256> words;
};

// --- Checks ---

int passed = 0;
int failed = 0;
int skipped = 0;
std::vector<std::string_view> left_out;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

struct Skip {
  std::string why;
};

struct Failure {
  std::string why;
};

void expect(bool condition, const std::string& what) {
  if (!condition) throw Failure{what};
}

template <class T, class U>
void expect_equal(const T& value, const U& wanted, std::string_view what) {
  if (value != wanted) throw Failure{std::format("{} is {}, expected {}", what, value, wanted)};
}

// The text of the error that `call` must throw.
template <class Error>
std::string expect_error(const std::function<void()>& call, std::string_view part) {
  try {
    call();
  } catch (const Error& error) {
    expect(error.message.find(part) != std::string::npos,
           std::format("the error does not say `{}`: {}", part, error.message));
    return error.message;
  }
  throw Failure{std::format("there was no error with `{}`", part)};
}

void check(const char* name, const std::function<void()>& body) {
  std::string why;
  try {
    if (std::ranges::find(left_out, name) != left_out.end()) throw Skip{"--without"};
    body();
    ++passed;
    say(std::format("PASS {}", name));
    return;
  } catch (const Skip& skip) {
    ++skipped;
    say(std::format("SKIP {}: {}", name, skip.why));
    return;
  } catch (const Failure& failure) {
    why = failure.why;
  } catch (const std::exception& error) {
    why = error.what();
  }
  ++failed;
  say(std::format("FAIL {}: {}", name, why));
}

// --- Device memory ---

template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemAlloc(&address_, count * sizeof(T)));
    DJ_CUDA_DRIVER_CHECK(
        lazy_cuMemsetD8(address_, static_cast<unsigned char>(0xff), count * sizeof(T)));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemcpyHtoD(address_, values.data(), count_ * sizeof(T)));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { lazy_cuMemFree(address_); }

  T* get() const { return reinterpret_cast<T*>(address_); }

  // Waits for the kernels before.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemcpyDtoH(values.data(), address_, count_ * sizeof(T)));
    return values;
  }

 private:
  std::size_t count_;
  CUdeviceptr address_ = 0;
};

// --- The runtime ---

std::filesystem::path scratch() {
  static const auto path = std::filesystem::temp_directory_path() / deep_jit::unique_name();
  return path;
}

Config config() {
  return Config(scratch(), "SMOKE", "", {}, {}, "", {scratch() / "cache"});
}

auto jit = deep_jit::create_lazy_jit<CUDA>(config());
std::shared_ptr<Kernel> kept_to_the_end;  // Its destructor runs when the process ends.

void launch_scale(const std::shared_ptr<Kernel>& kernel, const LaunchOptions& overrides = {}) {
  constexpr int kCount = 1 << 20;
  std::vector<float> x(kCount);
  std::iota(x.begin(), x.end(), 0.0f);
  const Buffer<float> in(x);
  const Buffer<float> out(x.size());
  LaunchOptions options{.grid_dim = Dim3(kCount / 256), .block_dim = Dim3(256)};
  jit->launch(kernel, options.override_with(overrides), out.get(),
              static_cast<const float*>(in.get()), 2.0f, kCount);
  const auto result = out.read();
  for (int i = 0; i < kCount; ++i) {
    expect_equal(result[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i), "an element");
  }
}

bool has_clusters() {
  return jit->device.get_arch_major() >= 9;
}

void check_shared_memory() {
  const auto kernel = jit->compile("reverse", kReverse);
  const int most = jit->device.get_num_smem_bytes();
  expect(most >= 48 << 10, std::format("a block may have {} bytes", most));
  for (const int bytes : {1024, most, 4096}) {
    const int ints = bytes / 4;
    const Buffer<int> out(static_cast<std::size_t>(ints));
    jit->launch(kernel, {.num_smem_bytes = bytes, .grid_dim = Dim3(1), .block_dim = Dim3(256)},
                out.get(), ints);
    const auto result = out.read();
    expect_equal(result.front(), ints - 1, "the first");
    expect_equal(result.back(), 0, "the last");
  }
  const Buffer<int> out(1);
  expect_error<deep_jit::exception::LaunchError>(
      [&] {
        jit->launch(kernel, {.num_smem_bytes = most + 1, .grid_dim = Dim3(1), .block_dim = Dim3(1)},
                    out.get(), 1);
      },
      "dynamic shared memory");
}

void check_cluster(const Dim3& cluster, bool nonportable = false) {
  if (!has_clusters()) throw Skip{"clusters need sm_90"};
  const auto kernel = jit->compile("exchange", kCluster);
  const Dim3 grid(cluster.x * 2, cluster.y, cluster.z);
  const unsigned blocks = grid.x * grid.y * grid.z;
  const unsigned size = cluster.x * cluster.y * cluster.z;
  const Buffer<int> out(2 * blocks);
  jit->launch(kernel,
              {.grid_dim = grid,
               .block_dim = Dim3(64),
               .cluster_dim = cluster,
               .nonportable_cluster_size_allowed = nonportable},
              out.get());
  std::vector<int> counts(size + 1, 0);
  const auto result = out.read();
  for (unsigned i = 0; i < blocks; ++i) {
    expect_equal(result[2 * i + 1], static_cast<int>(size), "blocks per cluster");
    const int seen = result[2 * i];
    expect(seen >= 1 && seen <= static_cast<int>(size), std::format("a neighbour holds {}", seen));
    ++counts[static_cast<std::size_t>(seen)];
  }
  for (unsigned i = 1; i <= size; ++i) expect_equal(counts[i], 2, "blocks that saw this neighbour");
}

void check_cooperative(bool cooperative, int wanted) {
  const auto kernel = jit->compile("sum", kCooperative);
  const unsigned blocks = static_cast<unsigned>(jit->device.get_num_sms());
  const Buffer<int> partial(blocks);
  const Buffer<int> result(1);
  jit->launch(kernel,
              {.grid_dim = Dim3(blocks), .block_dim = Dim3(128), .cooperative = cooperative},
              partial.get(), result.get());
  expect_equal(result.read()[0], wanted, "the result");
}

void check_mixed() {
  const auto kernel = jit->compile("mixed", kMixed);
  const Buffer<double> out(1);
  Big big{};
  big.words[255] = 100;
  Pair elsewhere{'\1', 0.5};
  const auto launch = [&](auto b, const Pair& pair) {
    jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, b, 'A', short{-5}, 7,
                1ll << 33, 9u, 0.5f, 0.25, nullptr, pair, big, NoRefPtr{&elsewhere}, out.get());
  };
  launch(true, Pair{'\2', 1.5});
  const double wanted =
      1 + 65 - 5 + 7 + 8589934592.0 + 9 + 0.5 + 0.25 + 1 + 2 + 1.5 + 100 + 1 + 0.5;
  expect_equal(out.read()[0], wanted, "the sum");
  expect_error<deep_jit::exception::LaunchError>([&] { launch(1, Pair{}); },
                                                 "parameter 0 has 1 bytes");
  expect_equal(kernel->params().size(), 13u, "the number of parameters");
}

void check_wrong_launches() {
  const auto kernel = jit->compile("scale", kScale);
  const Buffer<float> x(256);
  const LaunchOptions good{.grid_dim = Dim3(1), .block_dim = Dim3(256)};
  const auto launch = [&](const LaunchOptions& overrides, auto... args) {
    jit->launch(kernel, good.override_with(overrides), args...);
  };
  const float* const in = x.get();
  using deep_jit::exception::LaunchError;
  expect_error<LaunchError>([&] { launch({}, x.get(), in, 2.0f); }, "4 parameters, but 3");
  expect_error<LaunchError>([&] { launch({}, x.get(), in, 2.0, 1); }, "parameter 2 has 4 bytes");
  expect_error<LaunchError>([&] { launch({.block_dim = Dim3(1025)}, x.get(), in, 2.0f, 1); },
                            "block (1025, 1, 1)");
  expect_error<LaunchError>([&] { launch({.block_dim = Dim3(0)}, x.get(), in, 2.0f, 1); },
                            "block dimensions must be positive");
  launch_scale(kernel);
}

// --- Graphs ---

// Captures one launch on a stream with these flags, replays it, and tries a cold compile meanwhile.
void check_graph(unsigned stream_flags, bool try_cold_compile) {
  const auto kernel = jit->compile("scale", kScale);
  CUstream stream = nullptr;
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamCreate(&stream, stream_flags));
  const Buffer<float> in(std::vector<float>(256, 3.0f));
  const Buffer<float> out(256);
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  jit->launch(kernel, {.stream = stream, .grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
              static_cast<const float*>(in.get()), 2.0f, 256);
  std::string refusal;
  if (try_cold_compile) {
    refusal = expect_error<deep_jit::exception::LaunchError>(
        [&] {
          jit->compile("cold", "__global__ void cold(int* out) { *out = " +
                                   std::to_string(stream_flags) + "; }");
        },
        "cannot compile kernel `cold`");
  }
  CUgraph graph = nullptr;
  DJ_CUDA_DRIVER_CHECK(lazy_cuStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  DJ_CUDA_DRIVER_CHECK(lazy_cuGraphGetNodes(graph, static_cast<CUgraphNode*>(nullptr), &nodes));
  expect_equal(nodes, 1u, "the number of nodes");
  CUgraphExec ready = nullptr;
  DJ_CUDA_DRIVER_CHECK(lazy_cuGraphInstantiate(&ready, graph, 0ull));
  for (int replay = 0; replay < 2; ++replay) {
    DJ_CUDA_DRIVER_CHECK(lazy_cuMemsetD8(reinterpret_cast<CUdeviceptr>(out.get()),
                                         static_cast<unsigned char>(0), std::size_t{1024}));
    DJ_CUDA_DRIVER_CHECK(lazy_cuGraphLaunch(ready, stream));
    DJ_CUDA_DRIVER_CHECK(lazy_cuStreamSynchronize(stream));
    expect_equal(out.read()[255], 6.0f, "an element after a replay");
  }
  lazy_cuStreamDestroy(stream);
  if (try_cold_compile) jit->compile("cold", "__global__ void cold(int* out) { *out = 1; }");
}

// --- Threads and contexts ---

void check_fresh_thread() {
  const auto kernel = jit->compile("scale", kScale);
  const Buffer<float> in(std::vector<float>(256, 3.0f));
  const Buffer<float> out(256);
  std::string problem;
  std::thread([&] {
    try {
      jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(256)}, out.get(),
                  static_cast<const float*>(in.get()), 2.0f, 256);
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }).join();
  expect(problem.empty(), problem);
  expect_equal(out.read()[0], 6.0f, "an element");
}

void check_many_threads() {
  const auto kernel = jit->compile("scale", kScale);
  constexpr std::size_t kThreads = 8;
  std::vector<std::unique_ptr<Buffer<float>>> outs;
  for (std::size_t i = 0; i < kThreads; ++i) outs.push_back(std::make_unique<Buffer<float>>(256));
  const Buffer<float> in(std::vector<float>(256, 1.0f));
  std::vector<std::string> problems(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int round = 0; round < 200; ++round) {
          jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(256)}, outs[i]->get(),
                      static_cast<const float*>(in.get()), static_cast<float>(i), 256);
        }
      } catch (const std::exception& error) {
        problems[i] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) {
    expect(problems[i].empty(), problems[i]);
    expect_equal(outs[i]->read()[0], static_cast<float>(i), "an element");
  }
}

void check_second_context() {
  const auto kernel = jit->compile("scale", kScale);
  launch_scale(kernel);
  CUcontext first = nullptr;
  const auto& api = deep_jit::cuda::driver::api();
  DJ_CUDA_DRIVER_CHECK(api.cuCtxGetCurrent(&first));
  // By its old name: the signature of the newest one differs from toolkit to toolkit.
  auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
      ::dlsym(get_cuda_handle(), "cuCtxCreate_v2"));
  CUcontext second = nullptr;
  DJ_CUDA_DRIVER_CHECK(create(&second, 0u, jit->device.get_index()));
  std::string problem;
  try {
    launch_scale(kernel);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxDestroy(second));
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSetCurrent(first));
  expect(problem.empty(), problem);
  launch_scale(kernel);
}

void check_fork() {
  const auto kernel = jit->compile("scale", kScale);
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_clear = false;
    try {
      float* const x = nullptr;
      jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, x,
                  static_cast<const float*>(x), 1.0f, 0);
    } catch (const std::exception& error) {
      is_clear = std::string_view(error.what()).find("forked") != std::string_view::npos;
      if (!is_clear) say(std::format("INFO the child said: {}", error.what()));
    }
    ::_exit(is_clear ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect_equal(status, 0, "the child's status");
  launch_scale(kernel);
}

void check_cache() {
  auto other = deep_jit::create_lazy_jit<CUDA>(config());
  const auto entry = jit->compile_without_load("scale", kScale);
  const auto before = std::filesystem::last_write_time(entry / "kernel.cubin");
  launch_scale(other->compile("scale", kScale));
  expect(std::filesystem::last_write_time(entry / "kernel.cubin") == before,
         "a second runtime compiled again");
  deep_jit::write_file_sync(entry / "kernel.cubin", "damaged");
  auto third = deep_jit::create_lazy_jit<CUDA>(config());
  launch_scale(third->compile("scale", kScale));
}

void check_helpers() {
  const auto kernel = jit->compile("helpers", kHelpers);
  const Buffer<int> out(1);
  jit->launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(1)}, out.get(), 17);
  expect_equal(out.read()[0], 17, "the result");
  expect_equal(kernel->name(), "helpers", "the name");
}

void check_two_kernels() {
  const auto text = expect_error<deep_jit::exception::Exception>([] { jit->compile("two", kTwo); },
                                                                 "expected exactly one kernel");
  for (const char* name : {"first()", "second(int)"}) {
    expect(text.find(name) != std::string::npos, text);
  }
}

void check_attributes() {
  const auto attributes = jit->compile("scale", kScale)->attributes();
  expect(attributes.num_registers > 0 && attributes.num_registers <= 255,
         std::format("{} registers", attributes.num_registers));
  expect_equal(attributes.num_local_bytes, 0, "local bytes");
  expect_equal(attributes.max_threads_per_block, 1024, "threads per block");
}

void check_unload() {
  const auto other = std::make_shared<Runtime<CUDA>>(config());
  const auto kernel = other->compile("empty", kEmpty);
  const LaunchOptions one{.grid_dim = Dim3(1), .block_dim = Dim3(1)};
  other->launch(kernel, one);
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
  kernel->unload();
  kernel->unload();
  expect_error<deep_jit::exception::LaunchError>([&] { other->launch(kernel, one); },
                                                 "kernel must be loaded before launch");
}

// --- Times ---

// Median over bursts of nanoseconds per call; short bursts, so that the queue of the GPU never
// fills.
double measure(const std::function<void()>& call) {
  constexpr int kBurst = 200;
  std::vector<double> times;
  for (int burst = 0; burst < 101; ++burst) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kBurst; ++i) call();
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    lazy_cuCtxSynchronize();
    times.push_back(elapsed.count() / kBurst);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void report_times() {
  const auto kernel = jit->compile("empty", kEmpty);
  const auto& api = deep_jit::cuda::driver::api();
  CUlaunchConfig plain{};
  plain.gridDimX = plain.gridDimY = plain.gridDimZ = 1;
  plain.blockDimX = plain.blockDimY = plain.blockDimZ = 1;
  const LaunchOptions one{.grid_dim = Dim3(1), .block_dim = Dim3(1)};
  const LaunchOptions merged = jit->default_launch_options.override_with(one);
  const std::string small(kEmpty);
  const std::string large = small + "//" + std::string(20'000, 'x');
  jit->compile("empty", large);
  const auto bare = [&] { api.cuLaunchKernelEx(&plain, kernel->kernel_handle, nullptr, nullptr); };
  for (int i = 0; i < 1000; ++i) bare();
  lazy_cuCtxSynchronize();
  const double reference = measure(bare);
  const auto report = [&](const char* name, double time) {
    say(std::format("INFO {}: {:.0f} ns, {:.2f} x bare", name, time, time / reference));
  };
  report("bare cuLaunchKernelEx", reference);
  report("Kernel::launch", measure([&] { kernel->launch(merged); }));
  report("Runtime::launch", measure([&] { jit->launch(kernel, one); }));
  report("memory hit and launch, small source",
         measure([&] { jit->launch(jit->compile("empty", small), one); }));
  report("memory hit and launch, 20 kB source",
         measure([&] { jit->launch(jit->compile("empty", large), one); }));
  report("bare cuLaunchKernelEx again", measure(bare));
}

void run_on_gpu() {
  check("device", [] {
    say(std::format("INFO {}: sm_{}, {} SMs, {} bytes of shared memory per block",
                    jit->device.get_prop().name, jit->device.get_arch(), jit->device.get_num_sms(),
                    jit->device.get_num_smem_bytes()));
    expect(jit->device.get_clock_rate() > 0, "there is no clock rate");
  });
  check("element-wise", [] {
    kept_to_the_end = jit->compile("scale", kScale);
    // Makes the context current for this thread, as libcudart would.
    DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSetCurrent(
        deep_jit::cuda::primary_context(deep_jit::cuda::driver::api(), jit->device.get_index())));
    launch_scale(kept_to_the_end);
  });
  check("explicit null stream", [] { launch_scale(kept_to_the_end, {.stream = nullptr}); });
  check("programmatic dependent launch",
        [] { launch_scale(kept_to_the_end, {.enable_pdl = has_clusters()}); });
  check("dynamic shared memory", check_shared_memory);
  check("cluster of 2", [] { check_cluster(Dim3(2)); });
  check("cluster of 2 x 2 x 2", [] { check_cluster(Dim3(2, 2, 2)); });
  check("non-portable cluster of 16", [] { check_cluster(Dim3(16), true); });
  // First: once a kernel was launched cooperatively, the driver leaves its grid workspace in place.
  check("not cooperative", [] { check_cooperative(false, -1); });
  check("cooperative", [] {
    const int blocks = jit->device.get_num_sms();
    check_cooperative(true, blocks * (blocks + 1) / 2);
  });
  check("arguments of all kinds", check_mixed);
  check("wrong launches", check_wrong_launches);
  check("graph", [] { check_graph(CU_STREAM_NON_BLOCKING, false); });
  check("graph, cold compile refused", [] { check_graph(CU_STREAM_DEFAULT, true); });
  check("thread without a context", check_fresh_thread);
  check("eight threads", check_many_threads);
  check("second context", check_second_context);
  check("forked child", check_fork);
  check("cache", check_cache);
  check("assert and printf", check_helpers);
  check("two kernels", check_two_kernels);
  check("attributes", check_attributes);
  check("unload", check_unload);
  check("times", report_times);
  check("context reset under a loaded kernel", [] {
    const auto kernel = jit->compile("empty", kEmpty);
    DJ_CUDA_DRIVER_CHECK(lazy_cuDevicePrimaryCtxReset(jit->device.get_index()));
    kernel->unload();
  });
}

void compile_all(const std::string& arch) {
  for (const auto& [name, source] :
       std::initializer_list<std::pair<const char*, const char*>>{{"scale", kScale},
                                                                  {"reverse", kReverse},
                                                                  {"exchange", kCluster},
                                                                  {"sum", kCooperative},
                                                                  {"mixed", kMixed},
                                                                  {"helpers", kHelpers},
                                                                  {"two", kTwo},
                                                                  {"empty", kEmpty}}) {
    check(name, [&] {
      const auto entry = jit->compile_without_load(name, source, {.arch = arch});
      expect(deep_jit::read(entry / "kernel.cubin").starts_with("\177ELF"), "it is no ELF file");
    });
  }
  check("verified headers", [&] {
    Config verified = config();
    verified.dependency_mode = deep_jit::DependencyMode::kVerified;
    Runtime<CUDA> runtime(verified);
    const auto entry = runtime.compile_without_load("sum", kCooperative, {.arch = arch});
    const auto dependencies = deep_jit::Dependencies::of_entry(entry);
    expect(dependencies && dependencies->size() > 10, "the headers are not listed");
    expect(runtime.compile_without_load("sum", kCooperative, {.arch = arch}) == entry,
           "it was compiled again");
  });
  check("checks", [&] {
    const std::string spilling =
        "__global__ void __launch_bounds__(1024) spill(float* x) { float a[200];\n"
        "#pragma unroll\nfor (int i = 0; i < 200; ++i) a[i] = x[i * 7];\n__syncthreads();\n"
        "#pragma unroll\nfor (int i = 0; i < 200; ++i) x[i * 3] = a[i] * a[(i + 7) % 200]; }";
    expect_error<deep_jit::exception::CompileError>(
        [&] {
          jit->compile_without_load("spill", spilling, {.check_no_spills = true, .arch = arch});
        },
        "register spills");
    const std::string local =
        "__global__ void local(int* x, int i) { int a[64]; for (int k = 0; k < 64; ++k) a[k] = "
        "x[k]; for (int k = 0; k < 64; ++k) a[(k * i) & 63] += x[k]; x[0] = a[i & 63]; }";
    expect_error<deep_jit::exception::CompileError>(
        [&] {
          jit->compile_without_load("local", local, {.check_no_local_memory = true, .arch = arch});
        },
        "local memory usage");
    jit->compile_without_load(
        "scale", kScale, {.check_no_spills = true, .check_no_local_memory = true, .arch = arch});
  });
  check("ptx", [&] {
    const auto entry = jit->compile_without_load(
        "scale", kScale, {.with_line_info = true, .dump_ptx = true, .arch = arch});
    expect(deep_jit::read(entry / "kernel.ptx").find(".target sm_" + arch) != std::string::npos,
           "the PTX is for something else");
  });
  check("broken source", [&] {
    expect_error<deep_jit::exception::CompileError>(
        [&] { jit->compile_without_load("broken", "__global__ void k() { x; }", {.arch = arch}); },
        "identifier \"x\" is undefined");
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--compile-only") {
    compile_all(argv[2]);
  } else {
    for (int i = 1; i + 1 < argc; i += 2) {
      if (std::string_view(argv[i]) == "--without") left_out.emplace_back(argv[i + 1]);
    }
    run_on_gpu();
  }
  deep_jit::safe_remove_all(scratch());
  say(std::format("{} passed, {} failed, {} skipped", passed, failed, skipped));
  return failed == 0 ? 0 : 1;
}
