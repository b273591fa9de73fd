// SPDX-License-Identifier: MIT
//
// What the CUDA backend costs from C++, beside the driver's own calls, on a machine with a GPU.
//
//     cuda_bench [--json FILE]                  # prints a line per case; all of it as JSON
//     cuda_bench --first-call COMPILER CACHE    # one first call in this process, as a JSON line
//     cuda_bench --first-load bare|hit CACHE    # one load of a kernel on disk, likewise
//
// The host's time for one launch of a kernel with a pointer, an int and a float, 32 threads: bursts
// of 200, all cases in turn, medians. Loads and first calls likewise; a first call is made by a
// process of its own with an empty cache, a first load by one that has a context and a full cache.
// Compare within one run.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <format>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/backend/cuda/backend.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/base/unique_name.hpp"

namespace {

using deep_jit::Config;
using deep_jit::CUDA;
using deep_jit::Runtime;
using deep_jit::cuda::Dim3;
using deep_jit::cuda::driver::get_cuda_handle;
using Clock = std::chrono::steady_clock;
using LaunchOptions = deep_jit::cuda::LaunchOptions;

DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuMemAlloc)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSynchronize)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuCtxSetCurrent)
DJ_DECL_LAZY_DL_FUNCTION(get_cuda_handle, cuLibraryGetKernel)

constexpr char kName[] = "scale";
constexpr int kBurst = 200;
constexpr int kRounds = 101;
constexpr int kLoads = 41;
constexpr int kFirstCalls = 5;
constexpr int kFirstLoads = 11;

std::filesystem::path scratch() {
  static const auto path = std::filesystem::temp_directory_path() / deep_jit::unique_name();
  return path;
}

Config config(const std::filesystem::path& cache) {
  return Config(scratch(), "BENCH", "", {}, {}, "", {cache});
}

// The kernel in at least `size` bytes; a comment fills it up.
std::string source_of(std::size_t size) {
  std::string source =
      "extern \"C\" __global__ void scale(float* x, int n, float a) { if (n) x[0] *= a; }//";
  source.resize(std::max(size, source.size()), '.');
  return source + "\n";
}

// Makes the device's context current, as libcudart would.
void use_context() {
  const auto& api = deep_jit::cuda::driver::api();
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSetCurrent(
      deep_jit::cuda::primary_context(api, deep_jit::cuda::Device().get_index())));
}

