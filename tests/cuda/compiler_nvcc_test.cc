// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/compiler_nvcc.hpp"

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
using ::testing::IsSupersetOf;
using ::testing::Not;

// With nvcc and cuobjdump that are scripts, and without a driver.
class CompilerNvccTest : public testing::CudaTest {
 protected:
  CompilerNvccTest() {
    unset_env("CXX");
    make_dirs(directory());
    use_toolkit();
  }

  std::filesystem::path directory() const { return scratch() / "build"; }
  static CompilerOptions options(const CompilerOptions& overrides = {}) {
    return CompilerOptions{.optimize_level = "3", .ptxas_register_usage_level = 10, .arch = "90a"}
        .override_with(overrides);
  }
  NvccCompiler compiler() const { return NvccCompiler(find_toolkit(env(), config())); }
  std::vector<std::string> compile(const CompilerOptions& overrides = {},
                                   const std::string& source = kSource) const {
    return compiler().compile(source, directory(), env(), config(), options(overrides));
  }
  std::string key() const {
    Key key;
    compiler().add_to_key(key);
    return key.digest().hex();
  }

  static constexpr char kSource[] = "__global__ void scale() {}";
};

TEST_F(CompilerNvccTest, Command) {
  const auto command = compile({.extra_nvcc_flags = {"-DLAST"}});
  const std::string nvcc = std::filesystem::canonical(scratch() / "toolkit/bin/nvcc");
  EXPECT_THAT(command, ElementsAre(nvcc, "kernel.cu", "--cubin", "--output-file", "kernel.cubin",
                                   "--include-path", (scratch() / "include").string(),
                                   "--gpu-architecture=sm_90a", "-O3", "--compiler-options=-O3",
                                   "--ptxas-options=--register-usage-level=10", "-DLAST"));
  EXPECT_EQ(read(directory() / "kernel.cu"), kSource);
  EXPECT_THAT(list(directory()), ElementsAre("kernel.cu", "kernel.cubin"));
}

TEST_F(CompilerNvccTest, HostCompilerIsForwardedAndKeyed) {
  const std::string without = key();
  const auto host = write_script("g++-12", "echo g++ 12.1\n");
  set_env("CXX", "ccache " + host.string() + " -m64");
  const auto command = compile();
  EXPECT_THAT(command, IsSupersetOf({"-ccbin", host.c_str(), "--compiler-options=-m64"}));
  EXPECT_NE(key(), without);
  EXPECT_THAT(compile({.extra_nvcc_flags = {"-ccbin=/other"}}), Not(IsSupersetOf({"-ccbin"})))
      << "nvcc takes one only";
}

