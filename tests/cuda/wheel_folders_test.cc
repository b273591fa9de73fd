// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/wheel_folders.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.hpp"

namespace deep_jit::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WheelFoldersTest : public testing::CudaTest {};

TEST_F(WheelFoldersTest, TakesOnlyTheMarkedLines) {
  const auto python = write_script(
      "python", "echo a banner 1.2\necho 'deep_jit /a b'\necho 'deep_jit /c'\necho /d\n");
  std::string why;
  EXPECT_THAT(find_wheel_folders(python.string(), why), ElementsAre("/a b", "/c"));
}

TEST_F(WheelFoldersTest, SaysWhyThereAreNone) {
  std::string why;
  EXPECT_THAT(find_wheel_folders("/no/such/python", why), IsEmpty());
  EXPECT_EQ(why, "the interpreter is not an executable file");
  const auto python = write_script("python", "echo no nvidia; exit 1\n").string();
  EXPECT_THAT(find_wheel_folders(python, why), IsEmpty());
  EXPECT_EQ(why, "it has no package `nvidia`");
  write_script("python", "echo 'deep_jit /now'\n");
  EXPECT_THAT(find_wheel_folders(python, why), ElementsAre("/now")) << "installed meanwhile";
}

TEST_F(WheelFoldersTest, NewestToolkitFirst) {
  for (const char* name : {"cu9", "cu14", "cu13", "cuxx", "cuda_nvcc", "cu"}) {
    make_dirs(scratch() / "nvidia" / name);
  }
  const auto folder = scratch() / "nvidia";
  EXPECT_THAT(list_wheel_toolkits(folder),
              ElementsAre(folder / "cu14", folder / "cu13", folder / "cu9"));
  EXPECT_THAT(list_wheel_toolkits("/no/such/folder"), IsEmpty());
}

TEST_F(WheelFoldersTest, Pythons) {
  EXPECT_THAT(list_pythons(config("/own/python")), ElementsAre("/own/python"));
  EXPECT_THAT(list_pythons(config("")), ElementsAre("python3", "python"));
}

}  // namespace
}  // namespace deep_jit::cuda
