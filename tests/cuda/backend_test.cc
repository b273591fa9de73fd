// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/backend.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/identity_memo.hpp"
#include "tests/cuda/cuda_test.hpp"

namespace deep_jit {
namespace testing {
std::string launch_from_second_unit(const Config& config);
}  // namespace testing

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The whole life of a kernel, with an nvcc that is a script and the stand-in driver.
class BackendTest : public testing::CudaTest {
 protected:
  BackendTest() {
    unset_env("CXX");
    use_toolkit();
    driver().kernels = {{"_Z5scalePfPKfi", {8, 8, 4}}};
  }
  std::shared_ptr<Runtime<CUDA>> make_runtime() const {
    return std::make_shared<Runtime<CUDA>>(config());
  }

  const std::string source_ = "__global__ void scale(float* out, const float* x, int n) {}";
};

TEST_F(BackendTest, CompilesOnceAndLaunches) {
  auto jit = make_runtime();
  const auto kernel = jit->compile("scale", source_);
  EXPECT_EQ(jit->compile("scale", source_), kernel);
  EXPECT_EQ(compilations(), 1u);
  EXPECT_THAT(read(log_file()), HasSubstr("--gpu-architecture=sm_90a")) << "the device's";
  float* const x = nullptr;
  jit->launch(kernel, {.grid_dim = dim3(4), .block_dim = dim3(256)}, x, x, 5);
  EXPECT_EQ(driver().launches.back().config.blockDimX, 256u);
  DJ_EXPECT_ERROR(exception::LaunchError, jit->launch(nullptr, {}, x, x, 5),
                  HasSubstr("kernel must not be null"));

  ASSERT_THAT(published(), SizeIs(1));
  EXPECT_THAT(list(cache_root() / "cache" / published()[0]),
              ElementsAre(".committed", "kernel.cu", "kernel.cubin", "meta.json"));
  EXPECT_THAT(unfinished(), SizeIs(0));
  make_runtime()->compile("scale", source_);
  EXPECT_EQ(compilations(), 1u) << "from the disk";
}

// Also when another device is current for the thread that compiles.
TEST_F(BackendTest, LoadsForTheRuntimesDevice) {
  set_device(1);
  auto jit = make_runtime();
  EXPECT_EQ(jit->device.get_index(), 1);
  set_device(0);
  const auto kernel = jit->compile("scale", source_);
  const auto launch = [&] {
    jit->launch(kernel, {.grid_dim = dim3(1), .block_dim = dim3(1)}, &jit, &jit, 5);
  };
  set_device(1);
  driver().calls.clear();
  launch();
  EXPECT_EQ(driver().count("cuFuncLoad"), 0u) << "it is loaded there already";
  set_device(0);
  launch();
  EXPECT_EQ(driver().count("cuFuncLoad"), 1u) << "what was current came back after the load";
}

TEST_F(BackendTest, Metadata) {
  const auto entry = make_runtime()->compile_without_load("scale", source_);
  const auto metadata = nlohmann::json::parse(read(entry / "meta.json"));
  EXPECT_THAT(metadata["command"].get<std::string>(), HasSubstr("kernel.cu --cubin"));
  EXPECT_EQ(metadata["compiler_info"]["version"], "13.0, V13.0.88");
  EXPECT_EQ(metadata["compiler_options"]["arch"], "90a");
  EXPECT_EQ(metadata["compiler_options"]["dump_ptx"], false);
}

TEST_F(BackendTest, Keys) {
  auto jit = make_runtime();
  const auto key = [&](const cuda::CompilerOptions& overrides) {
    return jit->cache_key(source_, jit->default_compiler_options.override_with(overrides));
  };
  const std::string base = key({});
  EXPECT_EQ(key({.dump_ptx = true, .dump_sass = true}), base);
  write("hook.py", "");
  int index = 0;
  for (const cuda::CompilerOptions& overrides :
       {cuda::CompilerOptions{.optimize_level = "1"}, cuda::CompilerOptions{.fast_math = true},
        cuda::CompilerOptions{.ptxas_verbose = true},
        cuda::CompilerOptions{.ptxas_register_usage_level = 5},
        cuda::CompilerOptions{.check_no_spills = true},
        cuda::CompilerOptions{.check_no_local_memory = true},
        cuda::CompilerOptions{.with_line_info = true}, cuda::CompilerOptions{.arch = "90"},
        cuda::CompilerOptions{.nvcc_flags = std::vector<std::string>{}},
        cuda::CompilerOptions{.extra_nvcc_flags = {"-DX"}},
        cuda::CompilerOptions{.post_hook = "hook.py"}}) {
    EXPECT_NE(key(overrides), base) << index;
    ++index;
  }
  // Another nvcc that says the same version.
  add_nvcc("toolkit/bin/nvcc", "exit 3");
  EXPECT_NE(key({}), base);
}

// A source that NVRTC rejects is asked of NVRTC once: the second process finds nvcc's entry.
TEST_F(BackendTest, AutoIsFoundOnDisk) {
  use_nvrtc();
  for (const char* source : {"__global__ void a(int) {}", "REJECT __global__ void b(int) {}"}) {
    const auto entry = make_runtime()->compile_without_load("k", source, {.compiler = "auto"});
    const auto metadata = nlohmann::json::parse(read(entry / "meta.json"));
    EXPECT_THAT(metadata["compiler_info"]["reason"].get<std::string>(), HasSubstr("NVRTC"));
    EXPECT_EQ(metadata["compiler_options"]["compiler"], "auto");
  }
  EXPECT_THAT(nvrtc().compilations, SizeIs(2));
  EXPECT_EQ(compilations(), 1u);
  for (const char* source : {"__global__ void a(int) {}", "REJECT __global__ void b(int) {}"}) {
    make_runtime()->compile("k", source, {.compiler = "auto"});
  }
  EXPECT_THAT(nvrtc().compilations, SizeIs(2));
  EXPECT_EQ(compilations(), 1u);
}

TEST_F(BackendTest, TheEnvironmentChoosesTheCompiler) {
  use_nvrtc();
  set_env("TESTLIB_JIT_CUDA_COMPILER", "nvrtc");
  make_runtime()->compile("scale", source_);
  EXPECT_EQ(compilations(), 0u);
  make_runtime()->compile("scale", source_, {.compiler = "nvcc"});
  EXPECT_EQ(compilations(), 1u) << "the option wins";
  set_env("TESTLIB_JIT_CUDA_COMPILER", "icc");
  DJ_EXPECT_ERROR(exception::Exception, make_runtime(), HasSubstr("icc"));
}

TEST_F(BackendTest, DumpsAreAddedToAnEntry) {
  write_script("toolkit/bin/cuobjdump", "echo sass\n");
  const cuda::CompilerOptions wanted{.dump_ptx = true, .dump_sass = true};
  auto jit = make_runtime();
  const auto kernel = jit->compile("scale", source_);
  const auto entry = cache_root() / "cache" / published().at(0);
  const std::string manifest = read(entry / ".committed");
  EXPECT_EQ(jit->compile("scale", source_, wanted), kernel) << "from memory";
  EXPECT_THAT(list(entry), ElementsAre(".committed", "kernel.cu", "kernel.cubin", "kernel.ptx",
                                       "kernel.sass", "meta.json"));
  EXPECT_EQ(compilations(), 2u) << "one for the PTX";
  EXPECT_EQ(read(entry / ".committed"), manifest);
  EXPECT_EQ(read(entry / "kernel.sass"), "sass\n");
  EXPECT_THAT(unfinished(), SizeIs(0));

  // From the disk: only what is missing is made.
  std::filesystem::remove(entry / "kernel.sass");
  EXPECT_EQ(make_runtime()->compile_without_load("scale", source_, wanted), entry);
  EXPECT_TRUE(std::filesystem::exists(entry / "kernel.sass"));
  EXPECT_EQ(compilations(), 2u);
  EXPECT_EQ(make_runtime()->disk_cache.counters().damaged, 0u);
}

TEST_F(BackendTest, ADumpThatCannotBeAddedIsAWarning) {
  std::vector<std::string> warnings;
  const LogSink old = set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  make_runtime()->compile_without_load("scale", source_);
  EXPECT_NO_THROW(make_runtime()->compile("scale", source_, {.dump_sass = true}));
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("cannot add kernel.sass"),
                                          HasSubstr("dump_sass needs cuobjdump"))));
  // An entry in a root that is not written to.
  Config second = config();
  second.cache_dirs = {scratch() / "other_root", cache_root()};
  Runtime<CUDA>(second).compile("scale", source_, {.dump_ptx = true});
  set_log_sink(old);
  EXPECT_THAT(warnings.back(), HasSubstr("is written to"));
  EXPECT_EQ(compilations(), 1u);
  EXPECT_THAT(list(cache_root() / "cache" / published().at(0)),
              ElementsAre(".committed", "kernel.cu", "kernel.cubin", "meta.json"));
}

