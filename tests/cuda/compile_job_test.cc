// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/compile_job.hpp"

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

class CompileJobTest : public testing::CudaTest {
 protected:
  CompileJob job(const CompilerOptions& options = {}) {
    options_ = options;
    return {source_, scratch(), env_, config_, options_};
  }

  const std::string source_ = "a source";
  const Env env_{"TESTLIB"};
  const Config config_ = config();
  const std::vector<std::string> command_ = {"nvcc", "a b"};
  CompilerOptions options_;
};

TEST_F(CompileJobTest, AFailureTellsEverything) {
  try {
    fail_compile(job({.arch = "90a"}), "it broke", command_, "a log");
  } catch (const exception::CompileError& error) {
    EXPECT_THAT(error.message, AllOf(HasSubstr("failed to compile kernel.cu: it broke"),
                                     HasSubstr("nvcc 'a b'"), HasSubstr("a log")));
    EXPECT_EQ(error.log, "a log");
    EXPECT_EQ(error.command, command_);
    EXPECT_EQ(error.source, source_);
    EXPECT_THAT(error.options, HasSubstr("\"arch\": \"90a\""));
  }
}

TEST_F(CompileJobTest, ChecksReactToTheirOwnWording) {
  const std::string spill = "registers are Spilled\tto local  memory";
  const std::string local = "Local memory used";
  check_ptxas_output(job(), command_, spill + local);
  check_ptxas_output(job({.check_no_spills = true}), command_, local);
  check_ptxas_output(job({.check_no_local_memory = true}), command_, spill);
  DJ_EXPECT_ERROR(exception::CompileError,
                  check_ptxas_output(job({.check_no_spills = true}), command_, spill),
                  HasSubstr("register spills"));
  DJ_EXPECT_ERROR(exception::CompileError,
                  check_ptxas_output(job({.check_no_local_memory = true}), command_, local),
                  HasSubstr("local memory usage"));
}

TEST_F(CompileJobTest, PrintsWhatWasAskedFor) {
  std::vector<std::string> lines;
  const LogSink old =
      set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  print_command(env_, command_);
  set_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND", "1");
  print_command(env_, command_);
  unset_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND");
  check_ptxas_output(job(), command_, "silent");
  check_ptxas_output(job({.ptxas_verbose = true}), command_, "told");
  set_log_sink(old);
  EXPECT_THAT(lines, ElementsAre("Running command: nvcc 'a b'", "told"));
}

TEST_F(CompileJobTest, SassOfACubinElsewhere) {
  const auto cuobjdump = write_script("cuobjdump", "cat \"$2\"\n");
  write("entry/kernel.cubin", "the cubin");
  dump_sass(job(), cuobjdump, scratch() / "entry");
  EXPECT_EQ(read(scratch() / "kernel.sass"), "the cubin");
  EXPECT_THAT(list(scratch() / "entry"), ElementsAre("kernel.cubin"));
}

}  // namespace
}  // namespace deep_jit::cuda
