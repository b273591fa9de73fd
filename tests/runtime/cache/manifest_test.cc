// SPDX-License-Identifier: MIT
#include "deep_jit/cache/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <format>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The text that format version 1 has had since it exists. It must never change: entries on disk
// have it. Digests: XXH3-128 of "abc" and of nothing, checked against another program.
constexpr std::string_view kGoldenFiles =
    "deep_jit-entry 1\n"
    "file 3 06b05ab6733a618578af5f94892f3950 kernel.so\n"
    "file 0 99aa06d3014798d86001c324468d497f sub/a b.txt\n";

Manifest golden() {
  return {.files = {{.name = "kernel.so", .size = 3, .digest = hash_bytes("abc")},
                    {.name = "sub/a b.txt", .size = 0, .digest = hash_bytes("")}}};
}

std::string with_checksum(std::string_view lines) {
  return std::string(lines) + "checksum " + hash_bytes(lines).hex() + "\n";
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const exception::CacheError& error) {
    return error.message;
  }
  return "no CacheError thrown";
}

class ManifestDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    make_dirs(directory_ / "sub");
    write_file_sync(directory_ / "kernel.so", "abc");
    write_file_sync(directory_ / "sub/a b.txt", "");
  }
  const TestDirectory directory_;
};

TEST(ManifestTest, GoldenText) {
  EXPECT_EQ(golden().serialize(),
            std::string(kGoldenFiles) + "checksum 8f8c6a82ca1f5ac20a32434aac96016c\n");
  EXPECT_EQ(Manifest{}.serialize(), with_checksum("deep_jit-entry 1\n"));
}

TEST(ManifestTest, ParseIsTheInverse) {
  const auto parsed = Manifest::parse(golden().serialize());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->files, golden().files);
  const auto empty = Manifest::parse(Manifest{}.serialize());
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE(empty->files.empty());
}

TEST(ManifestTest, NamesHoldAnyBytes) {
  Manifest manifest;
  manifest.files.push_back({.name = " \x01 \"'$(x) ", .size = 1, .digest = {}});
  manifest.files.push_back({.name = "-", .size = UINT64_MAX, .digest = {}});
  manifest.files.push_back({.name = "..a/...", .size = 1, .digest = {}});
  manifest.files.push_back({.name = "\xff\xfe", .size = 1, .digest = {}});
  const auto parsed = Manifest::parse(manifest.serialize());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->files, manifest.files);
}

TEST(ManifestTest, EveryTruncationIsRefused) {
  const std::string text = golden().serialize();
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(Manifest::parse(text.substr(0, size)), std::nullopt) << size;
  }
  EXPECT_EQ(Manifest::parse(text + "\n"), std::nullopt);
  EXPECT_EQ(Manifest::parse(text + text), std::nullopt);
}

TEST(ManifestTest, EveryFlippedBitIsRefused) {
  const std::string text = golden().serialize();
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] ^= static_cast<char>(1 << bit);
      EXPECT_EQ(Manifest::parse(damaged), std::nullopt) << i << "/" << bit;
    }
  }
}

TEST(ManifestTest, RefusesUnsafeAndUncanonicalText) {
  const auto parse_file = [](std::string_view file) {
    return Manifest::parse(with_checksum("deep_jit-entry 1\n" + std::string(file) + "\n"));
  };
  const std::string digest(32, '0');
  EXPECT_NE(parse_file("file 0 " + digest + " a"), std::nullopt);
  for (const std::string name :
       {"", "/a", "..", "../a", "a/..", "a/../b", ".", "./a", "a//b", "a/", ".committed"}) {
    EXPECT_EQ(parse_file("file 0 " + digest + " " + name), std::nullopt) << name;
  }
  EXPECT_EQ(parse_file("file 0 " + digest + " a" + std::string(1, '\0') + "b"), std::nullopt);
  for (const std::string size : {"", "-1", "+1", "01", "1x", "18446744073709551616", " 1"}) {
    EXPECT_EQ(parse_file("file " + size + " " + digest + " a"), std::nullopt) << size;
  }
  EXPECT_EQ(parse_file("file 0 " + std::string(32, 'A') + " a"), std::nullopt);
  EXPECT_EQ(parse_file("file 0 " + digest.substr(1) + " a"), std::nullopt);
  const std::string line = "file 0 " + digest + " ";
  EXPECT_NE(parse_file(line + "a\n" + line + "b"), std::nullopt);
  EXPECT_EQ(parse_file(line + "b\n" + line + "a"), std::nullopt);
  EXPECT_EQ(parse_file(line + "a\n" + line + "a"), std::nullopt);
  EXPECT_EQ(parse_file("unknown"), std::nullopt);
}

TEST(ManifestTest, IsBounded) {
  const auto with_files = [](std::size_t count, std::size_t name_size) {
    Manifest manifest;
    for (std::size_t i = 0; i < count; ++i) {
      manifest.files.push_back({.name = std::format("{:05}{}", i, std::string(name_size, 'n')),
                                .size = 0,
                                .digest = {}});
    }
    return manifest.serialize();
  };
  EXPECT_NE(Manifest::parse(with_files(4096, 1)), std::nullopt);
  EXPECT_EQ(Manifest::parse(with_files(4097, 1)), std::nullopt);
  EXPECT_EQ(Manifest::parse(with_files(4096, 250)), std::nullopt);  // more than 1 MiB
}

