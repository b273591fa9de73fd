// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/toolkit.hpp"

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
using ::testing::IsEmpty;
using ::testing::Not;

// PATH holds only what the test puts into bin/, and what scripts need.
class ToolkitTest : public testing::CudaTest {
 protected:
  ToolkitTest() {
    make_dirs(scratch() / "bin");
    make_dirs(scratch() / "tools");
    for (const char* name : {"cat", "sh"}) {
      std::filesystem::create_symlink(*find_executable(name), scratch() / "tools" / name);
    }
    set_env("PATH", (scratch() / "bin").string() + ":" + (scratch() / "tools").string());
  }

  std::filesystem::path at(const std::string& relative) const {
    return std::filesystem::canonical(scratch()) / relative;
  }
  Toolkit find(const std::string& python = "/no/such/python") const {
    return find_toolkit(env(), config(python));
  }
  // An interpreter whose package `nvidia` is in `site`.
  std::string add_python(const std::filesystem::path& site) const {
    return write_script("python",
                        "echo a banner 1.2\necho 'deep_jit " + (scratch() / site).string() + "'\n")
        .string();
  }
};

TEST_F(ToolkitTest, SearchesInOrder) {
  add_nvcc("site/cu13/bin/nvcc");
  const std::string python = add_python("site");
  EXPECT_EQ(find(python).nvcc, at("site/cu13/bin/nvcc"));
  add_nvcc("bin/nvcc");
  EXPECT_EQ(find(python).nvcc, at("bin/nvcc"));
  add_nvcc("cuda_path/bin/nvcc");
  set_env("CUDA_PATH", (scratch() / "cuda_path").string());
  EXPECT_EQ(find(python).nvcc, at("cuda_path/bin/nvcc"));
  set_env("CUDA_HOME", "");
  EXPECT_EQ(find(python).nvcc, at("cuda_path/bin/nvcc")) << "empty is as unset";
  add_nvcc("cuda_home/bin/nvcc");
  set_env("CUDA_HOME", (scratch() / "cuda_home").string());
  EXPECT_EQ(find(python).nvcc, at("cuda_home/bin/nvcc"));
  add_nvcc("own/my nvcc");
  set_env("DJ_JIT_NVCC_COMPILER", (scratch() / "own/my nvcc").string());
  EXPECT_EQ(find(python).nvcc, at("own/my nvcc"));
  set_env("TESTLIB_JIT_NVCC_COMPILER", "");
  EXPECT_EQ(find(python).nvcc, at("cuda_home/bin/nvcc")) << "empty is as unset";
}

TEST_F(ToolkitTest, TheOptionIsTheFirstCandidate) {
  add_nvcc("own/my nvcc");
  set_env("TESTLIB_JIT_NVCC_COMPILER", (scratch() / "own/my nvcc").string());
  add_nvcc("cuda_home/bin/nvcc");
  set_env("CUDA_HOME", (scratch() / "cuda_home").string());
  Config own = config();
  own.toolkit_root = scratch() / "option";
  DJ_EXPECT_ERROR(exception::Exception, find_toolkit(env(), own),
                  AllOf(HasSubstr("toolkit_root: NVCC compiler is not executable"),
                        HasSubstr("option/bin/nvcc"), Not(HasSubstr("CUDA_HOME:"))));
  add_nvcc("option/bin/nvcc");
  EXPECT_EQ(find_toolkit(env(), own).nvcc, at("option/bin/nvcc"));
}

TEST_F(ToolkitTest, NamesEachRejectedCandidate) {
  if (std::filesystem::exists("/usr/local/cuda/bin/nvcc")) GTEST_SKIP() << "there is a toolkit";
  write_script("bin/nvcc", "echo no version\n");
  make_dirs(scratch() / "site/cu13/bin");
  const std::string python = add_python("site");
  DJ_EXPECT_ERROR(exception::Exception, find(python),
                  AllOf(HasSubstr("PATH: failed to parse NVCC version"), HasSubstr("no version"),
                        HasSubstr("wheels of `" + python + "`: no bin/nvcc in nvidia/cu*/"),
                        HasSubstr("/usr/local/cuda: NVCC compiler is not executable"),
                        HasSubstr("CUDA_HOME"), HasSubstr("JIT_NVCC_COMPILER")));
  DJ_EXPECT_ERROR(exception::Exception, find("/no/such/python"),
                  HasSubstr("the interpreter is not an executable file"));
  write_script("python", "echo ModuleNotFoundError; exit 1\n");
  DJ_EXPECT_ERROR(exception::Exception, find(python), HasSubstr("it has no package `nvidia`"));
}

