// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/wheel_folders.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/identity_memo.hpp"
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

// The shell stands for the interpreter: a program, and no script, that calls `import` when it is
// told to `import nvidia`.
TEST_F(WheelFoldersTest, TheMemoAnswersUntilAFolderChanges) {
  make_dirs(cache_root());
  const IdentityMemo memo(cache_root());
  const IdentityMemoScope scope(memo);
  const auto asked = scratch() / "asked";
  const auto folder = scratch() / "nvidia";
  make_dirs(folder);
  const auto python = scratch() / "python";
  std::filesystem::copy_file(std::filesystem::canonical(*find_executable("sh")), python);
  const std::string body =
      "echo x >> '" + asked.string() + "'\necho 'deep_jit " + folder.string() + "'\n";
  write_script("bin/import", body);
  set_env("PATH", (scratch() / "bin").string() + ":" + get_env<std::string>("PATH"));
  const auto find = [&](const std::filesystem::path& interpreter) {
    for (const auto& path : {interpreter, folder}) {
      while (!FileIdentity::of(path)->is_settled()) {
      }
    }
    std::string why;
    const auto folders = find_wheel_folders(interpreter.string(), why);
    memo.flush();
    return folders;
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(find(python), ElementsAre(folder));
  EXPECT_EQ(count_lines(asked), 1u);
  make_dirs(folder / "cu13");
  for (int i = 0; i < 2; ++i) EXPECT_THAT(find(python), ElementsAre(folder));
  EXPECT_EQ(count_lines(asked), 2u);
  set_env("VIRTUAL_ENV", "/another");
  find(python);
  EXPECT_EQ(count_lines(asked), 3u);

  const auto script = write_script("script", body);
  find(script);
  find(script);
  EXPECT_EQ(count_lines(asked), 5u) << "who knows whom it starts";
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
