// SPDX-License-Identifier: MIT
#include "deep_jit/key/dependencies.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::HasSubstr;

class DependenciesTest : public testing::ScratchTest {
 protected:
  DependencyRoots roots(const std::vector<std::string>& dirs = {"one", "two"}) const {
    DependencyRoots roots{.include_dirs = {}, .compiler_home = scratch() / "compiler"};
    for (const auto& dir : dirs) roots.include_dirs.push_back(scratch() / dir);
    return roots;
  }
  std::string add(const std::string& name, const std::string& content = "x") const {
    return write(name, content).string();
  }
  Dependencies record(const std::vector<std::string>& files) const {
    return Dependencies::record(files, scratch() / "build", roots());
  }
};

TEST_F(DependenciesTest, SaysWhereEachHeaderIs) {
  const std::string x = hash_bytes("x").hex();
  add("one/lib/both.hpp");
  const auto recorded = record({
      "kernel.cc",
      "./kernel_prelude.hpp",
      (scratch() / "build/generated.hpp").string(),
      add("one/lib/a.hpp"),
      add("two/b b.hpp"),
      add("two/lib/both.hpp"),
      add("compiler/lib/c++/vector"),
      add("elsewhere/c.h"),
      "../elsewhere/c.h",
      add("elsewhere/c.h"),
  });
  EXPECT_EQ(recorded.serialize(), "deep_jit-dependencies 1\n" + x + " 1 lib/both.hpp\n" + x +
                                      " absolute " + (scratch() / "elsewhere/c.h").string() + "\n" +
                                      x + " compiler lib/c++/vector\n" + x + " search b b.hpp\n" +
                                      x + " search lib/a.hpp\n");
  EXPECT_EQ(Dependencies::parse(recorded.serialize()), recorded);
  EXPECT_EQ(recorded.size(), 5u);
  EXPECT_TRUE(recorded.matches(roots()));
  DJ_EXPECT_ERROR(exception::Exception, record({"/none/of/this.h"}),
                  HasSubstr("failed to open for reading: /none/of/this.h"));
}

TEST_F(DependenciesTest, DotsAndLinksKeepTheirMeaning) {
  add("real/deep/a.hpp", "deep");
  add("real/b.hpp", "behind the link");
  add("one/b.hpp", "not meant");
  std::filesystem::create_directory_symlink(scratch() / "real/deep", scratch() / "one/link");
  const auto recorded = record({(scratch() / "one/link/../b.hpp").string()});
  EXPECT_TRUE(recorded.matches(roots()));
  add("one/b.hpp", "still not meant");
  EXPECT_TRUE(recorded.matches(roots()));
  add("real/b.hpp", "changed");
  EXPECT_FALSE(recorded.matches(roots()));
}

TEST_F(DependenciesTest, VerifiesInAnotherPlace) {
  const auto recorded = record({add("one/a.hpp"), add("two/b.hpp"), add("compiler/c")});
  DependencyRoots moved = roots({"new/uno", "new/due"});
  moved.compiler_home = scratch() / "new/compiler";
  EXPECT_FALSE(recorded.matches(moved));
  add("new/uno/a.hpp");
  add("new/due/b.hpp");
  EXPECT_FALSE(recorded.matches(moved));
  add("new/compiler/c");
  EXPECT_TRUE(recorded.matches(moved));
}

TEST_F(DependenciesTest, SeesWhatASearchWouldFindToday) {
  const auto recorded = record({add("two/a.hpp", "a")});
  add("one/a.hpp", "hides it");
  EXPECT_FALSE(recorded.matches(roots()));
  add("one/a.hpp", "a");
  EXPECT_TRUE(recorded.matches(roots())) << "the same bytes are the same header";
  // One that was read although another directory comes first: a quoted include.
  add("one/b.hpp", "not read");
  const auto exact = record({add("two/b.hpp", "b")});
  EXPECT_TRUE(exact.matches(roots()));
  EXPECT_FALSE(exact.matches(roots({"two", "one"})));
  EXPECT_FALSE(exact.matches(roots({"two"})));
}

TEST_F(DependenciesTest, SeesContentOnly) {
  const auto recorded = record({add("elsewhere/a", "1"), add("one/b", "2")});
  add("elsewhere/a", "1");
  EXPECT_TRUE(recorded.matches(roots()));
  add("elsewhere/a", "3");
  EXPECT_FALSE(recorded.matches(roots()));
  EXPECT_NE(record({add("elsewhere/a", "3"), add("one/b", "2")}), recorded);
  add("elsewhere/a", "1");
  std::filesystem::remove(scratch() / "one/b");
  EXPECT_FALSE(recorded.matches(roots()));
}

TEST_F(DependenciesTest, RefusesWhatIsNotOfThisVersion) {
  const std::string head = "deep_jit-dependencies 1\n";
  const std::string digest = hash_bytes("x").hex();
  EXPECT_EQ(Dependencies::parse(head)->size(), 0u);
  EXPECT_TRUE(Dependencies::parse(head + digest + " search a\n"));
  EXPECT_TRUE(Dependencies::parse(head + digest + " absolute /a b\n"));
  EXPECT_TRUE(Dependencies::parse(head + digest + " 12 a\n"));
  for (const std::string& bad :
       {std::string(), std::string("deep_jit-dependencies 1"),
        std::string("deep_jit-dependencies 2\n"), head + digest, head + digest + " search a",
        head + digest + "\n", head + digest + " search\n", head + digest + " search \n",
        head + digest + " nowhere a\n", head + digest + " -1 a\n", head + digest + " 1x a\n",
        head + digest + "  a\n", head + digest + " absolute a\n", head + digest + " search /a\n",
        head + digest + " search a" + std::string(1, '\0') + "\n", head + "\n",
        head + digest.substr(1) + " search a\n", head + digest + " 99999999999999999999999 a\n",
        head + std::string((std::size_t{16} << 20), 'x') + "\n"}) {
    EXPECT_FALSE(Dependencies::parse(bad)) << bad.substr(0, 200);
  }
}

TEST_F(DependenciesTest, ReadsTheListOfAnEntry) {
  const auto entry = scratch() / "entry";
  EXPECT_FALSE(Dependencies::of_entry(entry));
  const auto recorded = record({add("one/a")});
  write("entry/dependencies", recorded.serialize());
  EXPECT_EQ(Dependencies::of_entry(entry), recorded);
}

}  // namespace
}  // namespace deep_jit
