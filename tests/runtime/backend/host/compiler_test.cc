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
  CompilerOptions options(const CompilerOptions& overrides = {}) const {
    return CompilerOptions::default_options(env(), Device())
        .override_with({.extra_cxx_flags = {"-DVALUE=7"}})
        .override_with(overrides);
  }
  Config verified() const {
    Config verified = config();
    verified.dependency_mode = DependencyMode::kVerified;
    return verified;
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
  } catch (const exception::CompileError& error) {
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
  EXPECT_EQ(plain, "source rewriter: 2\nprelude: " + hash_bytes(get_prelude()).hex() + "\n");
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
  fake_compiler("echo x > kernel.so; echo x > kernel.s");
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  compile();
  EXPECT_THAT(lines, IsEmpty());
  for (const char* name : {"TESTLIB_JIT_PRINT_COMPILER_COMMAND", "DJ_JIT_DEBUG"}) {
    set_env(name, "1");
    const auto command = compile();
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines[0], "Running command: " + format_command(command)) << name;
    EXPECT_EQ(lines.size(), name == std::string_view("DJ_JIT_DEBUG") ? 2u : 1u) << "assembly";
    lines.clear();
    unset_env(name);
  }
  set_log_sink(nullptr);
}

// --- Options ---

TEST_F(CompilerTest, KeepsAssemblyWhenAsked) {
  compiler().compile(kSource, directory(), env(), config(), options({.dump_asm = true}));
  EXPECT_THAT(list(directory()),
              ElementsAre("kernel.cc", "kernel.s", "kernel.so", "kernel_prelude.hpp"));
  EXPECT_THAT(read(directory() / "kernel.s"),
              AllOf(HasSubstr("deep_jit_host_module"), HasSubstr("ret")));
}

TEST_F(CompilerTest, AssemblyIsCheckedToo) {
  const auto with = [&](const std::string& on_assembly) {
    fake_compiler("case \"$*\" in *'-S '*) " + on_assembly + ";; *) echo x > kernel.so;; esac");
    compiler().compile(kSource, directory(), env(), config(), options({.dump_asm = true}));
  };
  DJ_EXPECT_ERROR(exception::CompileError, with(": > kernel.s"), HasSubstr("kernel.s is empty"));
  std::filesystem::remove(directory() / "kernel.s");
  DJ_EXPECT_ERROR(exception::CompileError, with("exit 0"), HasSubstr("wrote no kernel.s"));
  DJ_EXPECT_ERROR(exception::CompileError, with("exit 3"), HasSubstr("exit code 3"));
  with("echo \"$@\" > kernel.s");
  EXPECT_EQ(read(directory() / "kernel.s"),
            "-S -include kernel_prelude.hpp -I" + (scratch() / "include").string() +
                " -O3 -std=c++20 -fPIC -fvisibility=hidden -DVALUE=7 -o kernel.s kernel.cc\n");
}

TEST_F(CompilerTest, NotesTheSanitizersOfABuild) {
  fake_compiler("echo x > kernel.so");
  const auto noted = [&](const CompilerOptions& overrides) {
    compiler().compile(kSource, directory(), env(), config(), options(overrides));
    const auto file = directory() / "sanitizers";
    const std::string names = std::filesystem::exists(file) ? read(file) : "";
    std::filesystem::remove(file);
    return names;
  };
  EXPECT_EQ(noted({}), "");
  EXPECT_EQ(noted({.sanitize = "thread"}), "thread\n");
  EXPECT_EQ(noted({.extra_cxx_flags = {"-fsanitize=undefined,address"}}), "address\nundefined\n");
  EXPECT_EQ(noted({.extra_cxx_flags = {"-fsanitize=integer", "-fno-sanitize=address"}}), "");
}

TEST_F(CompilerTest, RunsThePostHookOnTheLibrary) {
  fake_compiler("echo library > kernel.so");
  Config with_hook = config();
  with_hook.python_executable = write_script("py", "exec /bin/sh \"$@\"\n").string();
  write("hook.py", "echo \"$1\" >> \"$1\"; ls > '" + (scratch() / "seen").string() + "'\n");
  compiler().compile(kSource, directory(), env(), with_hook, options({.post_hook = "hook.py"}));
  EXPECT_EQ(read(directory() / "kernel.so"),
            "library\n" + (directory() / "kernel.so").string() + "\n");
  EXPECT_EQ(read(scratch() / "seen"), "kernel.cc\nkernel.so\nkernel_prelude.hpp\n");
}

