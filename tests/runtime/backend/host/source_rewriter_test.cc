// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/source_rewriter.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::host {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The registrations that were put in, in order.
std::vector<std::string> added(const std::string& source) {
  const std::string rewritten = register_kernels(source);
  EXPECT_EQ(std::ranges::count(rewritten, '\n'), std::ranges::count(source, '\n'));
  std::vector<std::string> found;
  for (std::size_t at = 0; (at = rewritten.find(" DJ_HOST_REGISTER", at)) != rewritten.npos;) {
    std::size_t end = rewritten.find('(', at);
    int depth = 0;
    do {
      depth += rewritten[end] == '(';
      depth -= rewritten[end++] == ')';
    } while (depth > 0);
    found.push_back(rewritten.substr(at + 1, end - at - 1));
    at = end;
  }
  std::string removed = rewritten;
  for (const auto& text : found) removed.erase(removed.find(" " + text), text.size() + 1);
  EXPECT_EQ(removed, source) << "nothing but registrations may be added";
  return found;
}

TEST(SourceRewriter, RegistersADefinitionOnItsLastLine) {
  EXPECT_EQ(
      register_kernels("__global__ void f(int* x) {\n  *x = 1;\n} // end\nint y;\n"),
      "__global__ void f(int* x) {\n  *x = 1;\n} DJ_HOST_REGISTER_AS(void(int* x), f) // end\n"
      "int y;\n");
  EXPECT_EQ(register_kernels(""), "");
  EXPECT_EQ(register_kernels("int f() { return 0; }"), "int f() { return 0; }");
}

