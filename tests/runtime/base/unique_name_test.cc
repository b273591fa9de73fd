// SPDX-License-Identifier: MIT
#include "deep_jit/base/unique_name.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/base/child_process.hpp"

namespace deep_jit {
namespace {

TEST(UniqueNameTest, Format) {
  const std::string prefix = std::to_string(::getpid());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(std::regex_match(unique_name(),
                                 std::regex(prefix + "-[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{8}")));
  }
}

TEST(UniqueNameTest, DiffersInAllThreads) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kNames = 2'000;
  std::vector<std::vector<std::string>> names(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : names) {
    threads.emplace_back([&own] {
      for (std::size_t i = 0; i < kNames; ++i) {
        own.push_back(unique_name());
      }
    });
  }
  std::set<std::string> all;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads[i].join();
    all.insert(names[i].begin(), names[i].end());
  }
  EXPECT_EQ(all.size(), kThreads * kNames);
}

// A generator that was seeded before fork would give both processes the same random part.
TEST(UniqueNameTest, RandomPartDiffersAfterFork) {
  unique_name();
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  ChildProcess child([&] {
    const std::string name = unique_name();
    return ::write(fds[1], name.data(), name.size()) == static_cast<ssize_t>(name.size()) ? 0 : 1;
  });
  const std::string own = unique_name();
  EXPECT_EQ(child.wait(), 0);
  char buffer[64];
  const ssize_t count = ::read(fds[0], buffer, sizeof(buffer));
  ::close(fds[0]);
  ::close(fds[1]);
  ASSERT_GT(count, 0);
  const std::string theirs(buffer, static_cast<std::size_t>(count));
  EXPECT_NE(own.substr(own.find('-')), theirs.substr(theirs.find('-')));
}

TEST(UniqueNameTest, IsRecognised) {
  EXPECT_TRUE(is_unique_name(unique_name()));
  EXPECT_TRUE(is_unique_name("1-00000000-9a9a9a9a-ffffffff"));
  for (const char* bad : {"", "1", "-00000000-00000000-00000000", "x-00000000-00000000-00000000",
                          "1-00000000-00000000-0000000", "1-00000000-00000000-0000000G",
                          "1-00000000-00000000-0000000F", "1-00000000-00000000-00000000-",
                          "1_00000000-00000000-00000000", "1-2-00000000-00000000-00000000"}) {
    EXPECT_FALSE(is_unique_name(bad)) << bad;
  }
}

}  // namespace
}  // namespace deep_jit
