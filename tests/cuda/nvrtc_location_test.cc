// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/nvrtc_location.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The files are never opened here.
class NvrtcLocationTest : public testing::CudaTest {
 protected:
  std::filesystem::path at(const std::string& relative) const {
    return std::filesystem::canonical(scratch()) / relative;
  }
  std::string add_python() const {
    return write_script("python", "echo 'deep_jit " + (scratch() / "site").string() + "'\n")
        .string();
  }
};

TEST_F(NvrtcLocationTest, SearchesInOrder) {
  const std::string python = add_python();
  const auto find = [&](const Toolkit* toolkit, const std::filesystem::path& root = {}) {
    Config own = config(python);
    own.toolkit_root = root;
    return find_nvrtc(env(), own, toolkit).library;
  };
  write("site/cuda_nvrtc/lib/libnvrtc.so.12", "");
  EXPECT_EQ(find(nullptr), at("site/cuda_nvrtc/lib/libnvrtc.so.12"));
  write("site/cu13/lib/libnvrtc.so.13", "");
  write("site/cu13/lib/libnvrtc.alt.so.13", "");
  EXPECT_EQ(find(nullptr), at("site/cu13/lib/libnvrtc.so.13"));
  const Toolkit toolkit{.nvcc = scratch() / "cuda/bin/nvcc"};
  EXPECT_EQ(find(&toolkit), at("site/cu13/lib/libnvrtc.so.13"));
  write("cuda/lib64/libnvrtc.so.9", "");
  write("cuda/lib64/libnvrtc.so.13.0.88", "");
  std::filesystem::create_symlink("libnvrtc.so.13.0.88", scratch() / "cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(find(&toolkit), at("cuda/lib64/libnvrtc.so.13.0.88")) << "the newest";
  write("option/lib/libnvrtc.so.13", "");
  EXPECT_EQ(find(&toolkit, scratch() / "option"), at("option/lib/libnvrtc.so.13"));
  set_env("DJ_JIT_NVRTC_LIBRARY", write("own.so", "").string());
  EXPECT_EQ(find(&toolkit, scratch() / "option"), at("own.so"));
  set_env("TESTLIB_JIT_NVRTC_LIBRARY", "/no/such/file");
  DJ_EXPECT_ERROR(
      exception::Exception, find(&toolkit),
      AllOf(HasSubstr("JIT_NVRTC_LIBRARY: not a file: /no/such/file"), Not(HasSubstr("wheels"))));
}

TEST_F(NvrtcLocationTest, WithoutNvccTakesWhatTheEnvironmentNames) {
  const Config own = config(add_python());
  write("site/cu13/lib/libnvrtc.so.13", "");
  write("path/lib64/libnvrtc.so.13", "");
  write_script("path/bin/nvcc", "exit 1\n");
  set_env("PATH", (scratch() / "path/bin").string());
  EXPECT_EQ(find_nvrtc(env(), own, nullptr).library, at("path/lib64/libnvrtc.so.13"));
  write("home/lib/libnvrtc.so.13", "");
  write_script("home/bin/cuobjdump", "exit 1\n");
  set_env("CUDA_PATH", (scratch() / "home").string());
  const auto found = find_nvrtc(env(), own, nullptr);
  EXPECT_EQ(found.library, at("home/lib/libnvrtc.so.13"));
  EXPECT_EQ(found.cuobjdump, scratch() / "home/bin/cuobjdump");
  set_env("CUDA_HOME", (scratch() / "empty").string());
  EXPECT_EQ(find_nvrtc(env(), own, nullptr).library, at("home/lib/libnvrtc.so.13"));
}

TEST_F(NvrtcLocationTest, NamesEachRejectedCandidate) {
  const Toolkit toolkit{.nvcc = scratch() / "cuda/bin/nvcc"};
  try {
    const auto found = find_nvrtc(env(), config(), &toolkit);
    GTEST_SKIP() << "the loader has " << found.library;
  } catch (const exception::Exception& error) {
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("nvcc's toolkit: no libnvrtc.so.* in " + scratch().string()),
                      HasSubstr("wheels of `/no/such/python`: the interpreter is not"),
                      HasSubstr("the loader's path: libnvrtc.so.13: cannot open"),
                      HasSubstr("JIT_NVRTC_LIBRARY")));
  }
}

TEST_F(NvrtcLocationTest, IncludeFolders) {
  write("site/cu13/lib/libnvrtc.so.13", "");
  make_dirs(scratch() / "site/cu13/include/cccl");
  const auto wheel = find_nvrtc(env(), config(add_python()), nullptr);
  EXPECT_THAT(wheel.include_dirs,
              ElementsAre(at("site/cu13/include"), at("site/cu13/include/cccl")));

  // A library without headers beside it takes the toolkit's.
  make_dirs(scratch() / "cuda/include");
  set_env("TESTLIB_JIT_NVRTC_LIBRARY", write("alone/lib/libnvrtc.so.13", "").string());
  const Toolkit toolkit{.nvcc = scratch() / "cuda/bin/nvcc", .include_dirs = {"/more"}};
  EXPECT_THAT(find_nvrtc(env(), config(), &toolkit).include_dirs,
              ElementsAre(scratch() / "cuda/include", "/more"));

  // The wheels of CUDA 12 have a folder each.
  set_env("TESTLIB_JIT_NVRTC_LIBRARY", "");
  std::filesystem::remove_all(scratch() / "site/cu13");
  write("site/cuda_nvrtc/lib/libnvrtc.so.12", "");
  make_dirs(scratch() / "site/cuda_runtime/include");
  EXPECT_THAT(find_nvrtc(env(), config(add_python()), nullptr).include_dirs,
              ElementsAre(scratch() / "site/cuda_runtime/include"));
}

TEST_F(NvrtcLocationTest, IdentityIsTheContent) {
  const auto identify = [&](const std::string& root) {
    return NvrtcLocation{.library = scratch() / root / "libnvrtc.so.13", .include_dirs = {}}
        .identity();
  };
  for (const char* root : {"a", "b"}) {
    write(std::string(root) + "/libnvrtc.so.13", "nvrtc");
    write(std::string(root) + "/libnvrtc-builtins.so.13.0", "builtins");
  }
  EXPECT_EQ(identify("a").version, "nvrtc libnvrtc.so.13");
  EXPECT_EQ(identify("a").content, identify("b").content) << "wherever it is installed";
  for (const char* part : {"b/libnvrtc.so.13", "b/libnvrtc-builtins.so.13.0"}) {
    const Digest before = identify("b").content;
    write(part, "replaced");
    EXPECT_NE(identify("b").content, before) << part;
  }
}

}  // namespace
}  // namespace deep_jit::cuda
