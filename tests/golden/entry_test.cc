// SPDX-License-Identifier: MIT
//
// Entries as each format version wrote them, byte by byte.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/cache/disk_cache.hpp"
#include "deep_jit/cache/entry_state.hpp"
#include "deep_jit/cache/manifest.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace deep_jit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {".committed", "asm/kernel.s", "kernel.txt", "kernel.so",
                                  "meta.json"};

class GoldenEntryTest : public ::testing::Test {
 protected:
  // Runfiles are links; an entry holds none.
  void publish(int version) const {
    fs::remove_all(entry_);
    for (const char* name : kFiles) {
      const fs::path golden = fs::path("tests/golden") / ("entry_v" + std::to_string(version));
      make_dirs((entry_ / name).parent_path());
      write_file_sync(entry_ / name, read(golden / name));
    }
  }

  const TestDirectory directory_;
  const DiskCache cache_ = DiskCache({directory_.path()});
  const fs::path entry_ = directory_ / "cache/scale.0123";
};

TEST_F(GoldenEntryTest, ThisVersionHasAFolderAndIsAHit) {
  publish(kEntryFormatVersion);
  EXPECT_EQ(check_entry(entry_), EntryState::kValid);
  EXPECT_EQ(cache_.lookup("scale", "0123"), entry_);
}

TEST_F(GoldenEntryTest, VersionOneIsWrittenTheSameAgain) {
  static_assert(kEntryFormatVersion == 1, "older versions are misses: test that instead");
  publish(1);
  const std::string golden = read(entry_ / kCommitFileName);
  EXPECT_EQ(golden.substr(0, 17), "deep_jit-entry 1\n");
  EXPECT_EQ(Manifest::of_directory(entry_).serialize(), golden);
  const std::optional<Manifest> manifest = Manifest::parse(golden);
  ASSERT_TRUE(manifest.has_value());
  ASSERT_EQ(manifest->files.size(), 4U);
  EXPECT_EQ(manifest->files[0].name, "asm/kernel.s");
  EXPECT_EQ(manifest->files[1].size, 256U);
}

TEST_F(GoldenEntryTest, OtherVersionsAreMissesAndAreReplaced) {
  for (const char* version : {"0", "2", "10", "4294967297"}) {
    publish(1);
    std::string text = read(entry_ / kCommitFileName);
    text.replace(15, 1, version);
    write_file_sync(entry_ / kCommitFileName, text);
    EXPECT_EQ(cache_.lookup("scale", "0123"), std::nullopt) << version;
    PendingEntry pending = cache_.begin("scale", "0123");
    write_file_sync(pending.directory() / "kernel.so", version);
    EXPECT_EQ(pending.commit(), entry_);
    EXPECT_EQ(cache_.lookup("scale", "0123"), entry_);
    EXPECT_EQ(read(entry_ / "kernel.so"), version);
  }
  EXPECT_EQ(cache_.counters().other_version, 4U);
  EXPECT_EQ(cache_.counters().damaged, 0U);
}

TEST_F(GoldenEntryTest, EveryFlippedBitOfAFileIsNoticed) {
  for (const char* name : kFiles) {
    publish(1);
    const std::string whole = read(entry_ / name);
    for (std::size_t i = 0; i < whole.size(); i += 1 + whole.size() / 16) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
      write_file_sync(entry_ / name, flipped);
      const EntryState state = check_entry(entry_);
      EXPECT_TRUE(state == EntryState::kDamaged or state == EntryState::kOtherVersion)
          << name << " byte " << i;
    }
  }
}

}  // namespace
}  // namespace deep_jit
