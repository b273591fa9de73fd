// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/compiler_nvrtc.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// With the stand-in for NVRTC, and without a driver.
class CompilerNvrtcTest : public testing::CudaTest {
 protected:
  CompilerNvrtcTest() {
    use_nvrtc();
    make_dirs(directory());
  }

  std::filesystem::path directory() const { return scratch() / "build"; }
  static CompilerOptions options(const CompilerOptions& overrides = {}) {
    return CompilerOptions{.optimize_level = "3", .ptxas_register_usage_level = 10, .arch = "90a"}
        .override_with(overrides);
  }
  NvrtcCompiler compiler() const {
    NvrtcLocation place{.library = nvrtc_file(), .include_dirs = {"/cuda/include"}};
    const auto cuobjdump = scratch() / "cuobjdump";
    if (std::filesystem::exists(cuobjdump)) place.cuobjdump = cuobjdump;
    return NvrtcCompiler(place);
  }
  std::vector<std::string> compile(const CompilerOptions& overrides = {},
                                   const std::string& source = kSource) const {
    return compiler().compile(source, directory(), env(), config(), options(overrides));
  }
  std::string key(const CompilerOptions& overrides = {}) const {
    Key key;
    compiler().add_to_key(key, options(overrides));
    return key.digest().hex();
  }

  static constexpr char kSource[] = "__global__ void scale() {}";
};

TEST_F(CompilerNvrtcTest, WhatNvrtcGetsAndGives) {
  const auto command = compile({.extra_nvcc_flags = {"-DLAST"}});
  ASSERT_THAT(nvrtc().compilations, SizeIs(1));
  const auto& seen = nvrtc().compilations[0];
  EXPECT_EQ(seen.source, std::string(kNvrtcPrelude) + "#line 1 \"kernel.cu\"\n" + kSource);
  EXPECT_THAT(
      seen.options,
      ElementsAre("--include-path=" + (scratch() / "include").string(), "--gpu-architecture=sm_90a",
                  "--ptxas-options=--register-usage-level=10", "--define-macro=LAST",
                  "-default-device", "--include-path=/cuda/include"));
  EXPECT_THAT(seen.headers.at("cstdint"), HasSubstr("cuda/std/cstdint"));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(seen.name).parent_path() / "x"))
      << "quoted includes are looked for beside that name";
  EXPECT_EQ(command[0], nvrtc_file().string());
  EXPECT_EQ(command[1], "kernel.cu");
  EXPECT_EQ(std::vector(command.begin() + 2, command.end()), seen.options);
  EXPECT_THAT(list(directory()), ElementsAre("kernel.cu", "kernel.cubin"));
  EXPECT_EQ(read(directory() / "kernel.cu"), kSource);
  EXPECT_EQ(read(directory() / "kernel.cubin"), "a cubin of NVRTC");
  EXPECT_EQ(nvrtc().num_programs, 0);
}

TEST_F(CompilerNvrtcTest, Rejection) {
  const std::string source = "REJECT k();";
  try {
    compile({}, source);
    ADD_FAILURE();
  } catch (const NvrtcRejected& error) {
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("NVRTC 13.0: NVRTC_ERROR_COMPILATION (6)"),
                      HasSubstr("\nkernel.cu(1): error: REJECT"), Not(HasSubstr("/dev/null")),
                      HasSubstr("--gpu-architecture=sm_90a")));
    EXPECT_THAT(error.log, StartsWith("a remark\nkernel.cu(1): error: REJECT"));
    EXPECT_EQ(error.source_path, "kernel.cu");
    EXPECT_EQ(error.source, source);
    EXPECT_THAT(error.options, HasSubstr("\"arch\": \"90a\""));
    EXPECT_EQ(error.command.at(1), "kernel.cu");
  }
  nvrtc().cubin = "";
  DJ_EXPECT_ERROR(NvrtcRejected, compile(), HasSubstr("NVRTC did not produce a valid CUBIN"));
  EXPECT_EQ(nvrtc().num_programs, 0);
}

TEST_F(CompilerNvrtcTest, AnArchitectureThatItDoesNotKnow) {
  DJ_EXPECT_ERROR(NvrtcRejected, compile({.arch = "103a"}),
                  AllOf(HasSubstr("NVRTC 13.0 does not know the architecture sm_103a"),
                        HasSubstr("it knows 80, 90, 100")));
  EXPECT_THAT(nvrtc().compilations, SizeIs(0));
  EXPECT_NO_THROW(compile({.arch = "100f"}));
}