TEST(SourceRewriter, UnderstandsTheFormsOfADefinition) {
  EXPECT_THAT(added("extern \"C\" __global__ void f() {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("static __global__ void f(void) {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(void), f)"));
  EXPECT_THAT(added("void __global__ f() {}"), ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("__global__ void __launch_bounds__(256, 2) f(int n) {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(int n), f)"));
  EXPECT_THAT(added("__launch_bounds__(N) __global__ void f() {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("__global__ __launch_bounds__(sizeof(int) * 2) void f() {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("[[maybe_unused]] __global__ void f() noexcept {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("__global__ MY_ATTRIBUTE(3) void f() {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), f)"));
  EXPECT_THAT(added("__global__ void ns::f() {}"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(), ns::f)"));
  EXPECT_THAT(
      added("__global__ void f(std::array<float, (4 << 1)> a,\n   // why\n  const T* __restrict__ "
            "b) {}"),
      ElementsAre(
          "DJ_HOST_REGISTER_AS(void(std::array<float, (4 << 1)> a, const T* __restrict__ b), f)"));
}

TEST(SourceRewriter, NamesOnlyWhereTheParametersCannotBeRepeated) {
  EXPECT_THAT(added("__global__ void f(int n = 3) {}"), ElementsAre("DJ_HOST_REGISTER(f)"));
  EXPECT_THAT(added("__global__ void f(int n\n#ifdef X\n, int m\n#endif\n) {}"),
              ElementsAre("DJ_HOST_REGISTER(f)"));
}

TEST(SourceRewriter, LeavesDeclarationsAndTemplatesAlone) {
  EXPECT_THAT(added("__global__ void f(int);"), IsEmpty());
  EXPECT_THAT(added("template <typename T> __global__ void f(T x) { if (x) {} }"), IsEmpty());
  EXPECT_THAT(added("extern template __global__ void f<int>(int);"), IsEmpty());
  EXPECT_THAT(added("__device__ void f() {}"), IsEmpty());
  EXPECT_THAT(added("int x__global__; __global__"), IsEmpty());
  EXPECT_THAT(added("__global__ void f() {"), IsEmpty());
}

TEST(SourceRewriter, RegistersInstantiationsAndSpecializations) {
  EXPECT_THAT(added("template <typename T, int N = (1 > 2)>\n__global__ void f(T* x) { *x = N; }\n"
                    "template __global__ void f<float, 4>(float*);\n"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(float*), f<float, 4>)"));
  EXPECT_THAT(added("template __global__ void f(float*);"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(float*), f)"));
  EXPECT_THAT(added("template __global__ void ns::f<std::array<int, 2>, (1 > 2)>(int);"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(int), ns::f<std::array<int, 2>, (1 > 2)>)"));
  EXPECT_THAT(added("template <> __global__ void f<int>(int* x) { *x = 1; }"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(int* x), f<int>)"));
  EXPECT_THAT(added("template __global__ void ::ns::f<int>(int);"),
              ElementsAre("DJ_HOST_REGISTER_AS(void(int), ::ns::f<int>)"));
}

TEST(SourceRewriter, SkipsCommentsLiteralsAndPreprocessorLines) {
  EXPECT_THAT(added("// __global__ void a() {}\n// x \\\n__global__ void b() {}\n"), IsEmpty());
  EXPECT_THAT(
      added("/* __global__ void a() {}\n */ const char* s = \"\\\"__global__ void b() {}\";"),
      IsEmpty());
  EXPECT_THAT(
      added("auto s = R\"x(\" __global__ void a() {} )\" )x\"; auto t = u8R\"(__global__)\";"),
      IsEmpty());
  EXPECT_THAT(added("#define K(T) __global__ void k_##T() \\\n  {}\n# define B {\n"), IsEmpty());
  EXPECT_THAT(added("#define X /* \n __global__ void a() {} */ 1\n"), IsEmpty());
}

TEST(SourceRewriter, FindsTheEndOfTheBody) {
  const auto only_f = ElementsAre("DJ_HOST_REGISTER_AS(void(), f)");
  EXPECT_THAT(added("__global__ void f() { char c = '}'; char d = '\\''; /* } */ } // }"), only_f);
  EXPECT_THAT(
      added("__global__ void f() { auto s = \"}\"; auto r = R\"(}\")\"; int n = 1'000'0; }"),
      only_f);
  EXPECT_THAT(added("__global__ void f() {\n#define B }\n// } \\\n }\n}"), only_f);
  EXPECT_THAT(added("__global__ void f() { auto l = [] { return S{1, {2}}; }; double x = 1e+5, y = "
                    "0x1p-3; }"),
              only_f);
  const std::string source =
      "__global__ void f() {\n#if A\n for (;;) {\n#elif B\n while (1) {\n#else\n {\n#endif\n }\n}";
  EXPECT_THAT(added(source), only_f);
  EXPECT_EQ(register_kernels(source), source + " DJ_HOST_REGISTER_AS(void(), f)");
}

TEST(SourceRewriter, KeepsARegistrationInsideItsBranch) {
  EXPECT_EQ(register_kernels(
                "#if 0\ndon't __global__ void f() {}\n#else\n__global__ void g() {}\n#endif\n"),
            "#if 0\ndon't __global__ void f() {}\n#else\n__global__ void g() {} "
            "DJ_HOST_REGISTER_AS(void(), g)\n"
            "#endif\n");
  EXPECT_THAT(added("#ifdef X\n__global__ void f(float* a, int b) {\n#else\n__global__ void "
                    "f(float* a) {\n#endif\n  *a = 1;\n}\n"),
              ElementsAre("DJ_HOST_REGISTER(f)"));
}

TEST(SourceRewriter, RegistersSeveralKernelsInTheirScopes) {
  EXPECT_EQ(register_kernels(
                "namespace a { __global__ void f() {} } namespace b { __global__ void f() {} }"),
            "namespace a { __global__ void f() {} DJ_HOST_REGISTER_AS(void(), f) } "
            "namespace b { __global__ void f() {} DJ_HOST_REGISTER_AS(void(), f) }");
}

TEST(SourceRewriter, PutsAMacroInFrontOfDynamicSharedMemory) {
  EXPECT_EQ(register_kernels("extern __shared__ float smem[];"),
            "DJ_HOST_DYNAMIC_SHARED(smem, float) DJ_HOST_IGNORE(extern __shared__ float smem[]);");
  EXPECT_EQ(register_kernels("__global__ void f() {\n  extern __shared__ int a[];\n  a[0] = 1;\n}"),
            "__global__ void f() {\n  DJ_HOST_DYNAMIC_SHARED(a, int) "
            "DJ_HOST_IGNORE(extern __shared__ int a[]);\n  a[0] = 1;\n} "
            "DJ_HOST_REGISTER_AS(void(), f)");
  const auto declared = [](const std::string& source) {
    const std::string rewritten = register_kernels(source);
    EXPECT_EQ(std::ranges::count(rewritten, '\n'), std::ranges::count(source, '\n'));
    return rewritten.substr(0, rewritten.find(" DJ_HOST_IGNORE"));
  };
  EXPECT_EQ(declared("extern __shared__ __align__(1024) unsigned char s[];"),
            "DJ_HOST_DYNAMIC_SHARED(s, unsigned char)");
  EXPECT_EQ(declared("extern alignas(sizeof(T) * 2) __shared__ std::array<T, 2> s [ ] ;"),
            "DJ_HOST_DYNAMIC_SHARED(s, std::array<T, 2>)");
  EXPECT_EQ(declared("extern\n__shared__ // tiles\nfloat s[][32][N + 1];"),
            "DJ_HOST_DYNAMIC_SHARED(s, float[32][N + 1])");
  EXPECT_EQ(declared("alignas(16) extern __shared__ volatile T s[];"),
            "alignas(16) DJ_HOST_DYNAMIC_SHARED(s, volatile T)");
}

TEST(SourceRewriter, LeavesOtherSharedMemoryAlone) {
  for (const std::string source :
       {"__shared__ float s[32];", "extern float s[];", "extern __shared__ float s[4];",
        "extern __shared__ float s[], t[];", "extern __shared__ float* s;",
        "extern __shared__ s[];", "extern \"C\" { __shared__ float s[2]; }",
        "// extern __shared__ float s[];", "extern __shared__\n#if X\nfloat s[];\n#endif\n",
        "extern __shared__ alignas(", "extern __shared__ float s[]", "extern __shared__ float s[",
        // Repeating this literal would move the lines behind it.
        "extern __shared__ float s[][sizeof(R\"(\n)\")];"}) {
    EXPECT_EQ(register_kernels(source), source);
  }
}

}  // namespace
}  // namespace deep_jit::host