TEST_F(ToolkitTest, AnOrderThatCannotBeFollowedIsAnError) {
  add_nvcc("bin/nvcc");
  set_env("CUDA_HOME", "/no/such/toolkit");
  DJ_EXPECT_ERROR(
      exception::Exception, find(),
      AllOf(HasSubstr("CUDA_HOME: NVCC compiler is not executable: /no/such/toolkit/bin/nvcc"),
            Not(HasSubstr("PATH:"))));
  write("plain_file", "");
  set_env("TESTLIB_JIT_NVCC_COMPILER", (scratch() / "plain_file").string());
  DJ_EXPECT_ERROR(exception::Exception, find(),
                  AllOf(HasSubstr("JIT_NVCC_COMPILER: NVCC compiler is not executable"),
                        HasSubstr("plain_file")));
  write_script("failing", "echo licence expired; exit 9\n");
  set_env("TESTLIB_JIT_NVCC_COMPILER", (scratch() / "failing").string());
  DJ_EXPECT_ERROR(exception::Exception, find(),
                  AllOf(HasSubstr("exit code 9"), HasSubstr("licence expired")));
}

TEST_F(ToolkitTest, Versions) {
  std::vector<std::string> warnings;
  const LogSink old = set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  const auto find_version = [&](const std::string& version) {
    add_nvcc("bin/" + version, kWriteOutput, version + ", V" + version + ".1");
    set_env("TESTLIB_JIT_NVCC_COMPILER", (scratch() / "bin" / version).string());
    return find().nvcc;
  };
  for (const char* version : {"12.9", "12.10", "13.0", "100.0"}) {
    EXPECT_EQ(find_version(version).filename(), version);
  }
  for (const char* version : {"12.8", "12.3", "12.2", "11.8", "9.99"}) {
    DJ_EXPECT_ERROR(exception::Exception, find_version(version),
                    AllOf(HasSubstr("NVCC version must be at least 12.9"), HasSubstr(version),
                          HasSubstr("JIT_ALLOW_OLD_NVCC")));
  }
  EXPECT_THAT(warnings, IsEmpty());
  set_env("TESTLIB_JIT_ALLOW_OLD_NVCC", "1");
  EXPECT_EQ(find_version("12.9").filename(), "12.9");
  EXPECT_THAT(warnings, IsEmpty());
  for (const char* version : {"12.3", "12.8", "12.8"}) {
    EXPECT_EQ(find_version(version).filename(), version);
  }
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("12.3, V12.3.1"), HasSubstr("12.9")),
                                    HasSubstr("12.8, V12.8.1")))
      << "once per compiler";
  for (const char* version : {"12.2", "11.8", "9.99"}) {
    DJ_EXPECT_ERROR(exception::Exception, find_version(version),
                    AllOf(HasSubstr("NVCC version must be at least 12.9"), HasSubstr(version)));
  }
  set_log_sink(old);
}

TEST_F(ToolkitTest, VersionAfterWarningsAndBanners) {
  const auto nvcc =
      write_script("bin/nvcc",
                   "echo 'warning: host 9.8 is old, release notes differ'\n"
                   "echo 'Welcome to release x'\n"
                   "printf 'Cuda compilation tools, release 13.0, V13.0.88\\r\\nBuild 1.2\\n'\n");
  const NvccVersion version = ask_nvcc_version(nvcc);
  EXPECT_EQ(version.major, 13);
  EXPECT_EQ(version.minor, 0);
  EXPECT_EQ(version.text, "13.0, V13.0.88");
}

