// SPDX-License-Identifier: MIT
//
// Kernels on disk and their way to a real GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cuda/gpu/gpu_test.hpp"

namespace deep_jit::testing {
namespace {

class CacheTest : public GpuTest {
 protected:
  // A runtime over a cache of this test's own.
  Config own(const std::string& name) const {
    return Config(scratch(), "GPUTEST", "", {}, {}, "", {scratch() / name});
  }

  void hook(const std::string& text) const { write_file_sync(scratch() / "hook.py", text); }
};

TEST_F(CacheTest, AnotherRuntimeHitsAndADamagedEntryIsHealed) {
  Runtime<CUDA> first(own("damage"));
  const auto entry = first.compile_without_load("scale", kScale);
  const auto cubin = read(entry / "kernel.cubin");
  Runtime<CUDA> second(own("damage"));
  launch_scale(second.compile("scale", kScale));
  EXPECT_EQ(second.disk_cache.counters().published.load(), 0u);
  write_file_sync(entry / "kernel.cubin", "damaged");
  Runtime<CUDA> third(own("damage"));
  launch_scale(third.compile("scale", kScale));
  EXPECT_EQ(third.disk_cache.counters().healed.load(), 1u);
  EXPECT_EQ(read(entry / "kernel.cubin"), cubin);
}

TEST_F(CacheTest, EightProcessesCompileOnceAndLaunchRight) {
  std::vector<pid_t> children;
  // Of programs that have not touched CUDA yet: this file's tests run in their parent too.
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
      ::setenv("GPUTEST_SHARED_CACHE", (scratch() / "shared").c_str(), 1);
      ::execl(self.c_str(), self.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1",
              "--gtest_filter=CacheTest.DISABLED_OneOfEight", nullptr);
      ::_exit(127);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch() / "shared/cache")) {
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "kernel.cubin"));
    ++entries;
  }
  EXPECT_EQ(entries, 1u);
  EXPECT_TRUE(std::filesystem::is_empty(scratch() / "shared/tmp"));
}

// The child of the test above.
TEST_F(CacheTest, DISABLED_OneOfEight) {
  Runtime<CUDA> runtime(
      Config(scratch(), "GPUTEST", "", {}, {}, "", {::getenv("GPUTEST_SHARED_CACHE")}));
  launch_scale(runtime.compile("scale", kScale));
}

TEST_F(CacheTest, AHookMayChangeTheCubin) {
  // A byte of the ELF header that no loader reads: padding of e_ident.
  hook("import sys\nwith open(sys.argv[1], 'r+b') as f: f.seek(12); f.write(b'\\x7e')\n");
  Runtime<CUDA> runtime(own("hooked"));
  launch_scale(runtime.compile("scale", kScale, {.post_hook = "hook.py"}));
  const auto entry = runtime.compile_without_load("scale", kScale, {.post_hook = "hook.py"});
  EXPECT_EQ(read(entry / "kernel.cubin")[12], '\x7e');
}

TEST_F(CacheTest, ACubinThatAHookHasRuinedIsNotRemembered) {
  hook("import sys\nwith open(sys.argv[1], 'r+b') as f: f.write(b'ruined')\n");
  Runtime<CUDA> runtime(own("ruined"));
  EXPECT_ANY_THROW(runtime.compile("scale", kScale, {.post_hook = "hook.py"}));
  EXPECT_ANY_THROW(runtime.compile("scale", kScale, {.post_hook = "hook.py"}));
  launch_scale(runtime.compile("scale", kScale));
}

}  // namespace
}  // namespace deep_jit::testing
