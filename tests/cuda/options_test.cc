// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/options.hpp"

#include <functional>
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

class OptionsTest : public testing::CudaTest {
 protected:
  CompilerOptions defaults() {
    Device device;
    return CompilerOptions::default_options(env(), device);
  }
  static LaunchOptions launch_options(const LaunchOptions& overrides = {}) {
    LaunchOptions options = LaunchOptions::default_options(Env("TESTLIB"));
    options.grid_dim = dim3(8, 4, 2);
    options.block_dim = dim3(32);
    return options.override_with(overrides);
  }
};

TEST_F(OptionsTest, DefaultFlagsInOrder) {
  CompilerOptions options = defaults();
  options.arch = "90a";
  EXPECT_THAT(options.get_flags(),
              ElementsAre("--gpu-architecture=sm_90a", "-O3", "--compiler-options=-O3",
                          "--ptxas-options=--register-usage-level=10", "-std=c++20",
                          "--compiler-options=-fPIC", "--compiler-options=-fconcepts",
                          "--expt-relaxed-constexpr", "--expt-extended-lambda"));
}

TEST_F(OptionsTest, AllFlagsInOrder) {
  const CompilerOptions options{.optimize_level = "s",
                                .fast_math = true,
                                .ptxas_verbose = true,
                                .ptxas_register_usage_level = 0,
                                .check_no_spills = true,
                                .check_no_local_memory = true,
                                .with_line_info = true,
                                .dump_ptx = true,
                                .dump_sass = true,
                                .arch = "100f",
                                .nvcc_flags = std::vector<std::string>{"-DA"},
                                .extra_nvcc_flags = {"-DB", "-DC D"},
                                .post_hook = "hook.py"};
  EXPECT_THAT(
      options.get_flags(),
      ElementsAre("--gpu-architecture=sm_100f", "-Os", "--compiler-options=-Os", "--use_fast_math",
                  "--ptxas-options=--verbose", "--ptxas-options=--register-usage-level=0",
                  "--ptxas-options=--warn-on-spills",
                  "--ptxas-options=--warn-on-local-memory-usage", "--generate-line-info", "-DA",
                  "-DB", "-DC D"));
}

TEST_F(OptionsTest, SetFieldsOverrideAndExtrasAppend) {
  const CompilerOptions base{.fast_math = true,
                             .dump_ptx = true,
                             .nvcc_flags = std::vector<std::string>{"-DA"},
                             .extra_nvcc_flags = {"-DB"},
                             .post_hook = "hook.py"};
  const CompilerOptions merged = base.override_with(
      {.fast_math = false, .nvcc_flags = std::vector<std::string>{}, .extra_nvcc_flags = {"-DC"}});
  EXPECT_EQ(merged.fast_math, false);
  EXPECT_EQ(merged.dump_ptx, true);
  EXPECT_THAT(*merged.nvcc_flags, ElementsAre());
  EXPECT_THAT(merged.extra_nvcc_flags, ElementsAre("-DB", "-DC"));
  EXPECT_EQ(merged.post_hook, "hook.py");
  EXPECT_EQ(base.override_with({.post_hook = ""}).post_hook, "");
  EXPECT_EQ(base.fast_math, true);
}

TEST_F(OptionsTest, JsonNamesTheFields) {
  const auto json = CompilerOptions{.fast_math = true, .extra_nvcc_flags = {"-DB"}}.to_json();
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("optimize_level", "use_fast_math", "ptxas_verbose",
                                 "ptxas_register_usage_level", "check_no_spills",
                                 "check_no_local_memory", "with_line_info", "dump_ptx", "dump_sass",
                                 "arch", "nvcc_flags", "extra_nvcc_flags", "post_hook"));
  EXPECT_EQ(json["use_fast_math"], true);
  EXPECT_TRUE(json["arch"].is_null());
  EXPECT_EQ(json["extra_nvcc_flags"].dump(), "[\"-DB\"]");
}

