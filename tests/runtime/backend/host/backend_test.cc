// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/backend.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/interrupt.hpp"
#include "tests/runtime/backend/host/host_test.hpp"

namespace deep_jit {

namespace testing {
const void* address_of_pool();  // In backend_second_unit.cc.
const void* address_of_prelude();
}  // namespace testing

namespace {

using host::Dim3;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kAdd = R"(
__global__ void add(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] += VALUE;
}
)";

class HostBackendTest : public testing::HostTest {
 protected:
  static int run(Runtime<Host>& runtime, const std::shared_ptr<host::Kernel>& kernel) {
    std::vector<int> out(1000, 1);
    runtime.launch(kernel, {.grid_dim = Dim3{4}, .block_dim = Dim3{256}}, out.data(), 1000);
    return std::set<int>(out.begin(), out.end()).size() == 1 ? out[0] : -1;
  }
  static host::CompilerOptions value(int value) {
    return {.optimize_level = "0", .extra_cxx_flags = {"-DVALUE=" + std::to_string(value)}};
  }
};

TEST_F(HostBackendTest, LivesThroughMemoryAndDisk) {
  count_compilations();
  auto runtime = make_runtime();
  auto kernel = runtime->compile("add", kAdd, value(2));
  EXPECT_EQ(run(*runtime, kernel), 3);
  EXPECT_EQ(runtime->compile("add", kAdd, value(2)), kernel);
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(5))), 6);
  EXPECT_EQ(compilations(), 2u);

  auto second = make_runtime();
  EXPECT_EQ(run(*second, second->compile("add", kAdd, value(2))), 3);
  EXPECT_EQ(compilations(), 2u);
  EXPECT_THAT(unfinished(), IsEmpty());
  ASSERT_EQ(published().size(), 2u);
  EXPECT_THAT(
      list(cache_root() / "cache" / published()[0]),
      ElementsAre(".committed", "kernel.cc", "kernel.so", "kernel_prelude.hpp", "meta.json"));
}

TEST_F(HostBackendTest, KeyNamesAllThatTheBinaryDependsOn) {
  auto runtime = make_runtime();
  const auto options = runtime->default_compiler_options.override_with(value(2));
  const auto& identity = runtime->backend.get_compiler_info().identity;
  Key expected;
  expected.add("key format", "1")
      .add("backend", "host")
      .add("compiler version", identity.version)
      .add("compiler content", identity.content.hex())
      .add("extra signature", "");
  for (const auto& flag : options.get_flags()) expected.add("flag", flag);
  runtime->backend.add_to_key(expected);
  expected.add("source", kAdd).add("tracked headers", Hasher().digest().hex());
  EXPECT_EQ(runtime->cache_key(kAdd, options), expected.digest().hex());
  EXPECT_EQ(runtime->compile_without_load("add", kAdd, value(2)).filename(),
            "add." + expected.digest().hex());
}

TEST_F(HostBackendTest, KeyIsTheSameForACompilerInAnotherPlace) {
  fake_compiler("");
  const std::string here = make_runtime()->cache_key(kAdd, value(1));
  std::filesystem::create_directories(scratch() / "other place");
  std::filesystem::copy(scratch() / "fake_compiler", scratch() / "other place/cxx");
  set_env("TESTLIB_JIT_CXX_COMPILER", (scratch() / "other place/cxx").string());
  set_env("LC_ALL", "xx_XX");
  EXPECT_EQ(make_runtime()->cache_key(kAdd, value(1)), here);
  fake_compiler("# another content");
  EXPECT_NE(make_runtime()->cache_key(kAdd, value(1)), here);
}

TEST_F(HostBackendTest, SixteenThreadsRunTheCompilerOnce) {
  count_compilations();
  auto runtime = make_runtime();
  constexpr int kThreads = 16;
  std::barrier start(kThreads);
  std::vector<int> results(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int& result : results) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        result = run(*runtime, runtime->compile("add", kAdd, value(3)));
      });
    }
  }
  EXPECT_THAT(results, ::testing::Each(4));
  EXPECT_EQ(compilations(), 1u);
}

