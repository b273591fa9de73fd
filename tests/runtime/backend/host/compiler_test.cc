// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/compiler.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/backend/host/host_test.hpp"

namespace deep_jit::host {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSource = "__global__ void f(int* x) { *x = VALUE; }\n";

class CompilerTest : public testing::HostTest {
 protected:
  CompilerTest() { make_dirs(directory()); }

  std::filesystem::path directory() const { return scratch() / "a 'b' $(c);d"; }
  CompilerOptions options() const {
    return CompilerOptions::default_options(env(), Device())
        .override_with({.extra_cxx_flags = {"-DVALUE=7"}});
  }
  Compiler compiler() const { return Compiler(find_toolchain(env(), config())); }
  std::vector<std::string> compile(const std::string& source = kSource) const {
    return compiler().compile(source, directory(), env(), config(), options());
  }
  std::string explained() const {
    Key key;
    compiler().add_to_key(key);
    return key.explain();
  }
};

TEST_F(CompilerTest, CompilesInADirectoryWithAnyName) {
  const auto command = compile();
  EXPECT_THAT(list(directory()), ElementsAre("kernel.cc", "kernel.so", "kernel_prelude.hpp"));
  EXPECT_EQ(read(directory() / "kernel.cc"),
            "__global__ void f(int* x) { *x = VALUE; } DJ_HOST_REGISTER_AS(void(int* x), f)\n");
  EXPECT_EQ(read(directory() / "kernel_prelude.hpp"), get_prelude());
  EXPECT_GT(std::filesystem::file_size(directory() / "kernel.so"), 0u);
  EXPECT_EQ(command, compiler().get_command(config(), options()));
}

TEST_F(CompilerTest, PutsTrackedDirectoriesBeforeTheFlags) {
  fake_compiler("");
  EXPECT_THAT(compiler().get_command(config(), options()),
              ElementsAre((scratch() / "fake_compiler").string(), "-shared", "-include",
                          "kernel_prelude.hpp", "-I" + (scratch() / "include").string(), "-O3",
                          "-std=c++20", "-fPIC", "-fvisibility=hidden", "-DVALUE=7", "-o",
                          "kernel.so", "kernel.cc"));
}

TEST_F(CompilerTest, RunsInTheDirectory) {
  fake_compiler("pwd > kernel.so");
  compile();
  EXPECT_EQ(read(directory() / "kernel.so"), directory().string() + "\n");
}

TEST_F(CompilerTest, AFailureCarriesEverything) {
  fake_compiler("echo to stdout; echo to stderr >&2; echo half > kernel.so; exit 37");
  const std::string source = "line 1\n__global__ void f() {}\n";
  try {
    compile(source);
    FAIL() << "expected an error";
  } catch (const KernelCompileError& error) {
    EXPECT_EQ(error.log, "to stdout\nto stderr\n");
    EXPECT_EQ(error.command, compiler().get_command(config(), options()));
    EXPECT_EQ(error.source_path, "kernel.cc");
    EXPECT_EQ(error.source, source);
    EXPECT_EQ(nlohmann::ordered_json::parse(error.options), options().to_json());
    EXPECT_THAT(error.what(), AllOf(HasSubstr("command failed with exit code 37"),
                                    HasSubstr("to stderr"), HasSubstr("-DVALUE=7")));
  }
}

TEST_F(CompilerTest, ASuccessWithoutOutputIsAFailure) {
  fake_compiler("echo all is well");
  DJ_EXPECT_ERROR(exception::CompileError, compile(),
                  AllOf(HasSubstr("wrote no kernel.so"), HasSubstr("all is well")));
  fake_compiler(": > kernel.so");
  DJ_EXPECT_ERROR(exception::CompileError, compile(), HasSubstr("kernel.so is empty"));
  fake_compiler("rm -f kernel.so; mkdir kernel.so");
  DJ_EXPECT_ERROR(exception::CompileError, compile(), HasSubstr("wrote no kernel.so"));
}

TEST_F(CompilerTest, RealErrorsNameTheLineOfTheSource) {
  DJ_EXPECT_ERROR(exception::CompileError,
                  compile("__global__ void f(\n  int* x) {\n  *x = 1;\n}\nint y = nonsense;\n"),
                  AllOf(HasSubstr("kernel.cc:5:9"), HasSubstr("nonsense")));
}

TEST_F(CompilerTest, KeyHoldsArgumentsEnvironmentAndPrelude) {
  fake_compiler("");
  const std::string plain = explained();
  EXPECT_EQ(plain, "source rewriter: 1\nprelude: " + hash_bytes(get_prelude()).hex() + "\n");
  set_env("TESTLIB_JIT_CXX_COMPILER", (scratch() / "fake_compiler").string() + " -m64");
  set_env("CPATH", "/some/include");
  EXPECT_EQ(explained(), "compiler argument: -m64\nenvironment CPATH: /some/include\n" + plain);
}

TEST_F(CompilerTest, CompilesWithTheEnvironmentOfTheKey) {
  fake_compiler("echo \"$CPATH\" > kernel.so");
  set_env("CPATH", "/at/construction");
  const Compiler compiler = this->compiler();
  set_env("CPATH", "/later");
  compiler.compile(kSource, directory(), env(), config(), options());
  EXPECT_EQ(read(directory() / "kernel.so"), "/at/construction\n");
}

TEST_F(CompilerTest, PrintsItsCommandWhenAsked) {
  fake_compiler("echo x > kernel.so");
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  compile();
  EXPECT_THAT(lines, IsEmpty());
  for (const char* name : {"TESTLIB_JIT_PRINT_COMPILER_COMMAND", "DJ_JIT_DEBUG"}) {
    set_env(name, "1");
    const auto command = compile();
    EXPECT_THAT(lines, ElementsAre("Running command: " + format_command(command))) << name;
    lines.clear();
    unset_env(name);
  }
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace deep_jit::host
