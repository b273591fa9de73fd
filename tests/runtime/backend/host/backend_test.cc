// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/backend.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
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
  const auto identity = runtime->backend.get_compiler_info().identity;
  Key expected;
  expected.add("key format", "2")
      .add("backend", "host")
      .add("extra signature", "")
      .add("dependencies", "tracked")
      .add("compiler version", identity.version)
      .add("compiler content", identity.content.hex());
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
  } catch (const exception::CompileError& error) {
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
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("Running command: "), HasSubstr(" -g -std=c++23 ")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("Running command: "), HasSubstr(" -S ")));
  EXPECT_THAT(lines[2], HasSubstr("Load time ("));
}

// --- Options that change the life of a kernel ---

TEST_F(HostBackendTest, AssemblyIsForAMissOnlyAndNotInTheKey) {
  count_compilations();
  auto runtime = make_runtime();
  auto with_assembly = value(2);
  with_assembly.dump_asm = true;
  const auto directory = runtime->compile_without_load("add", kAdd, value(2));
  EXPECT_EQ(runtime->compile_without_load("add", kAdd, with_assembly), directory);
  EXPECT_EQ(compilations(), 1u);
  EXPECT_FALSE(std::filesystem::exists(directory / "kernel.s"));
  const auto metadata = [](const std::filesystem::path& directory) {
    return nlohmann::ordered_json::parse(read(directory / "meta.json"))["compiler_options"];
  };
  EXPECT_EQ(metadata(directory)["dump_asm"], false);
  with_assembly.extra_cxx_flags.push_back("-DOTHER");
  const auto other = runtime->compile_without_load("add", kAdd, with_assembly);
  EXPECT_TRUE(std::filesystem::exists(other / "kernel.s"));
  EXPECT_EQ(metadata(other)["dump_asm"], true);
  EXPECT_EQ(run(*make_runtime(), make_runtime()->compile("add", kAdd, with_assembly)), 3);
}

TEST_F(HostBackendTest, DebugInformationIsThereWhenAsked) {
  auto runtime = make_runtime();
  auto options = value(2);
  const auto plain = runtime->compile_without_load("add", kAdd, options);
  options.debug_info = true;
  const auto debug = runtime->compile_without_load("add", kAdd, options);
  EXPECT_NE(plain, debug);
  EXPECT_EQ(read(plain / "kernel.so").find(".debug_info"), std::string::npos);
  EXPECT_NE(read(debug / "kernel.so").find(".debug_info"), std::string::npos);
}

// A real interpreter, and a change that a library survives: the ELF header's flags.
TEST_F(HostBackendTest, APostHookMayChangeTheLibrary) {
  write("hooks/mark.py",
        "import sys\n"
        "with open(sys.argv[1], 'r+b') as library:\n"
        "    library.seek(48)\n"
        "    library.write(b'D')\n");
  write("hooks/ruin.py", "import sys\nopen(sys.argv[1], 'wb').write(b'no library')\n");
  auto runtime = make_runtime();
  auto options = value(2);
  const auto plain = runtime->compile_without_load("add", kAdd, options);
  options.post_hook = "hooks/mark.py";
  const auto marked = runtime->compile_without_load("add", kAdd, options);
  EXPECT_EQ(read(marked / "kernel.so")[48], 'D');
  EXPECT_EQ(read(plain / "kernel.so")[48], '\0');
  EXPECT_EQ(std::filesystem::file_size(marked / "kernel.so"),
            std::filesystem::file_size(plain / "kernel.so"));
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, options)), 3);
  options.post_hook = "hooks/ruin.py";
  DJ_EXPECT_ERROR(exception::CacheError, runtime->compile("add", kAdd, options),
                  HasSubstr("kernel.so"));
}