TEST_F(CompilerNvrtcTest, WhatItCannotServe) {
  DJ_EXPECT_ERROR(exception::Exception, compile({.extra_nvcc_flags = {"--keep"}}),
                  AllOf(HasSubstr("`--keep`"), HasSubstr("set compiler to \"nvcc\"")));
  Config verified = config();
  verified.dependency_mode = DependencyMode::kVerified;
  EXPECT_THAT(NvrtcCompiler::why_not(verified, options()), HasSubstr("verified"));
  EXPECT_EQ(NvrtcCompiler::why_not(config(), options()), "");
}

TEST_F(CompilerNvrtcTest, ChecksAndLogAreAsWithNvcc) {
  nvrtc().log = "ptxas warning : Local memory used for function 'k'";
  EXPECT_NO_THROW(compile());
  EXPECT_NO_THROW(compile({.check_no_spills = true}));
  try {
    compile({.check_no_local_memory = true});
    ADD_FAILURE();
  } catch (const NvrtcRejected&) {
    ADD_FAILURE() << "it is no reason to try another compiler";
  } catch (const exception::CompileError& error) {
    EXPECT_THAT(error.message, HasSubstr("local memory usage"));
  }
  EXPECT_THAT(nvrtc().compilations.back().options,
              ::testing::Contains("--ptxas-options=--warn-on-local-memory-usage"));
}

TEST_F(CompilerNvrtcTest, Dumps) {
  DJ_EXPECT_ERROR(exception::Exception, compile({.dump_sass = true}),
                  HasSubstr("toolkit.cuobjdump.has_value()"));
  write_script("cuobjdump", "echo \"sass of $*\"\n");
  compile({.dump_ptx = true, .dump_sass = true});
  EXPECT_EQ(read(directory() / "kernel.ptx"), "PTX of NVRTC");
  EXPECT_EQ(read(directory() / "kernel.sass"), "sass of --dump-sass kernel.cubin\n");
  nvrtc().ptx = "";
  DJ_EXPECT_ERROR(exception::CompileError, compile({.dump_ptx = true}),
                  HasSubstr("NVRTC did not produce a valid PTX"));
}

TEST_F(CompilerNvrtcTest, PostHookSeesTheCubin) {
  const auto python = write_script("python3", "echo changed > \"$2\"\n");
  write("hook.py", "");
  compiler().compile(kSource, directory(), env(), config(python.string()),
                     options({.post_hook = "hook.py"}));
  EXPECT_EQ(read(directory() / "kernel.cubin"), "changed\n");
}

TEST_F(CompilerNvrtcTest, CanBeInterrupted) {
  nvrtc().num_questions = 5;
  int asked = 0;
  {
    const InterruptScope scope([&] { return ++asked == 3; });
    EXPECT_THROW(compile(), exception::Interrupted);
  }
  EXPECT_EQ(asked, 3) << "the answer stays the same";
  EXPECT_EQ(nvrtc().num_programs, 0);
  EXPECT_FALSE(std::filesystem::exists(directory() / "kernel.cubin"));
  EXPECT_NO_THROW(compile());
}

TEST_F(CompilerNvrtcTest, Key) {
  const std::string base = key();
  EXPECT_EQ(key({.dump_ptx = true}), base);
  EXPECT_EQ(key({.optimize_level = "1"}), base) << "of the host side";
  for (const CompilerOptions& overrides :
       {CompilerOptions{.fast_math = true}, CompilerOptions{.ptxas_register_usage_level = 5},
        CompilerOptions{.arch = "90"}, CompilerOptions{.extra_nvcc_flags = {"-DX"}}}) {
    EXPECT_NE(key(overrides), base);
  }
}

TEST_F(CompilerNvrtcTest, PrintsTheOptionsAsACommand) {
  std::vector<std::string> lines;
  const LogSink old =
      set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  set_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND", "1");
  compile();
  unset_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND");
  set_log_sink(old);
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("Running command: " + nvrtc_file().string()),
                                       HasSubstr("--gpu-architecture=sm_90a"))));
}

}  // namespace
}  // namespace deep_jit::cuda