TEST_F(ToolkitTest, TwoSpellingsAreOneToolkit) {
  add_nvcc("cuda-13/bin/nvcc");
  std::filesystem::create_directory_symlink("cuda-13", scratch() / "cuda");
  set_env("CUDA_HOME", (scratch() / "cuda").string());
  EXPECT_EQ(find().nvcc, at("cuda-13/bin/nvcc"));
  EXPECT_EQ(find().home(), at("cuda-13"));

  // A link to a program of another name stays: it may be a launcher that looks at its own name.
  add_nvcc("launcher");
  make_dirs(scratch() / "links/bin");
  std::filesystem::create_symlink(scratch() / "launcher", scratch() / "links/bin/nvcc");
  set_env("CUDA_HOME", (scratch() / "links").string());
  EXPECT_EQ(find().nvcc, at("links/bin/nvcc"));
}

TEST_F(ToolkitTest, CuobjdumpIsOptional) {
  add_nvcc("toolkit/bin/nvcc");
  set_env("CUDA_HOME", (scratch() / "toolkit").string());
  EXPECT_FALSE(find().cuobjdump.has_value());
  const auto own = write_script("toolkit/bin/cuobjdump", "true\n");
  EXPECT_EQ(find().cuobjdump, own);
  // The variable replaces nvcc alone.
  add_nvcc("other/nvcc");
  set_env("TESTLIB_JIT_NVCC_COMPILER", (scratch() / "other/nvcc").string());
  EXPECT_EQ(find().cuobjdump, own);
  const auto nearer = write_script("other/cuobjdump", "true\n");
  EXPECT_EQ(find().cuobjdump, nearer);
}

TEST_F(ToolkitTest, WheelLayouts) {
  add_nvcc("site/cuda_nvcc/bin/nvcc");
  make_dirs(scratch() / "site/cuda_runtime/include");
  const std::string python = add_python("site");
  const Toolkit old_layout = find(python);
  EXPECT_EQ(old_layout.nvcc, at("site/cuda_nvcc/bin/nvcc"));
  EXPECT_THAT(old_layout.include_dirs, ElementsAre(scratch() / "site/cuda_runtime/include"));
  add_nvcc("site/cu13/bin/nvcc");
  add_nvcc("site/cu9/bin/nvcc");
  add_nvcc("site/cuxx/bin/nvcc");
  const Toolkit new_layout = find(python);
  EXPECT_EQ(new_layout.nvcc, at("site/cu13/bin/nvcc")) << "the newest";
  EXPECT_THAT(new_layout.include_dirs, IsEmpty());
}

TEST_F(ToolkitTest, IdentityFollowsWhatMakesTheCode) {
  add_nvcc("a/bin/nvcc");
  write("a/bin/ptxas", "ptxas 1");
  write("a/nvvm/bin/cicc", "cicc 1");
  std::filesystem::copy(scratch() / "a", scratch() / "b", std::filesystem::copy_options::recursive);
  const auto identify = [&](const std::string& root) {
    return identify_toolkit({.nvcc = scratch() / root / "bin/nvcc"});
  };
  const CompilerInfo first = identify("a");
  EXPECT_EQ(first.version, "13.0, V13.0.88");
  EXPECT_EQ(first.identity.version, "nvcc 13.0, V13.0.88");
  EXPECT_EQ(identify("b").identity.content, first.identity.content) << "wherever it is installed";
  EXPECT_EQ(first.to_json()["path"], (scratch() / "a/bin/nvcc").string());
  for (const char* part : {"b/bin/ptxas", "b/nvvm/bin/cicc", "b/nvvm/libdevice/libdevice.10.bc"}) {
    const Digest before = identify("b").identity.content;
    write(part, "replaced");
    EXPECT_NE(identify("b").identity.content, before) << part;
  }
  const Digest before = identify("b").identity.content;
  add_nvcc("b/bin/nvcc", "other code, same version");
  EXPECT_NE(identify("b").identity.content, before);
}

}  // namespace
}  // namespace deep_jit::cuda