// --- Verified dependencies ---

TEST_F(CompilerTest, RecordsEverythingThatTheCompilerReads) {
  write("include/lib/first.hpp", "#include \"second $x #y.hpp\"\n");
  write("include/lib/second $x #y.hpp", "#define NAME <lib/third.hpp>\n#include NAME\n");
  write("include/lib/third.hpp", "#if 0\n#include <lib/none.hpp>\n#endif\n");
  const auto elsewhere = write("else where/fourth.h", "");
  const auto command = compiler().compile(
      "#include <lib/first.hpp>\n#include \"fourth.h\"\n#include <vector>\n" + std::string(kSource),
      directory(), env(), verified(),
      options({.extra_cxx_flags = {"-I" + elsewhere.parent_path().string()}}));
  EXPECT_THAT(command, ::testing::IsSupersetOf({"-MD", "-MF", "kernel.d"}));
  EXPECT_THAT(list(directory()),
              ElementsAre("dependencies", "kernel.cc", "kernel.so", "kernel_prelude.hpp"));
  const std::string text = read(directory() / "dependencies");
  const std::string empty = hash_bytes("").hex();
  EXPECT_THAT(text, HasSubstr(" search lib/first.hpp\n"));
  EXPECT_THAT(text, HasSubstr(" search lib/second $x #y.hpp\n"));
  EXPECT_THAT(text, HasSubstr(" search lib/third.hpp\n"));
  EXPECT_THAT(text, HasSubstr(empty + " absolute " + elsewhere.string() + "\n"));
  EXPECT_THAT(text, HasSubstr("/vector\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("kernel_prelude.hpp")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("kernel.cc")));
}

TEST_F(CompilerTest, AHeaderThatChangesWhileTheCompilerRunsIsNoticed) {
  const auto header = write("include/lib/a.hpp", "int a;\n");
  const std::string depfile = "echo 'k: kernel.cc " + header.string() + "' > kernel.d; ";
  const auto compile_with = [&](const std::string& while_compiling) {
    fake_compiler(depfile + "case \"$*\" in *'-E '*) ;; *) echo x > kernel.so; " + while_compiling +
                  ";; esac");
    compiler().compile(kSource, directory(), env(), verified(), options());
  };
  compile_with(":");
  EXPECT_EQ(read(directory() / "dependencies"),
            "deep_jit-dependencies 1\n" + hash_bytes("int a;\n").hex() + " search lib/a.hpp\n");
  EXPECT_THROW(compile_with("echo 'int b;' > '" + header.string() + "'"), InputsChanged);
  EXPECT_THROW(compile_with("rm '" + header.string() + "'"), InputsChanged);
  write("include/lib/a.hpp", "int a;\n");
  const auto second = write("include/lib/b.hpp", "");
  EXPECT_THROW(compile_with("echo 'k: " + second.string() + "' > kernel.d"), InputsChanged);
  compile_with(":");
}

TEST_F(CompilerTest, AnErrorIsTheCompilersNotThePreprocessors) {
  fake_compiler(
      "case \"$*\" in *'-E '*) echo no such file; exit 1;; esac; echo real reason; exit 2");
  try {
    compiler().compile(kSource, directory(), env(), verified(), options());
    FAIL() << "expected an error";
  } catch (const exception::CompileError& error) {
    EXPECT_EQ(error.log, "real reason\n");
    EXPECT_THAT(error.command, ::testing::Contains("-shared"));
  }
  fake_compiler("echo x > kernel.so");
  DJ_EXPECT_ERROR(exception::CompileError,
                  compiler().compile(kSource, directory(), env(), verified(), options()),
                  HasSubstr("wrote no kernel.d"));
}

// --- The compiler itself ---

TEST_F(CompilerTest, ACompilerReplacedInPlaceHasAnotherIdentity) {
  fake_compiler("# generates this");
  const Compiler compiler = this->compiler();
  const auto before = compiler.toolchain();
  fake_compiler("# generates that");
  const auto after = compiler.toolchain();
  EXPECT_EQ(after.identity.version, before.identity.version);
  EXPECT_NE(after.identity.content, before.identity.content);
  std::filesystem::remove(scratch() / "fake_compiler");
  EXPECT_EQ(compiler.toolchain().identity.content, before.identity.content)
      << "without a compiler the cache can still be used";
}

}  // namespace
}  // namespace deep_jit::host