TEST_F(OptionsTest, WhatMustBeSet) {
  CompilerOptions options = defaults();
  options.arch.reset();  // As on a machine without a GPU.
  DJ_EXPECT_ERROR(exception::Exception, options.get_flags(),
                  HasSubstr("CUDA architecture must be specified"));
  options.arch = "90a";
  options.optimize_level.reset();
  DJ_EXPECT_ERROR(exception::Exception, options.get_flags(),
                  HasSubstr("optimization level must be specified"));
  options.optimize_level = "3";
  options.ptxas_register_usage_level.reset();
  DJ_EXPECT_ERROR(exception::Exception, options.get_flags(),
                  HasSubstr("register usage level must be specified"));
}

TEST_F(OptionsTest, EachVariableSetsItsOption) {
  struct Case {
    const char* suffix;
    std::vector<std::optional<bool> CompilerOptions::*> members;
  };
  const Case cases[] = {{"PTXAS_VERBOSE", {&CompilerOptions::ptxas_verbose}},
                        {"CHECK_NO_SPILLS", {&CompilerOptions::check_no_spills}},
                        {"CHECK_NO_LOCAL_MEMORY", {&CompilerOptions::check_no_local_memory}},
                        {"WITH_LINEINFO", {&CompilerOptions::with_line_info}},
                        {"DUMP_PTX", {&CompilerOptions::dump_ptx}},
                        {"DUMP_SASS", {&CompilerOptions::dump_sass}},
                        {"DUMP_ASM", {&CompilerOptions::dump_ptx, &CompilerOptions::dump_sass}},
                        {"DEBUG",
                         {&CompilerOptions::ptxas_verbose, &CompilerOptions::with_line_info,
                          &CompilerOptions::dump_ptx, &CompilerOptions::dump_sass}}};
  const auto count_set = [](const CompilerOptions& options) {
    int count = 0;
    for (const auto& option : {options.fast_math, options.ptxas_verbose, options.check_no_spills,
                               options.check_no_local_memory, options.with_line_info,
                               options.dump_ptx, options.dump_sass}) {
      count += option.value();
    }
    return count;
  };
  EXPECT_EQ(count_set(defaults()), 0);
  for (const auto& [suffix, members] : cases) {
    set_env(std::string("DJ_JIT_") + suffix, "1");
    const CompilerOptions options = defaults();
    for (const auto member : members) EXPECT_EQ(options.*member, true) << suffix;
    EXPECT_EQ(count_set(options), static_cast<int>(members.size())) << suffix;
    set_env(std::string("TESTLIB_JIT_") + suffix, "0");
    EXPECT_EQ(count_set(defaults()), 0) << suffix << ": the library's own variable wins";
    unset_env(std::string("DJ_JIT_") + suffix);
    unset_env(std::string("TESTLIB_JIT_") + suffix);
  }
  set_env("TESTLIB_JIT_DEBUG", "1");
  for (const char* suffix : {"PTXAS_VERBOSE", "WITH_LINEINFO", "DUMP_PTX", "DUMP_SASS"}) {
    set_env(std::string("TESTLIB_JIT_") + suffix, "0");
  }
  EXPECT_EQ(count_set(defaults()), 4) << "JIT_DEBUG is not to be overridden";
  unset_env("TESTLIB_JIT_DEBUG");
  set_env("TESTLIB_JIT_CPP_STANDARD", "17");
  EXPECT_EQ(defaults().nvcc_flags->front(), "-std=c++17");
  unset_env("TESTLIB_JIT_CPP_STANDARD");
  set_env("TESTLIB_JIT_CHECK_NO_SPILLS", "sometimes");
  DJ_EXPECT_ERROR(exception::Exception, defaults(), HasSubstr("invalid value"));
}

