// SPDX-License-Identifier: MIT
#include "deep_jit/backend/cuda/compilers.hpp"

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
using ::testing::SizeIs;

// With an nvcc that is a script, the stand-in for NVRTC, and without a driver.
class CompilersTest : public testing::CudaTest {
 protected:
  CompilersTest() {
    unset_env("CXX");
    make_dirs(directory());
    use_toolkit();
    use_nvrtc();
  }

  std::filesystem::path directory() const { return scratch() / "build"; }
  static CompilerOptions options(const CompilerOptions& overrides = {}) {
    return CompilerOptions{.optimize_level = "3", .ptxas_register_usage_level = 10, .arch = "90a"}
        .override_with(overrides);
  }
  // What meta.json would say of the compiler.
  nlohmann::ordered_json compile(const CompilerOptions& overrides,
                                 const std::string& source = kSource,
                                 const Config* own = nullptr) const {
    const Config config = own == nullptr ? this->config() : *own;
    return Compilers(env(), config)
        .compile(source, directory(), env(), config, options(overrides))
        .compiler_info;
  }
  std::vector<std::string> key_names(const CompilerOptions& overrides) const {
    Key key;
    const Compilers compilers(env(), config());
    compilers.add_to_key(key, options(overrides));
    compilers.add_environment_to_key(key, options(overrides));
    std::vector<std::string> names;
    for (const auto& part : key.parts()) {
      if (part.name != "flag") names.push_back(part.name);
    }
    return names;
  }
  // Neither an order nor anything to be found.
  void hide_nvcc() {
    unset_env("CUDA_HOME");
    set_env("PATH", "/no/such/folder");
    if (std::filesystem::exists("/usr/local/cuda/bin/nvcc")) GTEST_SKIP() << "there is a toolkit";
  }

  static constexpr char kSource[] = "__global__ void scale() {}";
};

TEST_F(CompilersTest, UnsetIsNvccAsItAlwaysWas) {
  const auto info = compile({});
  EXPECT_EQ(compilations(), 1u);
  EXPECT_THAT(nvrtc().compilations, SizeIs(0));
  EXPECT_EQ(info, Compilers(env(), config()).nvcc().info().to_json());
  EXPECT_EQ(key_names({}), key_names({.compiler = "nvcc"}));
}

TEST_F(CompilersTest, Orders) {
  EXPECT_EQ(compile({.compiler = "nvcc"})["compiler"], "nvcc");
  EXPECT_EQ(compilations(), 1u);
  const auto info = compile({.compiler = "nvrtc"});
  EXPECT_EQ(compilations(), 1u);
  EXPECT_EQ(info["compiler"], "nvrtc");
  EXPECT_EQ(info["reason"], "asked for");
  EXPECT_EQ(info["path"], std::filesystem::canonical(nvrtc_file()).string());
  EXPECT_EQ(info["version"], "13.0");
  DJ_EXPECT_ERROR(exception::CompileError, compile({.compiler = "nvrtc"}, "REJECT"),
                  HasSubstr("NVRTC_ERROR_COMPILATION"));
  EXPECT_EQ(compilations(), 1u);
  DJ_EXPECT_ERROR(exception::Exception, compile({.compiler = "gcc"}),
                  HasSubstr("invalid value for the option compiler: gcc"));
}

TEST_F(CompilersTest, AutoTakesNvrtcWhereItCan) {
  const auto info = compile({.compiler = "auto"});
  EXPECT_EQ(info["compiler"], "nvrtc");
  EXPECT_EQ(info["reason"], "NVRTC takes the source");
  EXPECT_EQ(compilations(), 0u);
}

TEST_F(CompilersTest, AutoGoesToNvccAndSaysWhy) {
  auto info = compile({.extra_nvcc_flags = {"--keep"}, .compiler = "auto"});
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_THAT(info["reason"].get<std::string>(), HasSubstr("`--keep`"));
  EXPECT_THAT(nvrtc().compilations, SizeIs(0));

  info = compile({.compiler = "auto"}, "REJECT k();");
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_EQ(info["reason"],
            "NVRTC does not take the source: kernel.cu(1): error: REJECT is no type");
  EXPECT_EQ(compilations(), 2u);
  EXPECT_THAT(read(directory() / "kernel.cubin"), HasSubstr("made of")) << "nvcc's";

  info = compile({.arch = "121a", .compiler = "auto"});
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_THAT(info["reason"].get<std::string>(), HasSubstr("sm_121a"));

  set_env("TESTLIB_JIT_NVRTC_LIBRARY", write("broken.so", "no library").string());
  info = compile({.compiler = "auto"});
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_THAT(info["reason"].get<std::string>(), HasSubstr("cannot open NVRTC"));

  set_env("TESTLIB_JIT_NVRTC_LIBRARY", "/no/such/file");
  info = compile({.compiler = "auto"});
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_EQ(info["reason"], "there is no NVRTC");
  DJ_EXPECT_ERROR(exception::Exception, compile({.compiler = "nvrtc"}),
                  AllOf(HasSubstr("no NVRTC found"), HasSubstr("/no/such/file")));
}

TEST_F(CompilersTest, AFailedCheckOrHookIsNoReasonToTryNvcc) {
  nvrtc().log = "spilled to local memory";
  DJ_EXPECT_ERROR(exception::CompileError, compile({.check_no_spills = true, .compiler = "auto"}),
                  HasSubstr("register spills"));
  EXPECT_EQ(compilations(), 0u);
}