// The table of field-reports 2.5 and 2.7, with a real compiler.
TEST_F(HostBackendTest, VerifiedDependenciesSeeEveryWayToAHeader) {
  count_compilations();
  Config verified = config();
  verified.include_dirs = {scratch() / "first", scratch() / "include"};
  verified.dependency_mode = DependencyMode::kVerified;
  const std::string source =
      "#define MACRO <lib/by_macro.hpp>\n#include <lib/outer.hpp>\n#include MACRO\n"
      "#include \"quoted.h\"\n#include <untracked/u.hpp>\n#if 0\n#include <lib/dead.hpp>\n#endif\n"
      "__global__ void add(int* out, int n) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < n) out[i] += INNER + 10 * BY_MACRO + 100 * QUOTED + 1000 * UNTRACKED;\n}\n";
  write("include/lib/outer.hpp", "#include \"inner.hpp\"\n");
  write("include/lib/inner.hpp", "#define INNER 1\n");
  write("include/lib/by_macro.hpp", "#define BY_MACRO 1\n");
  write("include/lib/dead.hpp", "#define DEAD 1\n");
  write("include/untracked/u.hpp", "#define UNTRACKED 1\n");
  write("more/quoted.h", "#define QUOTED 1\n");
  const host::CompilerOptions options{.optimize_level = "0",
                                      .extra_cxx_flags = {"-I" + (scratch() / "more").string()}};
  std::filesystem::create_directories(scratch() / "first");
  std::size_t expected_runs = 0;
  const auto expect = [&](int result, bool is_compiled, const char* why) {
    Runtime<Host> runtime(verified);
    EXPECT_EQ(run(runtime, runtime.compile("add", source, options)), 1 + result) << why;
    expected_runs += is_compiled ? 2 : 0;  // The preprocessor and the compiler.
    EXPECT_EQ(compilations(), expected_runs) << why;
  };
  expect(1111, true, "first");
  expect(1111, false, "nothing changed");
  write("include/lib/inner.hpp", "#define INNER 2\n");
  expect(1112, true, "two levels down");
  write("include/lib/by_macro.hpp", "#define BY_MACRO 2\n");
  expect(1122, true, "by a macro");
  write("more/quoted.h", "#define QUOTED 2\n");
  expect(1222, true, "quoted, in a directory given by a flag");
  write("include/untracked/u.hpp", "#define UNTRACKED 2\n");
  expect(2222, true, "under no prefix");
  write("include/lib/dead.hpp", "#error never read\n");
  expect(2222, false, "under #if 0");
  write("include/lib/inner.hpp", "#define INNER 3\n");
  std::filesystem::last_write_time(scratch() / "include/lib/inner.hpp",
                                   std::filesystem::file_time_type());
  expect(2223, true, "the same size and an old time");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch() / "include")) {
    std::filesystem::last_write_time(
        entry.path(), std::filesystem::file_time_type::clock::now() + std::chrono::hours(24));
  }
  expect(2223, false, "touched");
  write("first/lib/inner.hpp", "#define INNER 9\n");
  expect(2223, true, "a header that a search would find first is looked into");
  write("first/lib/by_macro.hpp", "#define BY_MACRO 9\n");
  expect(2293, true, "a header that hides another one");
  std::swap(verified.include_dirs[0], verified.include_dirs[1]);
  expect(2223, true, "the order of directories");
  EXPECT_EQ(published().size(), 1u);
  EXPECT_THAT(unfinished(), IsEmpty());
}

TEST_F(HostBackendTest, ACompilerReplacedUnderALiveRuntimeMakesANewKey) {
  fake_compiler("exec " + real_compiler() + " \"$@\"");
  auto runtime = make_runtime();
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(2))), 3);
  fake_compiler("exec " + real_compiler() + " -DPATCHED \"$@\"");
  const std::string source =
      "#ifdef PATCHED\n#undef VALUE\n#define VALUE 50\n#endif\n" + std::string(kAdd);
  EXPECT_EQ(run(*runtime, runtime->compile("add", source, value(2))), 51);
  EXPECT_EQ(run(*runtime, runtime->compile("add", kAdd, value(2))), 3) << "in memory";
  runtime->compile_without_load("add", kAdd, value(2));
  EXPECT_EQ(published().size(), 3u) << "old and new compiler do not share an entry";
}

// --- Sanitizers ---

constexpr const char* kOverflow = R"(
__global__ void write_at(int* out, int at) {
  extern __shared__ int smem[];
  smem[at] = 1;
  __syncthreads();
  out[at] = smem[at];
}
)";

#if defined(__SANITIZE_ADDRESS__)
TEST_F(HostBackendTest, AddressSanitizerLooksIntoAKernel) {
  auto runtime = make_runtime();
  auto kernel = runtime->compile("write_at", kOverflow, {.sanitize = "address"});
  std::vector<int> out(4);
  const auto launch = [&](int at, int num_smem_bytes) {
    runtime->launch(kernel,
                    {.num_smem_bytes = num_smem_bytes,
                     .grid_dim = Dim3{1},
                     .block_dim = Dim3{2},
                     .num_threads = 1},
                    out.data(), at);
  };
  launch(3, 16);
  EXPECT_EQ(out[3], 1);
  EXPECT_DEATH(launch(4, 64), "heap-buffer-overflow");
  EXPECT_DEATH(launch(3, 8), "use-after-poison");
}
#elif !defined(__SANITIZE_THREAD__)
TEST_F(HostBackendTest, ASanitizerThatIsNotInTheProcessIsRefused) {
  // Builds what it should, but for the flag, which not every compiler has the libraries for.
  fake_compiler(
      "for a; do case $a in -fsanitize=*) ;; *) set -- \"$@\" \"$a\";; esac; shift; done; exec " +
      real_compiler() + " \"$@\"");
  for (const std::string name : {"address", "thread"}) {
    auto runtime = make_runtime();
    DJ_EXPECT_ERROR(exception::Exception,
                    runtime->compile("write_at", kOverflow, {.sanitize = name}),
                    AllOf(HasSubstr("-fsanitize=" + name), HasSubstr("LD_PRELOAD"),
                          HasSubstr("without `sanitize`")));
  }
  EXPECT_EQ(published().size(), 2u) << "compiled once, and of use to a process that has it";
}
#endif

TEST_F(HostBackendTest, TranslationUnitsShareOnePool) {
  EXPECT_EQ(testing::address_of_pool(), &host::ThreadPool::shared());
  EXPECT_EQ(testing::address_of_prelude(), &host::get_prelude());
}

}  // namespace
}  // namespace deep_jit
