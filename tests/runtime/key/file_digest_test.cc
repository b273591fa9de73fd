// SPDX-License-Identifier: MIT
#include "deep_jit/key/file_digest.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deep_jit/base/file_descriptor.hpp"
#include "tests/runtime/runtime/scratch_test.hpp"

namespace deep_jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using FileDigestTest = testing::ScratchTest;

TEST_F(FileDigestTest, IsTheDigestOfAllBytes) {
  const std::string big((std::size_t{1} << 16) * 3 + 17, 'x');
  EXPECT_EQ(digest_file(write("big", big)), hash_bytes(big));
  EXPECT_EQ(digest_file(write("empty", "")), hash_bytes(""));
  EXPECT_EQ(digest_file(write("nul", std::string_view("a\0b", 3))),
            hash_bytes(std::string_view("a\0b", 3)));
  DJ_EXPECT_ERROR(exception::Exception, digest_file(scratch() / "none"),
                  AllOf(HasSubstr("failed to open for reading"), HasSubstr("none")));
  DJ_EXPECT_ERROR(exception::Exception, digest_file(scratch()), HasSubstr("failed to read"));
}

TEST_F(FileDigestTest, ALargeFileIsTheDigestOfItsParts) {
  std::string big(static_cast<std::size_t>(2 * kDigestPart + 3), '\0');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7 + i / 4096);
  const auto expected = [&big] {
    Hasher hasher;
    for (std::size_t begin = 0; begin < big.size(); begin += kDigestPart) {
      hasher.update(hash_bytes(std::string_view(big).substr(begin, kDigestPart)).hex());
    }
    return hasher.digest();
  };
  EXPECT_EQ(digest_file(write("big", big)), expected());
  big.back() = static_cast<char>(big.back() + 1);
  EXPECT_EQ(digest_file(write("big", big)), expected());
  big.resize(kDigestPart);
  EXPECT_EQ(digest_file(write("big", big)), hash_bytes(big));
}

// Several changes between two ticks of a file system's clock.
TEST_F(FileDigestTest, SeesEveryChangeOfTheSameSize) {
  const auto path = write("file", "00000");
  const FileDescriptor file = open_file(AT_FDCWD, path.c_str(), O_WRONLY);
  ASSERT_TRUE(file.is_open());
  for (int i = 0; i < 3000; ++i) {
    const std::string content = std::to_string(10000 + i);
    ASSERT_EQ(::pwrite(file.get(), content.data(), content.size(), 0), 5);
    ASSERT_EQ(digest_file(path), hash_bytes(content));
  }
}

// The memo holds what no file has: whoever takes it has not read the file.
TEST_F(FileDigestTest, TheMemoAnswersForLargeFiles) {
  make_dirs(cache_root());
  const IdentityMemo memo(cache_root());
  const IdentityMemoScope scope(memo);
  const auto large = write("large", std::string(std::size_t{1} << 20, 'x'));
  const auto small = write("small", "x");
  for (const auto& path : {large, small}) {
    while (!FileIdentity::of(path)->is_settled()) {
    }
    memo.remember("digest " + path.string(), FileIdentity::of(path)->text(),
                  hash_bytes("forged").hex());
  }
  memo.flush();
  EXPECT_EQ(digest_file(large), hash_bytes("forged"));
  EXPECT_EQ(digest_file(small), hash_bytes("x"));
  const std::string other(std::size_t{1} << 20, 'y');
  write("large", other);
  while (!FileIdentity::of(large)->is_settled()) {
  }
  EXPECT_EQ(digest_file(large), hash_bytes(other));
  memo.flush();
  EXPECT_EQ(memo.find("digest " + large.string(), FileIdentity::of(large)->text()),
            hash_bytes(other).hex());
}

TEST(FileIdentity, IsSettledWhenTheLastChangeIsLongAgo) {
  const auto is_settled = [](long long seconds_ago, long nanoseconds) {
    struct stat status{};
    status.st_ctim.tv_sec = ::time(nullptr) - seconds_ago;
    status.st_ctim.tv_nsec = nanoseconds;
    return FileIdentity(status).is_settled();
  };
  EXPECT_TRUE(is_settled(60, 0));
  EXPECT_TRUE(is_settled(60, 5));
  EXPECT_FALSE(is_settled(-60, 5)) << "changed, by the clock of another machine";
  EXPECT_FALSE(is_settled(0, 0)) << "a clock that counts in seconds";
  struct stat old_times{};
  old_times.st_ctim.tv_sec = ::time(nullptr) + 60;
  old_times.st_mtim.tv_sec = 0;
  EXPECT_FALSE(FileIdentity(old_times).is_settled()) << "the time of modification can be set";
}

TEST_F(FileDigestTest, SeesAChangeOfAFileThatItRemembers) {
  const auto path = write("file", "old");
  const auto identity = FileIdentity::of(path);
  ASSERT_TRUE(identity);
  for (int i = 0; i < 500'000'000 && !identity->is_settled(); ++i) {
  }
  ASSERT_TRUE(identity->is_settled()) << "after a tenth of a second, or two at worst";
  EXPECT_EQ(digest_file(path), hash_bytes("old"));
  EXPECT_EQ(digest_file(path), hash_bytes("old"));
  const auto time = std::filesystem::last_write_time(path);
  write("file", "new");
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(FileIdentity::of(path), identity);
  EXPECT_EQ(digest_file(path), hash_bytes("new"));
}

TEST_F(FileDigestTest, FollowsALinkThatIsTurned) {
  write("one", "1");
  write("two", "2");
  const auto link = scratch() / "link";
  std::filesystem::create_symlink("one", link);
  EXPECT_EQ(digest_file(link), hash_bytes("1"));
  std::filesystem::create_symlink("two", scratch() / "new");
  std::filesystem::rename(scratch() / "new", link);
  EXPECT_EQ(digest_file(link), hash_bytes("2"));
  EXPECT_EQ(FileIdentity::of(scratch() / "none"), std::nullopt);
}

}  // namespace
}  // namespace deep_jit