TEST_F(CompilersTest, TheKeyNamesWhoeverMayHaveMadeTheEntry) {
  EXPECT_THAT(key_names({.compiler = "nvrtc"}),
              ElementsAre("compiler version", "compiler content", "standard headers"));
  EXPECT_THAT(key_names({.compiler = "nvcc"}), ElementsAre("compiler version", "compiler content"));
  EXPECT_THAT(key_names({.compiler = "auto"}),
              ElementsAre("compiler rule", "compiler version", "compiler content",
                          "standard headers", "compiler version", "compiler content"));
  set_env("NVCC_APPEND_FLAGS", "-DX");
  EXPECT_THAT(key_names({.compiler = "nvrtc"}), SizeIs(3)) << "NVRTC does not read it";
  EXPECT_THAT(key_names({.compiler = "auto"}), SizeIs(7));
  EXPECT_EQ(key_names({.extra_nvcc_flags = {"--keep"}, .compiler = "auto"}),
            key_names({.extra_nvcc_flags = {"--keep"}}))
      << "only nvcc can serve it: the entry is shared";
}

TEST_F(CompilersTest, WithoutNvccNvrtcAloneWillDo) {
  hide_nvcc();
  if (IsSkipped()) return;
  EXPECT_EQ(compile({.compiler = "auto"})["reason"], "there is no nvcc");
  EXPECT_EQ(compile({.compiler = "nvrtc"})["compiler"], "nvrtc");
  EXPECT_EQ(key_names({.compiler = "auto"}), key_names({.compiler = "nvrtc"}));
  DJ_EXPECT_ERROR(exception::Exception, compile({}),
                  AllOf(HasSubstr("no CUDA toolkit found"), HasSubstr("JIT_CUDA_COMPILER")));
  EXPECT_TRUE(Compilers(env(), config()).info().path.empty());

  set_env("TESTLIB_JIT_NVRTC_LIBRARY", "/no/such/file");
  DJ_EXPECT_ERROR(exception::Exception, Compilers(env(), config()),
                  HasSubstr("no CUDA toolkit found"));
}

TEST_F(CompilersTest, AnOrderForNvccThatCannotBeFollowedIsAnErrorAtOnce) {
  set_env("CUDA_HOME", "/no/such/toolkit");
  DJ_EXPECT_ERROR(exception::Exception, Compilers(env(), config()),
                  HasSubstr("CUDA_HOME: NVCC compiler is not executable"));
  set_env("TESTLIB_JIT_CUDA_COMPILER", "nvrtc");
  EXPECT_NO_THROW(Compilers(env(), config())) << "nobody will ask for nvcc";
}

TEST_F(CompilersTest, AnOrderForNvrtcStartsNoNvcc) {
  set_env("TESTLIB_JIT_CUDA_COMPILER", "nvrtc");
  const auto started = scratch() / "started";
  write_script("toolkit/bin/nvcc",
               "touch '" + started.string() + "'\ncat <<'EOF'\n" + version_text("13.0") + "EOF\n");
  EXPECT_EQ(compile({.compiler = "nvrtc"})["compiler"], "nvrtc");
  EXPECT_EQ(key_names({.compiler = "nvrtc"}),
            (std::vector<std::string>{"compiler version", "compiler content", "standard headers"}));
  EXPECT_FALSE(std::filesystem::exists(started));
  const Compilers compilers(env(), config());
  EXPECT_FALSE(compilers.info().path.empty()) << "who asks for nvcc gets it";
  EXPECT_TRUE(std::filesystem::exists(started));
}

TEST_F(CompilersTest, VerifiedHeadersAreForNvcc) {
  const std::string depends =
      "dep=; last=\n"
      "for word in \"$@\"; do [ \"$last\" = -MF ] && dep=$word; last=$word; done\n"
      "[ -n \"$dep\" ] && echo 'kernel.o : kernel.cu' > \"$dep\"\n[ -z \"$out\" ] || ";
  use_toolkit(depends + kWriteOutput);
  Config verified = config();
  verified.dependency_mode = DependencyMode::kVerified;
  const auto info = compile({.compiler = "auto"}, kSource, &verified);
  EXPECT_EQ(info["compiler"], "nvcc");
  EXPECT_THAT(info["reason"].get<std::string>(), HasSubstr("verified"));
}

TEST_F(CompilersTest, DumpsForAnEntryThatLacksThem) {
  write_script("toolkit/bin/cuobjdump", "echo \"sass of $(cat kernel.cubin)\"\n");
  write("entry/kernel.cubin", "its cubin");
  const auto entry = scratch() / "entry";
  const Compilers compilers(env(), config());
  const auto wanted = options({.dump_ptx = true, .dump_sass = true, .compiler = "auto"});
  EXPECT_THAT(compilers.missing_dumps(entry, options()), SizeIs(0));
  EXPECT_THAT(compilers.missing_dumps(entry, wanted), ElementsAre("kernel.ptx", "kernel.sass"));
  EXPECT_THAT(compilers.missing_dumps("", wanted), SizeIs(2));
  const std::string source = kSource;
  const std::string rejected = "REJECT";
  const Config own = config();
  const Env own_env = env();
  compilers.add_dumps({source, directory(), own_env, own, wanted}, entry);
  EXPECT_EQ(read(directory() / "kernel.ptx"), "PTX of NVRTC");
  EXPECT_EQ(read(directory() / "kernel.sass"), "sass of its cubin\n");
  EXPECT_EQ(compilations(), 0u);
  EXPECT_THAT(list(entry), ElementsAre("kernel.cubin"));

  compilers.add_dumps({rejected, directory(), own_env, own, wanted}, entry);
  EXPECT_THAT(read(directory() / "kernel.ptx"), HasSubstr("--ptx")) << "nvcc's";
  write("entry/kernel.ptx", "there");
  EXPECT_THAT(compilers.missing_dumps(entry, wanted), ElementsAre("kernel.sass"));
}

}  // namespace
}  // namespace deep_jit::cuda