TEST_F(BackendTest, TheToolkitsIdentityIsKeptForOtherProcesses) {
  const auto cicc = write("toolkit/nvvm/bin/cicc", std::string(std::size_t{1} << 20, 'x'));
  while (!FileIdentity::of(cicc)->is_settled()) {
  }
  auto jit = make_runtime();
  EXPECT_FALSE(std::filesystem::exists(cache_root())) << "a memo is no reason to make one";
  jit->compile_without_load("scale", source_);
  const IdentityMemo memo(cache_root());
  const auto nvcc = std::filesystem::canonical(scratch() / "toolkit/bin/nvcc");
  EXPECT_EQ(memo.find("nvcc version " + nvcc.string(), FileIdentity::of(nvcc)->text()),
            "13.0, V13.0.88");
  const auto path = nvcc.parent_path().parent_path() / "nvvm/bin/cicc";
  EXPECT_EQ(memo.find("digest " + path.string(), FileIdentity::of(cicc)->text()),
            digest_file(cicc).hex());

  // Another version in the memo: whoever reports it has not asked nvcc.
  add_nvcc("toolkit/bin/nvcc", kWriteOutput, "13.1, V13.1.1");
  while (!FileIdentity::of(nvcc)->is_settled()) {
  }
  memo.remember("nvcc version " + nvcc.string(), FileIdentity::of(nvcc)->text(), "99.0, V99.0.1");
  memo.flush();
  EXPECT_EQ(make_runtime()->backend.get_compiler_info().version, "99.0, V99.0.1");
}

