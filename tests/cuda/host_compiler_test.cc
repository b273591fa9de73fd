// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/host_compiler.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::ElementsAre;

class HostCompilerTest : public testing::CudaTest {
 protected:
  HostCompilerTest() { unset_env("CXX"); }

  std::string add(const std::string& name, const std::string& version = "1.2.3") const {
    return write_script(name, "echo g++ " + version + "\n").string();
  }
  static std::string key() {
    Key key;
    find_host_compiler()->add_to_key(key);
    return key.digest().hex();
  }
};

TEST_F(HostCompilerTest, FirstVariableThatIsSet) {
  EXPECT_FALSE(find_host_compiler().has_value());
  set_env("CXX", add("cxx"));
  EXPECT_EQ(find_host_compiler()->program, (scratch() / "cxx").string());
  set_env("NVCC_CCBIN", add("ccbin"));
  EXPECT_EQ(find_host_compiler()->program, (scratch() / "ccbin").string());
  set_env("CUDAHOSTCXX", add("host"));
  EXPECT_EQ(find_host_compiler()->program, (scratch() / "host").string());
  EXPECT_EQ(find_host_compiler()->origin, "CUDAHOSTCXX");
  set_env("CUDAHOSTCXX", "");
  EXPECT_EQ(find_host_compiler()->origin, "NVCC_CCBIN");
}

TEST_F(HostCompilerTest, LaunchersAreLeftOutArgumentsKept) {
  set_env("PATH", scratch().string());
  const std::string program = add("g++");
  set_env("CXX", " ccache g++\t-m64 ");
  const auto found = find_host_compiler();
  EXPECT_EQ(found->program, program);
  EXPECT_THAT(found->arguments, ElementsAre("-m64"));
  set_env("CXX", "/opt/bin/sccache distcc g++");
  EXPECT_EQ(find_host_compiler()->program, program);
  const std::string blank = add("my compilers/g++");
  set_env("CXX", blank);
  EXPECT_EQ(find_host_compiler()->program, blank);
  EXPECT_THAT(find_host_compiler()->arguments, ElementsAre());
  set_env("CXX", "/x/g++-12");
  EXPECT_EQ(find_host_compiler()->program, "/x/g++-12") << "nvcc says what is wrong with it";
}

TEST_F(HostCompilerTest, KeyIsWhatItIsAndNotWhere) {
  set_env("CXX", add("a/g++"));
  const std::string first = key();
  set_env("CXX", add("b/g++"));
  EXPECT_EQ(key(), first);
  add("b/g++", "1.2.4");
  EXPECT_NE(key(), first);
  set_env("CXX", add("a/g++") + " -m64");
  EXPECT_NE(key(), first);
  set_env("CXX", "/x/g++-12");
  const std::string unknown = key();
  set_env("CXX", "/x/g++-13");
  EXPECT_NE(key(), unknown);
}

}  // namespace
}  // namespace deep_jit::cuda