TEST_F(CompilerNvccTest, EnvironmentThatNvccReadsIsKeyed) {
  const std::string before = key();
  for (const char* name : {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH"}) {
    set_env(name, "-DX");
    EXPECT_NE(key(), before) << name;
    unset_env(name);
  }
  EXPECT_EQ(key(), before);
}

TEST_F(CompilerNvccTest, FailuresOfNvcc) {
  struct Case {
    const char* body;
    const char* text;
  };
  const Case cases[] = {
      {"echo x > \"$out\"; echo 'bad token'; exit 37", "command failed with exit code 37"},
      {"echo 'bad token'", "NVCC did not produce a valid CUBIN: it wrote no kernel.cubin"},
      {"echo 'bad token'; : > \"$out\"",
       "NVCC did not produce a valid CUBIN: kernel.cubin is empty"},
      {"echo 'bad token'; kill -TERM $$", "exit code 143"},
      {"printf 'bad token \\377\\000 more'; exit 1", "exit code 1"},
  };
  for (const auto& [body, text] : cases) {
    use_toolkit(body);
    try {
      compile();
      ADD_FAILURE() << body;
    } catch (const exception::CompileError& error) {
      EXPECT_THAT(error.message, AllOf(HasSubstr(text), HasSubstr("bad token"),
                                       HasSubstr("--gpu-architecture=sm_90a")));
      EXPECT_THAT(error.log, HasSubstr("bad token"));
      EXPECT_EQ(error.source_path, "kernel.cu");
      EXPECT_EQ(error.source, kSource);
      EXPECT_THAT(error.options, HasSubstr("\"arch\": \"90a\""));
      EXPECT_EQ(error.command.at(1), "kernel.cu");
    }
    std::filesystem::remove(directory() / "kernel.cubin");
  }
}

TEST_F(CompilerNvccTest, EachCheckReactsToItsOwnWording) {
  struct Case {
    const char* line;
    bool is_spill;
    bool is_local;
  };
  const Case cases[] = {
      {"ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes", true,
       false},
      {"REGISTERS ARE Spilled   to\n\tLOCAL  Memory", true, false},
      {"ptxas warning : Local memory used for function 'k'", false, true},
      {"LOCAL\t memory \n used", false, true},
      {"ptxas info : 0 bytes spill stores, 0 bytes spill loads", false, false},
  };
  for (const auto& [line, is_spill, is_local] : cases) {
    write("said", line);
    use_toolkit("cat '" + (scratch() / "said").string() + "'\n" + kWriteOutput);
    EXPECT_NO_THROW(compile());
    const auto spills = [&] { compile({.check_no_spills = true}); };
    const auto local = [&] { compile({.check_no_local_memory = true}); };
    if (is_spill) {
      DJ_EXPECT_ERROR(exception::CompileError, spills(), HasSubstr("register spills"));
    } else {
      EXPECT_NO_THROW(spills()) << line;
    }
    if (is_local) {
      DJ_EXPECT_ERROR(exception::CompileError, local(), HasSubstr("local memory usage"));
    } else {
      EXPECT_NO_THROW(local()) << line;
    }
  }
}

TEST_F(CompilerNvccTest, Dumps) {
  write_script("toolkit/bin/cuobjdump", "echo \"sass of $*\"\n");
  compile({.dump_ptx = true, .dump_sass = true});
  EXPECT_THAT(list(directory()),
              ElementsAre("kernel.cu", "kernel.cubin", "kernel.ptx", "kernel.sass"));
  EXPECT_THAT(read(directory() / "kernel.ptx"),
              AllOf(HasSubstr("--ptx --output-file kernel.ptx"), Not(HasSubstr("--cubin"))));
  EXPECT_EQ(read(directory() / "kernel.sass"), "sass of --dump-sass kernel.cubin\n");
  EXPECT_EQ(compilations(), 2u);
}

TEST_F(CompilerNvccTest, DumpsThatFail) {
  for (const char* body : {"", ": > \"$out\""}) {
    use_toolkit(std::string("case \"$*\" in *--ptx\\ *) ") + body + "\n;; *) " + kWriteOutput +
                ";; esac");
    DJ_EXPECT_ERROR(exception::CompileError, compile({.dump_ptx = true}),
                    HasSubstr("NVCC did not produce a valid PTX"));
    std::filesystem::remove(directory() / "kernel.ptx");
  }
  use_toolkit();
  DJ_EXPECT_ERROR(exception::Exception, compile({.dump_sass = true}),
                  AllOf(HasSubstr("toolkit.cuobjdump.has_value()"), HasSubstr("cuobjdump")));
  for (const char* body : {"true\n", "echo 'no such file'; exit 2\n"}) {
    write_script("toolkit/bin/cuobjdump", body);
    DJ_EXPECT_ERROR(exception::CompileError, compile({.dump_sass = true}),
                    HasSubstr("cuobjdump did not produce valid SASS"));
  }
}

TEST_F(CompilerNvccTest, FamilyArchitectureNeedsANewerNvcc) {
  set_env("DJ_JIT_ALLOW_OLD_NVCC", "1");
  add_nvcc("toolkit/bin/nvcc", kWriteOutput, "12.8, V12.8.61");
  DJ_EXPECT_ERROR(
      exception::Exception, compile({.arch = "100f"}),
      AllOf(HasSubstr("100f"), HasSubstr("12.9"), HasSubstr("12.8, V12.8.61"), HasSubstr("100a")));
  EXPECT_NO_THROW(compile({.arch = "100a"}));
}

TEST_F(CompilerNvccTest, AnArchitectureThatItDoesNotKnow) {
  add_nvcc("toolkit/bin/nvcc",
           "case \"$*\" in *--list-gpu-code*) printf 'sm_90\\nsm_100\\n'; exit 0;; esac\n"
           "echo \"nvcc fatal   : Unsupported gpu architecture 'sm_103a'\"; exit 1");
  DJ_EXPECT_ERROR(exception::CompileError, compile({.arch = "103a"}),
                  AllOf(HasSubstr("exit code 1; NVCC 13.0, V13.0.88 does not know sm_103a"),
                        HasSubstr("sm_90 sm_100")));
}

TEST_F(CompilerNvccTest, PrintsWhatWasAskedFor) {
  std::vector<std::string> lines;
  const LogSink old = set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kInfo) lines.emplace_back(line);
  });
  use_toolkit(std::string("echo 'ptxas info : Used 8 registers'\n") + kWriteOutput);
  compile();
  EXPECT_THAT(lines, ElementsAre());
  compile({.ptxas_verbose = true});
  EXPECT_THAT(lines, ElementsAre(HasSubstr("ptxas info")));
  set_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND", "1");
  compile();
  EXPECT_THAT(lines.back(), AllOf(HasSubstr("Running command: "), HasSubstr("--cubin")));
  unset_env("TESTLIB_JIT_PRINT_COMPILER_COMMAND");
  set_log_sink(old);
}

