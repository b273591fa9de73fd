// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/options.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit::host {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using OptionsTest = testing::ScratchTest;

TEST_F(OptionsTest, DefaultsAndEnvironment) {
  const Env env("TESTLIB");
  EXPECT_THAT(CompilerOptions::default_options(env, Device()).get_flags(),
              ElementsAre("-O3", "-std=c++20", "-fPIC", "-fvisibility=hidden"));
  EXPECT_EQ(LaunchOptions::default_options(env).num_threads, Device().get_num_threads());
  EXPECT_EQ(LaunchOptions::default_options(env).num_smem_bytes, 0);
  set_env("TESTLIB_JIT_CPP_STANDARD", "23");
  set_env("DJ_JIT_DEBUG", "1");
  set_env("TESTLIB_JIT_NUM_THREADS", "3");
  EXPECT_THAT(CompilerOptions::default_options(env, Device()).get_flags(),
              ElementsAre("-O3", "-g", "-std=c++23", "-fPIC", "-fvisibility=hidden"));
  EXPECT_EQ(LaunchOptions::default_options(env).num_threads, 3);
  set_env("TESTLIB_JIT_DEBUG", "0");
  EXPECT_EQ(CompilerOptions::default_options(env, Device()).debug_info, false);
  EXPECT_EQ(CompilerOptions::default_options(env, Device()).dump_asm, false);
  set_env("DJ_JIT_DUMP_ASM", "yes");
  EXPECT_EQ(CompilerOptions::default_options(env, Device()).dump_asm, true);
  set_env("TESTLIB_JIT_DUMP_ASM", "0");
  EXPECT_EQ(CompilerOptions::default_options(env, Device()).dump_asm, false);
  set_env("TESTLIB_JIT_DEBUG", "1");
  EXPECT_EQ(CompilerOptions::default_options(env, Device()).dump_asm, true) << "debug implies it";
  set_env("TESTLIB_JIT_CPP_STANDARD", "20x");
  DJ_EXPECT_ERROR(exception::Exception, (void)CompilerOptions::default_options(env, Device()),
                  HasSubstr("invalid value"));
}

TEST_F(OptionsTest, FlagsKeepTheirOrder) {
  const CompilerOptions defaults{
      .optimize_level = "2", .debug_info = true, .cxx_flags = {{"-a"}}, .extra_cxx_flags = {"-b"}};
  EXPECT_THAT(defaults.override_with({.extra_cxx_flags = {"-c", "-b"}}).get_flags(),
              ElementsAre("-O2", "-g", "-a", "-b", "-c", "-b"));
  EXPECT_THAT(
      defaults
          .override_with({.optimize_level = "s", .debug_info = false, .cxx_flags = {{"-x", "-y"}}})
          .get_flags(),
      ElementsAre("-Os", "-x", "-y", "-b"));
  EXPECT_THAT(
      defaults.override_with({.sanitize = "address"}).get_flags(),
      ElementsAre("-O2", "-g", "-fsanitize=address", "-fno-omit-frame-pointer", "-a", "-b"));
  EXPECT_THAT(defaults.override_with({.sanitize = ""}).get_flags(),
              ElementsAre("-O2", "-g", "-a", "-b"));
  DJ_EXPECT_ERROR(exception::Exception,
                  (void)defaults.override_with({.sanitize = "adress"}).get_flags(),
                  AllOf(HasSubstr("sanitize must be"), HasSubstr("adress")));
  EXPECT_EQ(defaults.override_with({.dump_asm = true, .post_hook = "a.py"}).get_flags(),
            defaults.get_flags());
  DJ_EXPECT_ERROR(exception::Exception, (void)CompilerOptions().get_flags(),
                  HasSubstr("optimization level must be specified"));
}

TEST_F(OptionsTest, JsonNamesEveryField) {
  EXPECT_EQ(CompilerOptions().to_json().dump(),
            R"({"optimize_level":null,"debug_info":null,"sanitize":null,"dump_asm":null,)"
            R"("cxx_flags":null,"extra_cxx_flags":[],"post_hook":null})");
}

TEST_F(OptionsTest, ValidatesDimensionsAndSharedMemory) {
  const LaunchOptions good{.grid_dim = Dim3{2}, .block_dim = Dim3{3, 4}};
  EXPECT_NO_THROW(good.validate("k"));
  const auto expect = [&](const LaunchOptions& options, const char* text) {
    DJ_EXPECT_ERROR(exception::LaunchError, options.validate("scale"),
                    AllOf(HasSubstr("`scale`"), HasSubstr(text)));
  };
  expect({.block_dim = Dim3{1}}, "grid dimension must be specified");
  expect({.grid_dim = Dim3{1}}, "block dimension must be specified");
  expect(good.override_with({.grid_dim = Dim3{1, 0, 1}}),
         "grid dimensions must be positive, but are (1, 0, 1)");
  expect(good.override_with({.block_dim = Dim3{1, 1, 0}}),
         "block dimensions must be positive, but are (1, 1, 0)");
  EXPECT_NO_THROW(good.override_with({.num_smem_bytes = 0}).validate("k"));
  EXPECT_NO_THROW(good.override_with({.num_smem_bytes = 16777216}).validate("k"));
  expect(good.override_with({.num_smem_bytes = -1}),
         "shared-memory size must not be negative, but is -1");
  expect(good.override_with({.num_smem_bytes = 16777217}),
         "shared-memory size must be at most 16777216 bytes, but is 16777217");
  expect(good.override_with({.num_threads = 0}), "num_threads must be positive, but is 0");
}

}  // namespace
}  // namespace deep_jit::host