TEST_F(HostBackendTest, TwoProcessesRunTheCompilerOncePerKey) {
  count_compilations();
  int start[2];
  ASSERT_EQ(::pipe(start), 0);
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool good = false;
      try {
        ::close(start[1]);
        auto runtime = make_runtime();
        char byte;
        (void)!::read(start[0], &byte, 1);  // Returns when the parent closes its end.
        good = run(*runtime, runtime->compile("add", kAdd, value(3))) == 4 &&
               run(*runtime, runtime->compile("add", kAdd, value(4))) == 5;
      } catch (...) {
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  ::close(start[0]);
  ::close(start[1]);
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(compilations(), 2u);
  EXPECT_EQ(published().size(), 2u);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostBackendTest, TrackedHeadersMoveFreelyAndCountByContent) {
  count_compilations();
  const std::string source = "#include <lib/value.hpp>\n" + std::string(kAdd);
  write("include/lib/value.hpp", "#define VALUE 2\n");
  auto runtime = make_runtime();
  EXPECT_EQ(run(*runtime, runtime->compile("add", source)), 3);

  write("moved/lib/value.hpp", "#define VALUE 2\n");
  Runtime<Host> moved(Config(scratch(), "TESTLIB", "", {scratch() / "moved"}, {"lib/"}));
  EXPECT_EQ(run(moved, moved.compile("add", source)), 3);
  EXPECT_EQ(compilations(), 1u);

  write("include/lib/value.hpp", "#define VALUE 8\n");
  EXPECT_EQ(run(*runtime, runtime->compile("add", source)), 3) << "a live runtime keeps its kernel";
  auto fresh = make_runtime();
  EXPECT_EQ(run(*fresh, fresh->compile("add", source)), 9);
  EXPECT_EQ(compilations(), 2u);
}

TEST_F(HostBackendTest, ADirectoryGivenByAFlagDoesNotHideATrackedHeader) {
  write("include/lib/value.hpp", "#define VALUE 2\n");
  write("other/lib/value.hpp", "#define VALUE 50\n");
  auto runtime = make_runtime();
  EXPECT_EQ(
      run(*runtime, runtime->compile("add", "#include <lib/value.hpp>\n" + std::string(kAdd),
                                     {.extra_cxx_flags = {"-I" + (scratch() / "other").string()}})),
      3);
}

TEST_F(HostBackendTest, ADamagedLibraryIsHealed) {
  count_compilations();
  const auto library = make_runtime()->compile_without_load("add", kAdd, value(2)) / "kernel.so";
  const std::string good = read(library);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  std::size_t expected = 1;
  for (const std::string& damage : {flipped, good.substr(0, good.size() / 2), std::string()}) {
    write_file_sync(library, damage);
    auto runtime = make_runtime();
    EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(2))), 3);
    EXPECT_EQ(compilations(), ++expected);
    EXPECT_EQ(std::filesystem::file_size(library), good.size());
  }
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostBackendTest, AnEntryThatDoesNotLoadHereIsRebuilt) {
  // One compiler, by its identity, that does what it should only once `works` is there.
  fake_compiler("if [ -e '" + (scratch() / "works").string() + "' ]; then exec " + real_compiler() +
                " \"$@\"; fi; echo not a library > kernel.so");
  DJ_EXPECT_ERROR(exception::CacheError, make_runtime()->compile("add", kAdd, value(2)),
                  HasSubstr("kernel.so"));
  EXPECT_EQ(published().size(), 1u) << "the entry is whole, only useless";
  write("works", "");
  auto runtime = make_runtime();
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(2))), 3);
}

TEST_F(HostBackendTest, AFailureLeavesNothingAndCanBeRepeated) {
  auto runtime = make_runtime();
  try {
    runtime->compile("add", "__global__ void add( {}", value(1));
    FAIL() << "expected an error";
  } catch (const host::KernelCompileError& error) {
    EXPECT_THAT(error.log, HasSubstr("kernel.cc:1"));
    EXPECT_EQ(error.source, "__global__ void add( {}");
  }
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(1))), 2);
}

TEST_F(HostBackendTest, AnInterruptedCompileLeavesNothing) {
  const auto started = scratch() / "started";
  fake_compiler("touch '" + started.string() + "'; sleep 600");
  auto runtime = make_runtime();
  {
    const InterruptScope scope([&] { return std::filesystem::exists(started); });
    EXPECT_THROW(runtime->compile("add", kAdd, value(1)), exception::Interrupted);
  }
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostBackendTest, KernelCountIsCheckedOnLoadOnly) {
  count_compilations();
  auto runtime = make_runtime();
  const std::string two = "__global__ void first() {}\n__global__ void second() {}\n";
  EXPECT_NO_THROW(runtime->compile_without_load("two", two));
  DJ_EXPECT_ERROR(exception::Exception, runtime->compile("two", two),
                  AllOf(HasSubstr("expected exactly one kernel"), HasSubstr("first, second")));
  EXPECT_EQ(compilations(), 1u) << "compiling it again would not help";
}

TEST_F(HostBackendTest, WorksOnAfterFork) {
  auto runtime = make_runtime();
  auto kernel = runtime->compile("add", kAdd, value(2));
  ASSERT_EQ(run(*runtime, kernel), 3);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    bool good = false;
    try {
      good =
          run(*runtime, kernel) == 3 && run(*runtime, runtime->compile("add", kAdd, value(7))) == 8;
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST_F(HostBackendTest, OldUnloadedKernelsComeBackFromDisk) {
  count_compilations();
  auto runtime = make_runtime();
  runtime->compile("add", kAdd, value(2))->unload();
  auto fresh = make_runtime();
  EXPECT_EQ(run(*fresh, fresh->compile("add", kAdd, value(2))), 3);
  EXPECT_EQ(compilations(), 1u);
}

TEST_F(HostBackendTest, DebugSwitchesReachTheCompiler) {
  set_env("TESTLIB_JIT_CPP_STANDARD", "23");
  set_env("DJ_JIT_DEBUG", "1");
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  make_runtime()->compile("add", kAdd, value(2));
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("Running command: "), HasSubstr(" -g -std=c++23 ")));
  EXPECT_THAT(lines[1], HasSubstr("Load time ("));
}

TEST_F(HostBackendTest, TranslationUnitsShareOnePool) {
  EXPECT_EQ(testing::address_of_pool(), &host::ThreadPool::shared());
  EXPECT_EQ(testing::address_of_prelude(), &host::get_prelude());
}

}  // namespace
}  // namespace deep_jit