TEST_F(OptionsTest, LaunchDefaultsAndOverrides) {
  const LaunchOptions defaults = LaunchOptions::default_options(env());
  EXPECT_FALSE(defaults.stream || defaults.grid_dim || defaults.block_dim);
  EXPECT_EQ(defaults.num_smem_bytes, 0);
  EXPECT_EQ(defaults.cluster_dim->x, 1u);
  EXPECT_EQ(defaults.cooperative, false);
  EXPECT_EQ(defaults.enable_pdl, false);
  EXPECT_EQ(defaults.nonportable_cluster_size_allowed, false);

  const LaunchOptions all{.stream = nullptr,
                          .num_smem_bytes = 1,
                          .grid_dim = dim3(2),
                          .block_dim = dim3(3),
                          .cluster_dim = dim3(4, 5, 6),
                          .cooperative = true,
                          .enable_pdl = true,
                          .nonportable_cluster_size_allowed = true};
  for (const LaunchOptions& merged : {defaults.override_with(all), all.override_with({})}) {
    ASSERT_TRUE(merged.stream.has_value()) << "a null stream is set, too";
    EXPECT_EQ(*merged.stream, nullptr);
    EXPECT_EQ(merged.num_smem_bytes, 1);
    EXPECT_EQ(merged.grid_dim->x, 2u);
    EXPECT_EQ(merged.block_dim->x, 3u);
    EXPECT_EQ(merged.cluster_dim->z, 6u);
    EXPECT_EQ(merged.cooperative, true);
    EXPECT_EQ(merged.enable_pdl, true);
    EXPECT_EQ(merged.nonportable_cluster_size_allowed, true);
  }
}

TEST_F(OptionsTest, LaunchOptionsThatAreWrong) {
  struct Case {
    std::function<void(LaunchOptions&)> change;
    const char* text;
  };
  const Case cases[] = {
      {[](auto& o) { o.num_smem_bytes.reset(); }, "shared-memory size must be specified"},
      {[](auto& o) { o.grid_dim.reset(); }, "CUDA grid dimension must be specified"},
      {[](auto& o) { o.block_dim.reset(); }, "CUDA block dimension must be specified"},
      {[](auto& o) { o.cluster_dim.reset(); }, "cluster dimension must be specified"},
      {[](auto& o) { o.cooperative.reset(); }, "cooperative option must be specified"},
      {[](auto& o) { o.enable_pdl.reset(); }, "PDL option must be specified"},
      {[](auto& o) { o.nonportable_cluster_size_allowed.reset(); },
       "non-portable cluster option must be specified"},
      {[](auto& o) { o.num_smem_bytes = -1; },
       "shared-memory size must not be negative, but is -1"},
      {[](auto& o) { o.grid_dim = dim3(1, 0, 1); },
       "grid dimensions must be positive, but are (1, 0, 1)"},
      {[](auto& o) { o.block_dim = dim3(0); },
       "block dimensions must be positive, but are (0, 1, 1)"},
      {[](auto& o) { o.cluster_dim = dim3(1, 1, 0); },
       "cluster dimension must be positive, but is (1, 1, 0)"},
      {[](auto& o) { o.cluster_dim = dim3(3); }, "whole clusters of (3, 1, 1)"},
      {[](auto& o) { o.cluster_dim = dim3(8, 2); }, "set nonportable_cluster_size_allowed"},
      {[](auto& o) { o.cluster_dim = dim3(4, 4, 2), o.grid_dim = dim3(4, 4, 2); },
       "set nonportable_cluster_size_allowed"},
  };
  EXPECT_NO_THROW(launch_options().validate("scale"));
  for (const auto& [change, text] : cases) {
    LaunchOptions options = launch_options();
    change(options);
    DJ_EXPECT_ERROR(exception::LaunchError, options.validate("scale"),
                    AllOf(HasSubstr("cannot launch kernel `scale`"), HasSubstr(text)));
  }
  EXPECT_NO_THROW(launch_options({.cluster_dim = dim3(2, 2, 2)}).validate("scale"));
  EXPECT_NO_THROW(
      launch_options({.cluster_dim = dim3(8, 2), .nonportable_cluster_size_allowed = true})
          .validate("scale"));
}

}  // namespace
}  // namespace deep_jit::cuda
