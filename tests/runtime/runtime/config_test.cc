// SPDX-License-Identifier: MIT
#include "deep_jit/runtime/config.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Config, NormalizesPaths) {
  const Config config("/opt/./mylib/x/..", "MYLIB", "v1", {"/opt/a/../b", "/c"}, {"b/"},
                      "python3.11", {"/var/./cache", "/d/../e"}, DependencyMode::kTracked,
                      "/opt/cuda/.");
  EXPECT_EQ(config.python_library_root.lexically_relative("/opt/mylib"), ".");
  EXPECT_EQ(config.include_dirs, (std::vector<std::filesystem::path>{"/opt/b", "/c"}));
  EXPECT_EQ(config.get_python_path("a/../hook.py"), "/opt/mylib/hook.py");
  EXPECT_EQ(config.python_executable, "python3.11");
  EXPECT_EQ(config.cache_dirs, (std::vector<std::filesystem::path>{"/var/cache", "/e"}));
  EXPECT_TRUE(Config("/opt/mylib", "MYLIB", "v1", {"/c"}, {"b/"}).cache_dirs.empty());
  EXPECT_EQ(config.dependency_mode, DependencyMode::kTracked);
  EXPECT_EQ(config.toolkit_root, "/opt/cuda/");
  EXPECT_TRUE(Config("/opt/mylib", "MYLIB").toolkit_root.empty());
}

TEST(Config, RefusesWhatCannotWork) {
  DJ_EXPECT_ERROR(exception::Exception, Config("", "MYLIB"),
                  HasSubstr("Python library root must not be empty"));
  DJ_EXPECT_ERROR(exception::Exception, Config("mylib", "MYLIB"),
                  AllOf(HasSubstr("Python library root must be absolute"), HasSubstr("`mylib`")));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", ""), HasSubstr("prefix must not be empty"));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", "DJ"),
                  HasSubstr("reserved for global environment variables"));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", "MYLIB", "", {"/a", ""}),
                  HasSubstr("include directory must not be empty"));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", "MYLIB", "", {"a/b"}),
                  AllOf(HasSubstr("include directory must be absolute"), HasSubstr("`a/b`")));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", "MYLIB", "", {}, {}, "", {"/a", ""}),
                  HasSubstr("cache directory must not be empty"));
  DJ_EXPECT_ERROR(exception::Exception, Config("/x", "MYLIB", "", {}, {}, "", {"a/b"}),
                  AllOf(HasSubstr("cache directory must be absolute"), HasSubstr("`a/b`")));
  DJ_EXPECT_ERROR(exception::Exception,
                  Config("/x", "MYLIB", "", {}, {}, "", {}, DependencyMode::kTracked, "cuda"),
                  AllOf(HasSubstr("toolkit root must be absolute"), HasSubstr("`cuda`")));
}

TEST(Config, DescribesItselfInOrder) {
  EXPECT_EQ(Config("/x", "MYLIB", "v1", {"/a"}, {"a/", "b/"}).to_json().dump(),
            R"({"python_library_root":"/x","extra_signature":"v1","include_dirs":["/a"],)"
            R"("include_prefixes":["a/","b/"]})");
}

}  // namespace
}  // namespace deep_jit