TEST_F(BackendTest, AFailurePublishesNothingAndTheNextTryWorks) {
  use_toolkit("exit 37");
  auto jit = make_runtime();
  DJ_EXPECT_ERROR(exception::CompileError, jit->compile("scale", source_),
                  HasSubstr("command failed with exit code 37"));
  EXPECT_THAT(published(), SizeIs(0));
  EXPECT_THAT(unfinished(), SizeIs(0));
  use_toolkit();
  EXPECT_NO_THROW(jit->compile("scale", source_));
}

TEST_F(BackendTest, AnEntryThatCannotBeLoadedIsCompiledAgain) {
  make_runtime()->compile_without_load("scale", source_);
  driver().failures["cuLibraryLoadFromFile"] = CUDA_ERROR_INVALID_IMAGE;
  DJ_EXPECT_ERROR(exception::CacheError, make_runtime()->compile("scale", source_),
                  HasSubstr("cannot load"));
  EXPECT_EQ(compilations(), 2u);
  driver().failures.clear();
  EXPECT_NO_THROW(make_runtime()->compile("scale", source_));
}

TEST_F(BackendTest, AColdCompileIsRefusedDuringACapture) {
  auto jit = make_runtime();
  const auto kernel = jit->compile("scale", source_);
  driver().is_blocking_capture = true;
  DJ_EXPECT_ERROR(exception::LaunchError, jit->compile("other", "__global__ void other(int) {}"),
                  HasSubstr("cannot compile kernel `other`"));
  EXPECT_EQ(compilations(), 1u);
  EXPECT_EQ(jit->compile("scale", source_), kernel) << "a loaded one is no trouble";
  driver().is_blocking_capture = false;
  EXPECT_NO_THROW(jit->compile("other", "__global__ void other(int) {}"));
}

TEST_F(BackendTest, DeclaringTouchesNothing) {
  driver().calls.clear();
  auto jit = create_lazy_jit<CUDA>(config());
  EXPECT_THAT(driver().calls, SizeIs(0));
  EXPECT_FALSE(std::filesystem::exists(cache_root()));
  jit.get();
  EXPECT_EQ(driver().count("cuDevicePrimaryCtxRetain"), 0u) << "no context either";
}

TEST_F(BackendTest, UnitsWithOtherCudaHeadersLiveInOneProgram) {
  driver().kernels = {{"_Z6secondv", {}}};
  EXPECT_EQ(testing::launch_from_second_unit(config()), "Fake 0");
  EXPECT_EQ(driver().launches.back().config.gridDimZ, 3u);
}

}  // namespace
}  // namespace deep_jit
