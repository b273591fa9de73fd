// SPDX-License-Identifier: MIT
#include "deep_jit/key/include_scanner.hpp"

#include <filesystem>
#include <format>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using IncludeScannerTest = deep_jit::testing::ScratchTest;

std::string parsed(std::string_view line) {
  const auto include = parse_include_line(line);
  if (!include) return "none";
  return (include->quoted ? "quoted " : "angle ") + std::string(include->name);
}

TEST(ParseIncludeLine, AcceptsPlainForms) {
  EXPECT_EQ(parsed("#include <a/b.hpp>"), "angle a/b.hpp");
  EXPECT_EQ(parsed(" \t#\tinclude \v\f <a.hpp>"), "angle a.hpp");
  EXPECT_EQ(parsed("#include<a.hpp>"), "angle a.hpp");
  EXPECT_EQ(parsed("#include <a.hpp>  // why"), "angle a.hpp");
  EXPECT_EQ(parsed("#include <a.hpp>\r"), "angle a.hpp");
  EXPECT_EQ(parsed("#include \"a b.hpp\" /* x */"), "quoted a b.hpp");
}

TEST(ParseIncludeLine, IgnoresEverythingElse) {
  for (const char* line : {"", "int x;", "#define X <a.hpp>", "// #include <a.hpp>", "#include X",
                           "#include /* c */ <a.hpp>", "#include \\", "#include_next <a.hpp>",
                           "#import <a.hpp>", "x #include <a.hpp>"}) {
    EXPECT_EQ(parsed(line), "none") << line;
  }
}

TEST(ParseIncludeLine, RefusesPaddedAndUnclosedNames) {
  for (const char* line : {"#include < a.hpp>", "#include <a.hpp >", "#include <a.hpp\"",
                           "#include \"a.hpp>", "#include \" a.hpp\"", "#include <>"}) {
    DJ_EXPECT_ERROR(exception::Exception, (void)parse_include_line(line),
                    AllOf(HasSubstr("non-standard include"), HasSubstr(line)));
  }
}

TEST_F(IncludeScannerTest, DependsOnContentsAndNotOnPlaces) {
  write("a/lib/x.hpp", "int x;");
  write("b/lib/x.hpp", "int x;");
  write("c/lib/x.hpp", "int y;");
  const auto scan = [&](const std::vector<std::filesystem::path>& dirs) {
    return IncludeScanner(dirs, {"lib/"}).scan("#include <lib/x.hpp>\n");
  };
  EXPECT_EQ(scan({scratch() / "a"}), scan({scratch() / "b"}));
  EXPECT_NE(scan({scratch() / "a"}), scan({scratch() / "c"}));
  EXPECT_EQ(scan({scratch() / "c", scratch() / "a"}), scan({scratch() / "c"}));
  EXPECT_EQ(scan({scratch() / "none", scratch() / "a"}), scan({scratch() / "a"}));
}

TEST_F(IncludeScannerTest, FollowsTrackedHeadersAndOnlyThose) {
  write("i/lib/x.hpp", "#include <lib/y.hpp>\n#include <other/z.hpp>\n");
  write("i/lib/y.hpp", "1");
  write("i/other/z.hpp", "1");
  const auto scan = [&] {
    return IncludeScanner({scratch() / "i"}, {"lib/"}).scan("#include <lib/x.hpp>");
  };
  const Digest before = scan();
  write("i/other/z.hpp", "2");
  EXPECT_EQ(scan(), before) << "an untracked header must not count";
  write("i/lib/y.hpp", "2");
  EXPECT_NE(scan(), before) << "a tracked header behind a tracked one must count";
  write("i/lib/y.hpp", std::string_view("1\0a", 3));
  const Digest nul_a = scan();
  write("i/lib/y.hpp", std::string_view("1\0b", 3));
  EXPECT_NE(scan(), nul_a) << "bytes behind a NUL must count";
}

TEST_F(IncludeScannerTest, TracksQuotedIncludesThatResolve) {
  write("i/lib/x.hpp", "#include \"detail/y.hpp\"\n#include \"lib/z.hpp\"\n");
  write("i/lib/detail/y.hpp", "1");
  write("i/lib/z.hpp", "1");
  const auto scan = [&](const std::string& source) {
    return IncludeScanner({scratch() / "i"}, {"lib/"}).scan(source);
  };
  const Digest before = scan("#include \"lib/x.hpp\"");
  EXPECT_EQ(before, scan("#include <lib/x.hpp>"));
  write("i/lib/detail/y.hpp", "2");
  const Digest beside = scan("#include \"lib/x.hpp\"");
  EXPECT_NE(beside, before);
  write("i/lib/z.hpp", "2");
  EXPECT_NE(scan("#include \"lib/x.hpp\""), beside);
}