TEST_F(CompilerNvccTest, VerifiedHeadersAreRecorded) {
  write("include/lib/used.hpp", "// 1");
  const std::string depends =
      "dep=; last=\n"
      "for word in \"$@\"; do [ \"$last\" = -MF ] && dep=$word; last=$word; done\n"
      "[ -n \"$dep\" ] && echo \"kernel.o : kernel.cu " +
      (scratch() / "include/lib/used.hpp").string() + "\" > \"$dep\"\n[ -z \"$out\" ] || ";
  use_toolkit(depends + kWriteOutput);
  Config verified = config();
  verified.dependency_mode = DependencyMode::kVerified;
  const auto command = compiler().compile(kSource, directory(), env(), verified, options());
  EXPECT_THAT(command, IsSupersetOf({"-MD", "-MF"}));
  EXPECT_THAT(list(directory()), ElementsAre("dependencies", "kernel.cu", "kernel.cubin"));
  EXPECT_EQ(Dependencies::of_entry(directory())->size(), 1u);

  use_toolkit("[ -z \"$out\" ] || echo // 2 > '" + (scratch() / "include/lib/used.hpp").string() +
              "'\n" + depends + kWriteOutput);
  EXPECT_THROW(compiler().compile(kSource, directory(), env(), verified, options()), InputsChanged);
}

TEST_F(CompilerNvccTest, PostHookSeesTheCubin) {
  const auto python = write_script("python3", "echo \"$2\" > hooked; echo changed > \"$2\"\n");
  write("hook.py", "");
  compiler().compile(kSource, directory(), env(), config(python.string()),
                     options({.post_hook = "hook.py"}));
  EXPECT_EQ(read(directory() / "hooked"), (directory() / "kernel.cubin").string() + "\n");
  EXPECT_EQ(read(directory() / "kernel.cubin"), "changed\n");
}

TEST_F(CompilerNvccTest, PathsWithBlanksAndOtherAlphabets) {
  const auto odd = scratch() / "a b;\xe7\xbc\x93";
  add_nvcc(odd.filename() / "bin/nvcc");
  set_env("CUDA_HOME", odd.string());
  make_dirs(odd / "build");
  EXPECT_NO_THROW(compiler().compile(kSource, odd / "build", env(), config(), options()));
  EXPECT_THAT(list(odd / "build"), ElementsAre("kernel.cu", "kernel.cubin"));
}

}  // namespace
}  // namespace deep_jit::cuda