TEST(ManifestTest, OtherVersions) {
  const std::string next = with_checksum("deep_jit-entry 2\nsomething new\n");
  EXPECT_EQ(Manifest::parse(next), std::nullopt);
  EXPECT_TRUE(Manifest::is_other_version(next));
  EXPECT_FALSE(Manifest::is_other_version(golden().serialize()));
  EXPECT_FALSE(Manifest::is_other_version("deep_jit-entry 1x\n"));
  EXPECT_FALSE(Manifest::is_other_version("deep_jit-entry 2"));
  EXPECT_FALSE(Manifest::is_other_version(""));
  EXPECT_FALSE(Manifest::is_other_version("something else\n"));
}

TEST_F(ManifestDirectoryTest, DescribesItsFiles) {
  write_file_sync(directory_ / ".committed", "not part of itself");
  EXPECT_EQ(Manifest::of_directory(directory_.path()).files, golden().files);
  EXPECT_TRUE(golden().matches(directory_.path()));
}

TEST_F(ManifestDirectoryTest, SortsByBytes) {
  for (const char* name : {"b", "a", "B", "\xc3\xa9", "sub.x", "sub/z"}) {
    write_file_sync(directory_ / name, "x");
  }
  std::vector<std::string> names;
  for (const ManifestFile& file : Manifest::of_directory(directory_.path()).files) {
    names.push_back(file.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"B", "a", "b", "kernel.so", "sub.x", "sub/a b.txt",
                                             "sub/z", "\xc3\xa9"}));
  const Manifest manifest = Manifest::of_directory(directory_.path());
  EXPECT_EQ(Manifest::parse(manifest.serialize())->files, manifest.files);
}

TEST_F(ManifestDirectoryTest, LargeFileOverChunks) {
  std::string data(3'000'001, 'x');
  data[2'999'999] = '\0';
  write_file_sync(directory_ / "large", data);
  const Manifest manifest = Manifest::of_directory(directory_.path());
  EXPECT_EQ(manifest.files[1].size, 3'000'001U);
  EXPECT_EQ(manifest.files[1].digest, hash_bytes(data));
  EXPECT_TRUE(manifest.matches(directory_.path()));
}

TEST_F(ManifestDirectoryTest, RefusesWhatItCannotVouchFor) {
  fs::create_symlink("kernel.so", directory_ / "link");
  EXPECT_THAT(error_of([&] { Manifest::of_directory(directory_.path()); }),
              HasSubstr((directory_ / "link").string()));
  fs::remove(directory_ / "link");
  ASSERT_EQ(::mkfifo((directory_ / "sub/fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { Manifest::of_directory(directory_.path()); }),
              HasSubstr("only regular files"));
  fs::remove(directory_ / "sub/fifo");
  write_file_sync(directory_ / "new\nline", "");
  EXPECT_THAT(error_of([&] { Manifest::of_directory(directory_.path()); }),
              HasSubstr("no newline"));
  EXPECT_THAT(error_of([&] { Manifest::of_directory(directory_ / "none"); }),
              HasSubstr("No such file or directory"));
}

TEST_F(ManifestDirectoryTest, NoticesEveryChange) {
  const auto matches = [&] { return golden().matches(directory_.path()); };
  const fs::path file = directory_ / "kernel.so";
  EXPECT_TRUE(matches());
  write_file_sync(directory_ / "extra", "does not matter");
  EXPECT_TRUE(matches());
  for (const std::string content : {"", "ab", "abd", "abcd", "Abc"}) {
    write_file_sync(file, content);
    EXPECT_FALSE(matches()) << content;
  }
  write_file_sync(file, "abc");
  EXPECT_TRUE(matches());

  fs::rename(file, directory_ / "elsewhere");
  EXPECT_FALSE(matches());
  fs::create_symlink("elsewhere", file);  // the same bytes, but through a link
  EXPECT_FALSE(matches());
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_FALSE(matches());
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(matches());
  fs::remove(file);
  fs::rename(directory_ / "elsewhere", file);
  EXPECT_TRUE(matches());

  fs::rename(directory_ / "sub", directory_ / "moved");
  fs::create_directory_symlink("moved", directory_ / "sub");  // a directory through a link
  EXPECT_FALSE(matches());
  EXPECT_FALSE(golden().matches(directory_ / "none"));
  EXPECT_FALSE(golden().matches(file));
}

TEST_F(ManifestDirectoryTest, DoesNotLeaveTheDirectory) {
  write_file_sync(directory_ / "outside", "abc");
  Manifest manifest{.files = {{.name = "../outside", .size = 3, .digest = hash_bytes("abc")}}};
  EXPECT_FALSE(manifest.matches(directory_ / "sub"));
  manifest.files[0].name = (directory_ / "outside").string();
  EXPECT_FALSE(manifest.matches(directory_ / "sub"));
}

}  // namespace
}  // namespace deep_jit