TEST_F(IncludeScannerTest, RefusesQuotedIncludesThatWouldGoUnseen) {
  write("i/lib/x.hpp", "#include \"gone.hpp\"\n");
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  DJ_EXPECT_ERROR(exception::Exception, scanner.scan("#include \"stdio.h\""),
                  AllOf(HasSubstr("non-standard include"), HasSubstr("\"stdio.h\"")));
  DJ_EXPECT_ERROR(exception::Exception, scanner.scan("#include \"lib/none.hpp\""),
                  HasSubstr("non-standard include"));
  DJ_EXPECT_ERROR(exception::Exception, scanner.scan("#include <lib/x.hpp>"),
                  AllOf(HasSubstr("non-standard include"), HasSubstr("x.hpp")));
}

TEST_F(IncludeScannerTest, NamesAMissingHeaderAndRecovers) {
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  const std::string source = "#if 0\n/*\n#include <lib/late.hpp>\n*/\n#endif\n";
  DJ_EXPECT_ERROR(exception::Exception, scanner.scan(source),
                  AllOf(HasSubstr("failed to open"), HasSubstr("lib/late.hpp"),
                        HasSubstr((scratch() / "i").string())));
  write("i/lib/late.hpp", "1");
  EXPECT_NE(scanner.scan(source), scanner.scan(""));
}

TEST_F(IncludeScannerTest, ReportsACycleAndRecovers) {
  write("i/lib/x.hpp", "#include <lib/y.hpp>\n");
  write("i/lib/y.hpp", "#include \"x.hpp\"\n");
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  DJ_EXPECT_ERROR(
      exception::Exception, scanner.scan("#include <lib/x.hpp>"),
      AllOf(HasSubstr("circular include may occur"), HasSubstr("x.hpp"), HasSubstr("y.hpp")));
  write("i/lib/y.hpp", "");
  EXPECT_NO_THROW(scanner.scan("#include <lib/x.hpp>"));
}

TEST_F(IncludeScannerTest, RemembersHeadersUntilForget) {
  write("i/lib/x.hpp", "1");
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  const std::string source = "#include <lib/x.hpp>";
  const Digest before = scanner.scan(source);
  write("i/lib/x.hpp", "2");
  EXPECT_EQ(scanner.scan(source), before);
  EXPECT_NE(IncludeScanner({scratch() / "i"}, {"lib/"}).scan(source), before);
  scanner.forget();
  EXPECT_NE(scanner.scan(source), before);
}

TEST_F(IncludeScannerTest, SeesPastAByteOrderMark) {
  write("i/lib/x.hpp", "\xEF\xBB\xBF#include <lib/y.hpp>\n");
  write("i/lib/y.hpp", "1");
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  const Digest before = scanner.scan("#include <lib/x.hpp>");
  write("i/lib/y.hpp", "2");
  scanner.forget();
  EXPECT_NE(scanner.scan("#include <lib/x.hpp>"), before);
}

TEST_F(IncludeScannerTest, OrderOfIncludesCounts) {
  write("i/lib/x.hpp", "1");
  write("i/lib/y.hpp", "2");
  IncludeScanner scanner({scratch() / "i"}, {"lib/"});
  EXPECT_NE(scanner.scan("#include <lib/x.hpp>\n#include <lib/y.hpp>"),
            scanner.scan("#include <lib/y.hpp>\n#include <lib/x.hpp>"));
}

TEST_F(IncludeScannerTest, ScansAGraphFromManyThreadsAlike) {
  constexpr int kHeaders = 64;
  for (const char* root : {"a", "b"}) {
    for (int i = 0; i < kHeaders; ++i) {
      std::string text = std::format("// {}\n", i);
      if (2 * i + 2 < kHeaders) {
        text += std::format("#include <lib/{}.hpp>\n#include \"{}.hpp\"\n", 2 * i + 1, 2 * i + 2);
      }
      write(std::format("{}/lib/{}.hpp", root, i), text);
    }
  }
  IncludeScanner shared({scratch() / "a"}, {"lib/"});
  std::vector<Digest> digests(8);
  {
    std::vector<std::jthread> threads;
    for (auto& digest : digests) {
      threads.emplace_back([&] { digest = shared.scan("#include <lib/0.hpp>"); });
    }
  }
  EXPECT_EQ(std::set<Digest>(digests.begin(), digests.end()).size(), 1u);
  EXPECT_EQ(digests[0], IncludeScanner({scratch() / "b"}, {"lib/"}).scan("#include <lib/0.hpp>"));
}

}  // namespace
}  // namespace deep_jit