float* allocate() {
  CUdeviceptr address = 0;
  DJ_CUDA_DRIVER_CHECK(lazy_cuMemAlloc(&address, 1024));
  return reinterpret_cast<float*>(address);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// --- Results ---

class Results {
 public:
  void add(const std::string& name, double milliseconds) { samples_[name].push_back(milliseconds); }

  nlohmann::json to_json() const {
    nlohmann::json json;
    for (auto [name, values] : samples_) {
      std::ranges::sort(values);
      const auto at = [&](double part) {
        return 1e3 *
               values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
      };
      json[name] = {{"us", at(0.5)}, {"us_10", at(0.1)}, {"us_90", at(0.9)}, {"n", values.size()}};
    }
    return json;
  }

 private:
  std::map<std::string, std::vector<double>> samples_;
};

// --- Launches ---

void measure_launches(Results& results) {
  const auto& api = deep_jit::cuda::driver::api();
  Runtime<CUDA> jit(config(scratch() / "cache"));
  const std::string small = source_of(80);
  const std::string large = source_of(20'000);
  const auto kernel = jit.compile(kName, small);
  jit.compile(kName, large);
  float* x = allocate();
  int n = 32;
  float a = 1.5f;
  const LaunchOptions one{.grid_dim = Dim3(1), .block_dim = Dim3(32)};
  CUlaunchConfig plain{};
  plain.gridDimX = plain.gridDimY = plain.gridDimZ = plain.blockDimY = plain.blockDimZ = 1;
  plain.blockDimX = 32;
  const CUfunction function = kernel->kernel_handle;
  std::pair<std::string, std::function<void()>> cases[] = {
      {"launch: cuLaunchKernelEx",
       [&] {
         for (int i = 0; i < kBurst; ++i) {
           void* arguments[] = {&x, &n, &a};
           api.cuLaunchKernelEx(&plain, function, arguments, nullptr);
         }
       }},
      {"launch: C++",
       [&] {
         for (int i = 0; i < kBurst; ++i) jit.launch(kernel, one, x, n, a);
       }},
      {"memory hit and launch, 80 bytes: C++",
       [&] {
         for (int i = 0; i < kBurst; ++i) jit.launch(jit.compile(kName, small), one, x, n, a);
       }},
      {"memory hit and launch, 20 kB: C++",
       [&] {
         for (int i = 0; i < kBurst; ++i) jit.launch(jit.compile(kName, large), one, x, n, a);
       }},
  };
  const std::size_t count = std::size(cases);
  for (std::size_t round = 0; round < kRounds + 5; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [name, burst] = cases[(i + round) % count];
      const auto start = Clock::now();
      burst();
      const double time = milliseconds_since(start) / kBurst;
      DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
      if (round >= 5) results.add(name, time);  // The first ones warm up.
    }
  }
}

// --- Loads ---

void measure_loads(Results& results) {
  const auto& api = deep_jit::cuda::driver::api();
  const auto cache = scratch() / "cache";
  const std::string source = source_of(80);
  const auto cubin =
      Runtime<CUDA>(config(cache)).compile_without_load(kName, source) / "kernel.cubin";
  const auto load_bare = [&](bool ready) {
    CUlibrary library = nullptr;
    const auto start = Clock::now();
    DJ_CUDA_DRIVER_CHECK(api.cuLibraryLoadFromFile(&library, cubin.c_str(), nullptr, nullptr, 0,
                                                   nullptr, nullptr, 0));
    if (ready) {
      CUkernel kernel = nullptr;
      CUfunction function = nullptr;
      DJ_CUDA_DRIVER_CHECK(lazy_cuLibraryGetKernel(&kernel, library, kName));
      DJ_CUDA_DRIVER_CHECK(api.cuKernelGetFunction(&function, kernel));
      DJ_CUDA_DRIVER_CHECK(api.cuFuncLoad(function));
    }
    const double time = milliseconds_since(start);
    DJ_CUDA_DRIVER_CHECK(api.cuLibraryUnload(library));
    return time;
  };
  for (int i = 0; i < kLoads; ++i) {
    results.add("load: cuLibraryLoadFromFile", load_bare(false));
    results.add("load: cuLibraryLoadFromFile, function loaded", load_bare(true));
    const auto start = Clock::now();
    Runtime<CUDA> jit(config(cache));
    const double made = milliseconds_since(start);
    const auto middle = Clock::now();
    const auto kernel = jit.compile(kName, source);
    results.add("load: disk hit, C++", milliseconds_since(middle));
    results.add("runtime: C++", made);
    kernel->unload();
  }
}

// --- First calls ---

nlohmann::json first_call(const std::string& compiler, const std::filesystem::path& cache) {
  float* const x = allocate();
  const auto start = Clock::now();
  Runtime<CUDA> jit(config(cache));
  const double made = milliseconds_since(start);
  const auto kernel = jit.compile(kName, source_of(80), {.compiler = compiler});
  jit.launch(kernel, {.grid_dim = Dim3(1), .block_dim = Dim3(32)}, x, 32, 1.5f);
  DJ_CUDA_DRIVER_CHECK(lazy_cuCtxSynchronize());
  return {{"all", milliseconds_since(start)}, {"runtime", made}};
}

// The first thing that a second process has to load, its runtime made already.
nlohmann::json first_load(const std::string& how, const std::filesystem::path& cache) {
  Runtime<CUDA> jit(config(cache));
  const std::string source = source_of(80);
  const auto cubin = jit.compile_without_load(kName, source) / "kernel.cubin";
  const auto start = Clock::now();
  if (how == "hit") {
    Runtime<CUDA> other(config(cache));
    const double made = milliseconds_since(start);
    const auto middle = Clock::now();
    const auto kernel = other.compile(kName, source);
    return {{"all", milliseconds_since(middle)}, {"runtime", made}};
  }
  CUlibrary library = nullptr;
  DJ_CUDA_DRIVER_CHECK(deep_jit::cuda::driver::api().cuLibraryLoadFromFile(
      &library, cubin.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  return {{"all", milliseconds_since(start)}};
}

// What this program prints in a process of its own.
nlohmann::json in_own_process(const std::string& what, const std::string& how,
                              const std::filesystem::path& cache) {
  static const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const auto result = deep_jit::run_command({.arguments = {self, what, how, cache.string()}});
  if (!result.ok()) DJ_PANIC("{}", result.output);
  return nlohmann::json::parse(result.output);
}

void measure_first_loads(Results& results) {
  for (int i = 0; i < kFirstLoads; ++i) {
    const auto time = [](const std::string& how) {
      return in_own_process("--first-load", how, scratch() / "cache").at("all").get<double>();
    };
    results.add("first load: cuLibraryLoadFromFile", time("bare"));
    results.add("first load: disk hit, C++", time("hit"));
  }
}

void measure_first_calls(Results& results, nlohmann::json& missing) {
  for (int i = 0; i < kFirstCalls; ++i) {
    for (const std::string compiler : {"nvrtc", "nvcc"}) {
      const std::string name = std::format("first call: {}, C++", compiler);
      if (missing.contains(name)) continue;
      try {
        const auto times =
            in_own_process("--first-call", compiler, scratch() / std::format("{}{}", compiler, i));
        results.add(name, times.at("all").get<double>());
        // The toolkit is looked for and, unless something remembers it, read.
        results.add("runtime, first of its process: C++", times.at("runtime").get<double>());
      } catch (const std::exception& error) {
        missing[name] = error.what();
      }
    }
  }
}

int run(const std::vector<std::string>& arguments) {
#ifndef NDEBUG
  DJ_PANIC("this program is not optimised: build it, or the bundle, with -c opt");
#endif
  use_context();
  if (arguments.size() == 3 && arguments[0] == "--first-call") {
    std::puts(first_call(arguments[1], arguments[2]).dump().c_str());
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "--first-load") {
    std::puts(first_load(arguments[1], arguments[2]).dump().c_str());
    return 0;
  }
  Results results;
  nlohmann::json missing = nlohmann::json::object();
  measure_launches(results);
  measure_loads(results);
  measure_first_loads(results);
  measure_first_calls(results, missing);
  const nlohmann::json cases = results.to_json();
  for (const auto& [name, value] : cases.items()) {
    std::puts(std::format("{:<45} {:>12.2f} us", name, value.at("us").get<double>()).c_str());
  }
  for (const auto& [name, why] : missing.items()) {
    std::puts(std::format("{:<45} missing: {}", name, why.get<std::string>()).c_str());
  }
  if (arguments.size() == 2 && arguments[0] == "--json") {
    deep_jit::write_file_sync(
        arguments[1], nlohmann::json{{"cases", cases}, {"missing", missing}}.dump(2) + "\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int status = 1;
  try {
    deep_jit::make_dirs(scratch());
    status = run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
  deep_jit::safe_remove_all(scratch());
  return status;
}
