// SPDX-License-Identifier: MIT
//
// The warm paths of the core: what a kernel that is in memory or on disk costs.
//
//     ./bazelw run -c opt --config=gcc //tools/bench:runtime
//
// Each figure stands beside the least that it could cost: the bare XXH3 of the same bytes, the bare
// dlopen of the same file. Compare within one run.
#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <format>
#include <memory>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <benchmark/benchmark.h>
#include <xxhash.h>

#include "deep_jit/backend/host/backend.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/cache/disk_cache.hpp"
#include "deep_jit/cache/manifest.hpp"
#include "deep_jit/key/include_scanner.hpp"
#include "deep_jit/runtime/runtime.hpp"

namespace {

using deep_jit::Config;
using deep_jit::DiskCache;
using deep_jit::Host;
using deep_jit::Runtime;

// A folder for this process's cache, removed when it ends.
const std::filesystem::path& scratch() {
  struct Folder {
    std::filesystem::path path;
    Folder() {
      std::string pattern = (std::filesystem::temp_directory_path() / "dj_bench.XXXXXX").string();
      path = ::mkdtemp(pattern.data());
      ::setenv("BENCH_JIT_CACHE_DIR", path.c_str(), 1);
    }
    ~Folder() { deep_jit::safe_remove_all(path); }
  };
  static const Folder folder;
  return folder.path;
}

Runtime<Host>& runtime() {
  scratch();
  static Runtime<Host> jit(Config(scratch(), "BENCH"));
  return jit;
}

// A kernel of at least `size` bytes; a comment fills it up.
std::string source_of(std::size_t size) {
  std::string source = "__global__ void k(float* x, int n) { if (n) x[0] = 1; }  // ";
  source.resize(std::max(size, source.size()), '.');
  return source + "\n";
}

void BM_BareHash(benchmark::State& state) {
  const std::string source = source_of(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(XXH3_128bits(source.data(), source.size()));
  }
}
BENCHMARK(BM_BareHash)->Arg(80)->Arg(20'000);

void BM_MemoryHit(benchmark::State& state) {
  const std::string source = source_of(static_cast<std::size_t>(state.range(0)));
  runtime().compile("bench", source);
  for (auto _ : state) {
    benchmark::DoNotOptimize(runtime().compile("bench", source));
  }
}
BENCHMARK(BM_MemoryHit)->Arg(80)->Arg(20'000);

void BM_Key(benchmark::State& state) {
  const std::string source = source_of(static_cast<std::size_t>(state.range(0)));
  const auto options = runtime().default_compiler_options;
  for (auto _ : state) {
    benchmark::DoNotOptimize(runtime().cache_key(source, options));
  }
}
BENCHMARK(BM_Key)->Arg(80)->Arg(20'000);

// A source that includes `range(0)` tracked headers, remembered after the first scan.
void BM_ScannerWarm(benchmark::State& state) {
  const auto folder = scratch() / "include";
  std::filesystem::create_directories(folder / "lib");
  std::string source;
  for (int i = 0; i < state.range(0); ++i) {
    deep_jit::write_file_sync(folder / "lib" / std::format("h{}.hpp", i), "int x;\n");
    source += std::format("#include <lib/h{}.hpp>\n", i);
  }
  source += source_of(20'000);
  deep_jit::IncludeScanner scanner({folder}, {"lib/"});
  for (auto _ : state) {
    benchmark::DoNotOptimize(scanner.scan(source));
  }
}
BENCHMARK(BM_ScannerWarm)->Arg(1)->Arg(64);

// An entry with one file of `size` bytes in a root of its own, beside `others` empty folders.
std::string make_entry(const std::filesystem::path& root, std::size_t size, std::int64_t others) {
  const DiskCache cache({root});
  const std::string digest(32, 'a');
  if (!cache.lookup("bench", digest)) {
    auto entry = cache.begin("bench", digest);
    deep_jit::write_file_sync(entry.directory() / "kernel.so", std::string(size, 'x'));
    entry.commit();
  }
  for (std::int64_t i = 0; i < others; ++i) {
    std::filesystem::create_directories(root / "cache" / std::format("other.{:032x}", i));
  }
  return digest;
}

void BM_DiskLookupVerified(benchmark::State& state) {
  const auto root = scratch() / std::format("verified{}", state.range(0));
  const std::string digest = make_entry(root, static_cast<std::size_t>(state.range(0)), 0);
  const DiskCache cache({root});
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.lookup("bench", digest));
  }
}
BENCHMARK(BM_DiskLookupVerified)->Arg(16'000)->Arg(1'000'000);

// What verification adds: the same entry, its manifest read and parsed, no file looked at.
void BM_DiskManifestOnly(benchmark::State& state) {
  const auto root = scratch() / std::format("manifest{}", state.range(0));
  const std::string digest = make_entry(root, static_cast<std::size_t>(state.range(0)), 0);
  const auto marker = root / "cache" / ("bench." + digest) / deep_jit::kCommitFileName;
  for (auto _ : state) {
    benchmark::DoNotOptimize(deep_jit::Manifest::parse(deep_jit::read(marker)));
  }
}
BENCHMARK(BM_DiskManifestOnly)->Arg(16'000)->Arg(1'000'000);

void BM_DiskLookupAmongEntries(benchmark::State& state) {
  const auto root = scratch() / std::format("among{}", state.range(0));
  const std::string digest = make_entry(root, 16'000, state.range(0));
  const DiskCache cache({root});
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.lookup("bench", digest));
  }
}
BENCHMARK(BM_DiskLookupAmongEntries)->Arg(10)->Arg(100'000);

void BM_BareDlopen(benchmark::State& state) {
  // A source of its own: a library that is loaded already would be opened for nothing.
  const auto entry = runtime().compile_without_load("bench", source_of(100));
  for (auto _ : state) {
    void* handle = ::dlopen((entry / "kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    benchmark::DoNotOptimize(handle);
    ::dlclose(handle);
  }
}
BENCHMARK(BM_BareDlopen);

// A disk hit as a second process has it, less the making of its runtime.
void BM_DiskHitAndLoad(benchmark::State& state) {
  const std::string source = source_of(100);
  runtime().compile_without_load("bench", source);
  for (auto _ : state) {
    state.PauseTiming();
    auto jit = std::make_unique<Runtime<Host>>(Config(scratch(), "BENCH"));
    state.ResumeTiming();
    benchmark::DoNotOptimize(jit->compile("bench", source));
    state.PauseTiming();
    jit.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_DiskHitAndLoad)->Iterations(50);

}  // namespace
