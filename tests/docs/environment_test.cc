// SPDX-License-Identifier: MIT
//
// The table in docs/reference/environment.md is the table in the code.
#include <format>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deep_jit/base/env.hpp"

namespace deep_jit {
namespace {

TEST(EnvironmentPage, ListsExactlyWhatIsRead) {
  std::ifstream page("docs/reference/environment.md");
  ASSERT_TRUE(page.is_open());
  std::vector<std::string> documented;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) {
      documented.push_back(line);
    }
  }
  std::vector<std::string> read;
  for (const EnvVariable& variable : kEnvVariables) {
    read.push_back(std::format("| `{}` | {} | `{}` | {} |", variable.suffix, variable.type,
                               variable.default_value, variable.description));
  }
  EXPECT_EQ(documented, read);
}

}  // namespace
}  // namespace deep_jit
