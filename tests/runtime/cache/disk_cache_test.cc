// SPDX-License-Identifier: MIT
#include "deep_jit/cache/disk_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/interrupt.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/unique_name.hpp"
#include "deep_jit/cache/build_directory.hpp"
#include "deep_jit/cache/byte_range_lock.hpp"
#include "deep_jit/cache/manifest.hpp"
#include "tests/runtime/base/child_process.hpp"
#include "tests/runtime/base/test_directory.hpp"

namespace {
// While not 0, the two renames fail with these errors: full disks, and filesystems that cannot.
int injected_rename_error = 0;
int injected_exchange_error = 0;
}  // namespace

// These take the place of libc's in this test.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (injected_rename_error != 0) {
    errno = injected_rename_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int renameat2(int from_fd, const char* from, int to_fd, const char* to,
                         unsigned flags) noexcept {
  if (injected_exchange_error != 0) {
    errno = injected_exchange_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
}

namespace deep_jit {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Names = std::set<std::string>;

const std::string kTag = "scale";
const std::string kDigest = "0123456789abcdef0123456789abcdef";

template <class Error = exception::Exception>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.message;
  }
  return "nothing thrown";
}

// What is logged at kWarning while it lives.
class LogLines {
 public:
  LogLines()
      : old_(set_log_sink([this](LogLevel level, std::string_view line) {
          if (level == LogLevel::kWarning) {
            warnings_.emplace_back(line);
          }
        })) {}
  ~LogLines() { set_log_sink(old_); }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> warnings_;
  LogSink old_;
};

class DiskCacheTest : public ::testing::Test {
 protected:
  fs::path root(int index = 0) const { return directory_ / ("root" + std::to_string(index)); }
  fs::path entry(int index = 0) const { return root(index) / "cache" / (kTag + "." + kDigest); }
  DiskCache cache() const { return DiskCache({root()}); }

  // A build of two files that hold `text`.
  static PendingEntry build(const DiskCache& cache, const std::string& text) {
    PendingEntry pending = cache.begin(kTag, kDigest);
    write_file_sync(pending.directory() / "kernel.so", "binary " + text);
    make_dirs(pending.directory() / "asm");
    write_file_sync(pending.directory() / "asm/kernel.s", "text " + text);
    return pending;
  }
  static void publish(const fs::path& root, const std::string& text) {
    build(DiskCache({root}), text).commit();
  }
  // What both files of an entry hold.
  static std::string content(const fs::path& entry) {
    const std::string text = read(entry / "kernel.so");
    EXPECT_EQ(text.substr(0, 7), "binary ");
    EXPECT_EQ(read(entry / "asm/kernel.s"), "text " + text.substr(7));
    return text.substr(7);
  }
  static std::string lookup(const DiskCache& cache) {
    const std::optional<fs::path> found = cache.lookup(kTag, kDigest);
    return found.has_value() ? content(*found) : "miss";
  }

  const TestDirectory directory_;
};

// --- Construction ---

TEST_F(DiskCacheTest, ConstructionTouchesNothing) {
  const DiskCache cache({root(), root(1)});
  EXPECT_EQ(names_in(directory_.path()), Names{});
  EXPECT_EQ(cache.lookup(kTag, kDigest), std::nullopt);
  EXPECT_EQ(names_in(directory_.path()), Names{});
  EXPECT_EQ(cache.counters().misses, 1U);
}

TEST_F(DiskCacheTest, RootsAreNormalizedAndMustExist) {
  const DiskCache cache({root() / "x/../y", "relative"});
  EXPECT_EQ(cache.paths, (std::vector<fs::path>{root() / "y", fs::current_path() / "relative"}));
  EXPECT_THAT(error_of([] { DiskCache({}); }), HasSubstr("not this->paths.empty()"));
  EXPECT_THAT(error_of([&] { DiskCache({root(), ""}); }), HasSubstr("contains an empty path"));
}

TEST_F(DiskCacheTest, FromEnvironment) {
  const auto paths_of = [](const char* value) {
    ::setenv("EXAMPLE_JIT_CACHE_DIR", value, 1);
    const std::vector<fs::path> paths = DiskCache::from_env(Env("EXAMPLE")).paths;
    ::unsetenv("EXAMPLE_JIT_CACHE_DIR");
    return paths;
  };
  EXPECT_EQ(paths_of("/a"), (std::vector<fs::path>{"/a"}));
  EXPECT_EQ(paths_of("/a b:/c/../d:/e"), (std::vector<fs::path>{"/a b", "/d", "/e"}));
  for (const char* bad : {"", ":", "/a:", ":/a", "/a::/b"}) {
    EXPECT_THAT(error_of([&] { paths_of(bad); }),
                AllOf(HasSubstr("contains an empty path"), HasSubstr("JIT_CACHE_DIR")))
        << bad;
  }
  ::unsetenv("EXAMPLE_JIT_CACHE_DIR");

  ::setenv("DJ_JIT_CACHE_DIR", "/global", 1);
  EXPECT_EQ(DiskCache::from_env(Env("EXAMPLE")).paths, (std::vector<fs::path>{"/global"}));
  EXPECT_EQ(paths_of("/own"), (std::vector<fs::path>{"/own"}));
  ::unsetenv("DJ_JIT_CACHE_DIR");

  const std::string home = get_env<std::string>("HOME");
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(DiskCache::from_env(Env("EXAMPLE")).paths,
            (std::vector<fs::path>{"/home/someone/.dj"}));
  for (const bool is_set : {true, false}) {
    is_set ? ::setenv("HOME", "", 1) : ::unsetenv("HOME");
    EXPECT_THAT(error_of([] { DiskCache::from_env(Env("EXAMPLE")); }),
                AllOf(HasSubstr("not home_path.empty()"),
                      HasSubstr("HOME environment variable must not be empty")));
  }
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(DiskCacheTest, RefusesBadNames) {
  for (const std::string bad : {"", "/", ".", "-", "a/b", "a b", "\xc3\xa9", "a.b"}) {
    EXPECT_THAT(error_of([&] { cache().lookup(bad, kDigest); }),
                HasSubstr("cache tag must contain only letters, digits, or underscores"));
    EXPECT_THAT(error_of([&] { cache().begin(bad, kDigest); }),
                HasSubstr("cache tag must contain only"));
    EXPECT_THAT(error_of([&] { cache().begin(kTag, bad); }),
                HasSubstr("cache digest must contain only"));
  }
  EXPECT_NO_THROW(cache().begin("aZ_09", "x"));
}

// --- The life of an entry ---

TEST_F(DiskCacheTest, PublishedEntryIsHitAndHasItsFiles) {
  const DiskCache cache = this->cache();
  PendingEntry pending = build(cache, "one");
  const fs::path building = pending.directory();
  EXPECT_EQ(building.parent_path(), root() / "tmp");
  EXPECT_EQ(lookup(cache), "miss");  // invisible before commit
  EXPECT_FALSE(fs::exists(root() / "cache"));

  EXPECT_EQ(pending.commit(), entry());
  EXPECT_EQ(pending.commit(), entry());  // may be called again
  EXPECT_EQ(pending.directory(), entry());
  EXPECT_EQ(lookup(cache), "one");
  EXPECT_EQ(cache.lookup(kTag, kDigest), entry());
  EXPECT_EQ(names_in(entry()), (Names{".committed", "asm", "kernel.so"}));
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
  EXPECT_EQ(names_in(root()), (Names{"cache", "lock", "tmp"}));
  EXPECT_EQ(cache.lookup("other", kDigest), std::nullopt);
  EXPECT_EQ(cache.lookup(kTag, "other"), std::nullopt);
  EXPECT_EQ(cache.counters().hits, 2U);
  EXPECT_EQ(cache.counters().misses, 3U);
  EXPECT_EQ(cache.counters().published, 1U);
  EXPECT_EQ(cache.counters().damaged, 0U);

  const std::optional<Manifest> manifest = Manifest::parse(read(entry() / ".committed"));
  ASSERT_TRUE(manifest.has_value());
  ASSERT_EQ(manifest->files.size(), 2U);
  EXPECT_EQ(manifest->files[0].name, "asm/kernel.s");
  EXPECT_EQ(manifest->files[1].digest, hash_bytes("binary one"));
}

TEST_F(DiskCacheTest, EntryStaysAfterItsPendingObject) {
  {
    build(cache(), "one").commit();
  }
  EXPECT_EQ(lookup(cache()), "one");
}

TEST_F(DiskCacheTest, AbandonedBuildIsRemoved) {
  fs::path building;
  {
    const PendingEntry pending = build(cache(), "one");
    building = pending.directory();
    EXPECT_TRUE(fs::exists(building / "kernel.so"));
  }
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
  EXPECT_EQ(lookup(cache()), "miss");
}

TEST_F(DiskCacheTest, MovedBuildHasOneOwner) {
  std::optional<PendingEntry> outer;
  {
    PendingEntry pending = build(cache(), "one");
    outer.emplace(std::move(pending));
  }
  EXPECT_EQ(names_in(root() / "tmp").size(), 1U);
  *outer = build(cache(), "two");  // drops the first
  EXPECT_EQ(names_in(root() / "tmp").size(), 1U);
  outer->commit();
  outer.reset();
  EXPECT_EQ(lookup(cache()), "two");
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
}

TEST_F(DiskCacheTest, ForkedChildLeavesTheBuildsOfItsParentAlone) {
  std::optional<PendingEntry> pending = build(cache(), "one");
  ChildProcess child([&] {
    pending.reset();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  pending->commit();
  EXPECT_EQ(lookup(cache()), "one");
}

TEST_F(DiskCacheTest, HitRefreshesTheMarker) {
  publish(root(), "one");
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  const fs::path marker = entry() / ".committed";
  ASSERT_EQ(::utimensat(AT_FDCWD, marker.c_str(), old, 0), 0);
  EXPECT_EQ(lookup(cache()), "one");
  struct stat status{};
  ASSERT_EQ(::stat(marker.c_str(), &status), 0);
  EXPECT_GT(status.st_mtim.tv_sec, 1000);
}

TEST_F(DiskCacheTest, MarkerLeftByTheBuildIsReplaced) {
  write_file_sync(directory_ / "victim", "precious");
  PendingEntry pending = build(cache(), "one");
  fs::create_symlink(directory_ / "victim", pending.directory() / ".committed");
  pending.commit();
  EXPECT_EQ(lookup(cache()), "one");
  EXPECT_EQ(read(directory_ / "victim"), "precious");
}

TEST_F(DiskCacheTest, StaleBuildsOfOthersAreLeftAlone) {
  make_dirs(root() / "tmp/1234-stale");
  write_file_sync(root() / "tmp/1234-stale/kernel.so", "x");
  publish(root(), "one");
  EXPECT_EQ(names_in(root() / "tmp"), Names{"1234-stale"});
  EXPECT_EQ(read(root() / "tmp/1234-stale/kernel.so"), "x");
}

TEST_F(DiskCacheTest, FirstBuildSweepsWhatDeadWritersLeft) {
  // Another user of the root, so that this process has not swept it yet.
  const auto abandon = [&] {
    const fs::path path = root() / "tmp" / unique_name();
    make_dirs(path);
    const timespec old{.tv_sec = std::time(nullptr) - 2 * 3600, .tv_nsec = 0};
    const timespec times[2] = {old, old};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path.filename().string();
  };
  abandon();
  const DiskCache cache = this->cache();
  EXPECT_EQ(lookup(cache), "miss");
  EXPECT_EQ(names_in(root() / "tmp").size(), 1U);  // looking up sweeps nothing
  build(cache, "one").commit();
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
  EXPECT_EQ(cache.counters().swept, 1U);
  const std::string next = abandon();
  build(cache, "two").commit();
  EXPECT_EQ(names_in(root() / "tmp"), Names{next});  // once an hour is enough
  EXPECT_EQ(cache.counters().swept, 1U);
}

// --- Several roots ---

TEST_F(DiskCacheTest, RootsAreSearchedInOrder) {
  const DiskCache cache({root(), root(1), root(2)});
  publish(root(2), "two");
  EXPECT_EQ(lookup(cache), "two");
  publish(root(1), "one");
  EXPECT_EQ(lookup(cache), "one");
  EXPECT_FALSE(fs::exists(root()));  // a hit elsewhere writes nothing here
  build(cache, "zero").commit();
  EXPECT_EQ(lookup(cache), "zero");
  EXPECT_EQ(content(entry(1)), "one");
  EXPECT_EQ(content(entry(2)), "two");
}

TEST_F(DiskCacheTest, UncommittedEntryNeitherHitsNorHidesAnother) {
  publish(root(1), "one");
  make_dirs(entry());
  write_file_sync(entry() / "kernel.so", "half");
  const DiskCache cache({root(), root(1)});
  EXPECT_EQ(lookup(cache), "one");
  EXPECT_EQ(names_in(entry()), Names{"kernel.so"});
  const DiskCache reversed({root(2), root()});
  EXPECT_EQ(lookup(reversed), "miss");
  EXPECT_EQ(names_in(entry()), Names{"kernel.so"});
}

TEST_F(DiskCacheTest, DamagedEntryDoesNotHideAnother) {
  publish(root(), "zero");
  publish(root(1), "one");
  write_file_sync(entry() / "kernel.so", "binary zerO");
  const DiskCache cache({root(), root(1)});
  EXPECT_EQ(lookup(cache), "one");
  EXPECT_EQ(cache.counters().damaged, 1U);
  EXPECT_EQ(cache.counters().hits, 1U);
}

TEST_F(DiskCacheTest, ReadOnlyRootHits) {
  publish(root(1), "one");
  const fs::path marker = entry(1) / ".committed";
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, marker.c_str(), old, 0), 0);
  for (const fs::path& path : {root(1), root(1) / "cache", entry(1), entry(1) / "asm"}) {
    fs::permissions(path, fs::perms(0555));
  }
  for (const fs::path& path : {marker, entry(1) / "kernel.so", entry(1) / "asm/kernel.s"}) {
    fs::permissions(path, fs::perms(0444));
  }
  fs::permissions(directory_.path(), fs::perms(0755));
  // root may write anywhere, so the child becomes somebody else. The directories above may be
  // closed to that one: it starts from its current directory. (Where a sandbox has one user only,
  // the user stays and owns the files: then only the hit is tested.)
  ChildProcess child([&] {
    if (::chdir(directory_.path().c_str()) != 0) {
      return 1;
    }
    const bool is_other = ::geteuid() == 0 and ::setresgid(65534, 65534, 65534) == 0 and
                          ::setresuid(65534, 65534, 65534) == 0;
    const fs::path here = "/proc/self/cwd";
    const DiskCache cache({here / "root0", here / "root1"});
    const std::optional<fs::path> found = cache.lookup(kTag, kDigest);
    if (not found.has_value() or read(*found / "kernel.so") != "binary one") {
      return 2;
    }
    struct stat status{};
    if (is_other and
        (::stat((*found / ".committed").c_str(), &status) != 0 or status.st_mtim.tv_sec != 1000)) {
      return 3;  // the touch should have failed, or this tests nothing
    }
    return cache.counters().hits == 1 and cache.counters().unreadable == 0 ? 0 : 4;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_FALSE(fs::exists(root()));
  for (const fs::path& path : {root(1), root(1) / "cache", entry(1), entry(1) / "asm"}) {
    fs::permissions(path, fs::perms(0755));
  }
}

TEST_F(DiskCacheTest, UnreadableRootIsAMiss) {
  write_file_sync(root(), "a file where a directory should be");
  const DiskCache alone({root()});
  EXPECT_EQ(lookup(alone), "miss");
  EXPECT_EQ(alone.counters().unreadable, 1U);
  EXPECT_EQ(alone.counters().damaged, 0U);
  publish(root(1), "one");
  const DiskCache both({root(), root(1)});
  EXPECT_EQ(lookup(both), "one");
  EXPECT_EQ(both.counters().unreadable, 1U);
  EXPECT_FALSE(both.lock(kDigest).is_locked());  // nor is there a lock to be had
}

// --- Damage and healing ---

TEST_F(DiskCacheTest, EveryDamageIsAMissAndIsHealed) {
  const fs::path marker = entry() / ".committed";
  const fs::path file = entry() / "kernel.so";
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"flipped byte", [&] { write_file_sync(file, "binary oNe"); }},
      {"truncated file", [&] { write_file_sync(file, "binary on"); }},
      {"empty file", [&] { write_file_sync(file, ""); }},
      {"longer file", [&] { write_file_sync(file, "binary one "); }},
      {"missing file", [&] { fs::remove(file); }},
      {"file in a subdirectory", [&] { write_file_sync(entry() / "asm/kernel.s", "text tne"); }},
      {"link to the same bytes",
       [&] {
         fs::rename(file, directory_ / "same");
         fs::create_symlink(directory_ / "same", file);
       }},
      {"directory as file",
       [&] {
         fs::remove(file);
         make_dirs(file / "sub");
       }},
      {"empty marker", [&] { write_file_sync(marker, ""); }},
      {"truncated marker",
       [&] {
         const std::string text = read(marker);
         write_file_sync(marker, text.substr(0, text.size() - 1));
       }},
      {"flipped bit in the marker",
       [&] {
         std::string text = read(marker);
         text[20] ^= 1;
         write_file_sync(marker, text);
       }},
      {"huge marker", [&] { write_file_sync(marker, std::string((1 << 20) + 1, 'x')); }},
      {"marker as link",
       [&] {
         fs::rename(marker, directory_ / "marker");
         fs::create_symlink(directory_ / "marker", marker);
       }},
      {"marker as directory",
       [&] {
         fs::remove(marker);
         make_dirs(marker / "sub");
       }},
      {"marker as FIFO",
       [&] {
         fs::remove(marker);
         EXPECT_EQ(::mkfifo(marker.c_str(), 0600), 0);
       }},
  };
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    fs::remove_all(root());
    publish(root(), "one");
    damage();
    const DiskCache cache = this->cache();
    EXPECT_EQ(lookup(cache), "miss");
    EXPECT_EQ(cache.counters().damaged, 1U);
    EXPECT_EQ(cache.counters().hits, 0U);
    EXPECT_EQ(build(cache, "healed").commit(), entry());
    EXPECT_EQ(lookup(cache), "healed");
    EXPECT_EQ(cache.counters().healed, 1U);
    EXPECT_EQ(cache.counters().published, 0U);
    EXPECT_EQ(names_in(root() / "tmp"), Names{});
    EXPECT_EQ(names_in(root() / "cache").size(), 1U);
  }
}

TEST_F(DiskCacheTest, OtherFormatVersionIsAMissAndIsReplaced) {
  publish(root(), "one");
  write_file_sync(entry() / ".committed", "deep_jit-entry 2\nwhatever comes next\n");
  const DiskCache cache = this->cache();
  EXPECT_EQ(lookup(cache), "miss");
  EXPECT_EQ(cache.counters().other_version, 1U);
  EXPECT_EQ(cache.counters().damaged, 0U);
  build(cache, "two").commit();
  EXPECT_EQ(lookup(cache), "two");
}

TEST_F(DiskCacheTest, WhateverIsInTheWayIsReplaced) {
  const std::vector<std::pair<std::string, std::function<void()>>> obstacles = {
      {"uncommitted directory",
       [&] {
         make_dirs(entry());
         write_file_sync(entry() / "kernel.so", "half");
       }},
      {"file", [&] { write_file_sync(entry(), "x"); }},
      {"dangling link", [&] { fs::create_symlink("/no/such/target", entry()); }},
  };
  for (const bool can_exchange : {true, false}) {
    for (const auto& [name, put] : obstacles) {
      SCOPED_TRACE(name);
      fs::remove_all(root());
      make_dirs(root() / "cache");
      put();
      const DiskCache cache = this->cache();
      EXPECT_EQ(lookup(cache), "miss");
      injected_exchange_error = can_exchange ? 0 : EINVAL;
      EXPECT_EQ(build(cache, "new").commit(), entry());
      injected_exchange_error = 0;
      EXPECT_EQ(lookup(cache), "new");
      EXPECT_EQ(cache.counters().healed, 1U);
      EXPECT_EQ(names_in(root() / "tmp"), Names{});
    }
  }
}

TEST_F(DiskCacheTest, DamagedEntryIsHealedWithoutExchange) {
  for (const int error : {EINVAL, ENOSYS}) {
    fs::remove_all(root());
    publish(root(), "one");
    write_file_sync(entry() / "kernel.so", "binary oNe");
    const DiskCache cache = this->cache();
    injected_exchange_error = error;
    build(cache, "healed").commit();
    injected_exchange_error = 0;
    EXPECT_EQ(lookup(cache), "healed");
    EXPECT_EQ(cache.counters().healed, 1U);
    EXPECT_EQ(names_in(root() / "tmp"), Names{});
  }
}

// --- Races ---

TEST_F(DiskCacheTest, LoserOfARaceUsesTheWinnersEntry) {
  const DiskCache cache = this->cache();
  PendingEntry first = build(cache, "first");
  PendingEntry second = build(cache, "second");
  EXPECT_EQ(second.commit(), entry());
  EXPECT_EQ(first.commit(), entry());
  EXPECT_EQ(content(first.directory()), "second");
  EXPECT_EQ(cache.counters().published, 1U);
  EXPECT_EQ(cache.counters().publish_races, 1U);
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
}

TEST_F(DiskCacheTest, EightProcessesCommitOneEntry) {
  constexpr int kProcesses = 8;
  constexpr int kWinner = 10;
  constexpr int kLoser = 20;
  for (const bool starts_damaged : {false, true}) {
    fs::remove_all(root());
    if (starts_damaged) {
      publish(root(), "damaged");
      write_file_sync(entry() / "kernel.so", "binary nonsense");
    }
    ProcessEvent built;
    ProcessEvent go;
    std::vector<ChildProcess> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.emplace_back([&, i] {
        const DiskCache cache = this->cache();
        PendingEntry pending = build(cache, std::to_string(i));
        built.signal();
        go.wait();
        const fs::path directory = pending.commit();
        const CacheCounters& counters = cache.counters();
        // Whoever won: one writer's files, whole.
        const std::string text = lookup(cache);
        if (directory != entry() or text.size() != 1 or counters.kept_private != 0) {
          return 1;
        }
        if (counters.published + counters.healed == 1 and counters.publish_races == 0) {
          return kWinner;
        }
        return counters.publish_races == 1 ? kLoser : 2;
      });
    }
    built.wait(kProcesses);
    EXPECT_EQ(lookup(cache()), "miss");
    EXPECT_EQ(names_in(root() / "tmp").size(), static_cast<std::size_t>(kProcesses));
    go.signal(kProcesses);
    int winners = 0;
    for (ChildProcess& child : children) {
      const int code = child.wait();
      EXPECT_TRUE(code == kWinner or code == kLoser) << code;
      winners += code == kWinner;
    }
    // Several may find the damaged entry at once, and heal it one after the other.
    EXPECT_GE(winners, 1);
    if (not starts_damaged) {
      EXPECT_EQ(winners, 1);
    }
    EXPECT_EQ(lookup(cache()).size(), 1U);
    EXPECT_EQ(names_in(root() / "tmp"), Names{});
    EXPECT_EQ(names_in(root() / "cache").size(), 1U);
  }
}

TEST_F(DiskCacheTest, KilledWriterPublishesNothing) {
  ProcessEvent built;
  ChildProcess writer([&] {
    const PendingEntry pending = build(cache(), "half");
    built.signal();
    for (;;) {
      ::pause();
    }
    return 0;
  });
  built.wait();
  writer.kill();
  EXPECT_EQ(writer.wait(), 137);
  EXPECT_EQ(lookup(cache()), "miss");
  const Names stale = names_in(root() / "tmp");
  EXPECT_EQ(stale.size(), 1U);
  publish(root(), "whole");
  EXPECT_EQ(lookup(cache()), "whole");
  EXPECT_EQ(names_in(root() / "tmp"), stale);
}

TEST_F(DiskCacheTest, WinnerThatCannotBeSeenDoesNotCostTheBuild) {
  const DiskCache cache = this->cache();
  fs::path kept;
  {
    PendingEntry pending = build(cache, "mine");
    injected_rename_error = ENOTEMPTY;  // "it is there", and yet nothing is to be seen
    kept = pending.commit();
    injected_rename_error = 0;
    EXPECT_EQ(pending.commit(), kept);
  }
  EXPECT_EQ(kept.parent_path(), root() / "tmp");
  EXPECT_EQ(content(kept), "mine");
  EXPECT_EQ(cache.counters().kept_private, 1U);
  EXPECT_EQ(cache.counters().published, 0U);
}

TEST_F(DiskCacheTest, KeptBuildIsNotSwept) {
  PendingEntry pending = build(cache(), "mine");
  injected_rename_error = ENOTEMPTY;
  const fs::path kept = pending.commit();
  injected_rename_error = 0;
  EXPECT_EQ(sweep_build_directories(root(), std::time(nullptr) + 100 * 3600), 0U);
  EXPECT_EQ(content(kept), "mine");
}

TEST_F(DiskCacheTest, FailedRenameWithAWinnerUsesIt) {
  publish(root(), "winner");
  PendingEntry pending = build(cache(), "mine");
  injected_rename_error = ESTALE;
  EXPECT_EQ(pending.commit(), entry());
  injected_rename_error = 0;
  EXPECT_EQ(content(entry()), "winner");
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
}

TEST_F(DiskCacheTest, CacheDirectoryRemovedMeanwhileIsMadeAgain) {
  PendingEntry pending = build(cache(), "one");
  write_file_sync(root() / "cache", "");
  EXPECT_THAT(error_of<exception::CacheError>([&] { pending.commit(); }),
              AllOf(HasSubstr((root() / "cache").string()), HasSubstr("Not a directory")));
  fs::remove(root() / "cache");
  EXPECT_EQ(pending.commit(), entry());  // the failure left the build as it was
  EXPECT_EQ(lookup(cache()), "one");
}

// --- Errors ---

TEST_F(DiskCacheTest, FailedPublicationIsAnErrorWithPathAndReason) {
  for (const auto& [error, text] :
       {std::pair{ENOSPC, "No space left on device"}, std::pair{EACCES, "Permission denied"},
        std::pair{EXDEV, "Invalid cross-device link"}}) {
    const DiskCache cache = this->cache();
    {
      PendingEntry pending = build(cache, "one");
      injected_rename_error = error;
      const std::string message = error_of<exception::CacheError>([&] { pending.commit(); });
      injected_rename_error = 0;
      EXPECT_THAT(message, AllOf(HasSubstr(entry().string()), HasSubstr(text)));
    }
    EXPECT_EQ(names_in(root() / "tmp"), Names{});
    EXPECT_EQ(names_in(root() / "cache"), Names{});
    EXPECT_EQ(cache.counters().published, 0U);
  }
}

TEST_F(DiskCacheTest, UnpublishedBuildCanBeUsedWhileItsObjectLives) {
  const DiskCache cache = this->cache();
  const LogLines lines;
  fs::path used;
  {
    PendingEntry pending = build(cache, "mine");
    pending.write_file("meta.json", "{}");
    injected_rename_error = ENOSPC;
    try {
      pending.commit();
    } catch (const exception::CacheError& failure) {
      used = pending.use_unpublished(failure);
    }
    injected_rename_error = 0;
    EXPECT_EQ(content(used), "mine");
    EXPECT_EQ(read(used / "meta.json"), "{}");
  }
  EXPECT_EQ(names_in(root() / "tmp"), Names{});
  EXPECT_EQ(cache.counters().kept_private, 1U);
  EXPECT_THAT(lines.warnings(), ElementsAre(AllOf(HasSubstr("without being kept in the cache"),
                                                  HasSubstr(entry().string()),
                                                  HasSubstr("No space left on device"))));
}

TEST_F(DiskCacheTest, FileThatCannotBeAddedIsACacheError) {
  const PendingEntry pending = build(cache(), "mine");
  EXPECT_THAT(error_of<exception::CacheError>([&] { pending.write_file("none/meta.json", "{}"); }),
              AllOf(HasSubstr("none/meta.json"), HasSubstr("No such file")));
}

TEST_F(DiskCacheTest, BuildThatVanishedIsAnError) {
  PendingEntry pending = build(cache(), "one");
  fs::remove_all(pending.directory());
  EXPECT_THAT(error_of<exception::CacheError>([&] { pending.commit(); }),
              AllOf(HasSubstr(pending.directory().string()), HasSubstr("No such file")));
}

TEST_F(DiskCacheTest, LinkInTheBuildIsAnError) {
  PendingEntry pending = build(cache(), "one");
  fs::create_symlink("kernel.so", pending.directory() / "link");
  EXPECT_THAT(error_of<UnfitBuild>([&] { pending.commit(); }),
              HasSubstr((pending.directory() / "link").string()));
}

TEST_F(DiskCacheTest, RootThatCannotBeMadeIsAnErrorOnlyWhenBuilding) {
  write_file_sync(directory_ / "file", "");
  const DiskCache cache({directory_ / "file/root"});
  EXPECT_EQ(lookup(cache), "miss");
  EXPECT_THAT(error_of<exception::CacheError>([&] { cache.begin(kTag, kDigest); }),
              AllOf(HasSubstr((directory_ / "file/root").string()), HasSubstr("Not a directory"),
                    HasSubstr("set the list of cache directories to")));
  // From the environment: the variable to set.
  ::setenv("EXAMPLE_JIT_CACHE_DIR", (directory_ / "file/root").c_str(), 1);
  const DiskCache chosen = DiskCache::from_env(Env("EXAMPLE"));
  ::unsetenv("EXAMPLE_JIT_CACHE_DIR");
  EXPECT_THAT(error_of<exception::CacheError>([&] { chosen.begin(kTag, kDigest); }),
              HasSubstr("set EXAMPLE_JIT_CACHE_DIR to a directory that this user may write to"));
}

// --- Trust ---

TEST_F(DiskCacheTest, WarnsOnceOfARootThatEverybodyMayWriteTo) {
  const auto warnings_of = [&](int index, int root_mode, int cache_mode) {
    publish(root(index), "one");
    EXPECT_EQ(::chmod(root(index).c_str(), root_mode), 0);
    EXPECT_EQ(::chmod((root(index) / "cache").c_str(), cache_mode), 0);
    const LogLines lines;
    // Under another name, because this process has looked at the root when it published.
    const DiskCache cache({directory_ / ("alias" + std::to_string(index))});
    fs::create_directory_symlink(root(index), cache.paths.front());
    EXPECT_EQ(lookup(cache), "one");
    EXPECT_EQ(lookup(cache), "one");
    EXPECT_EQ(lookup(DiskCache(cache.paths)), "one");
    return lines.warnings();
  };
  EXPECT_THAT(warnings_of(0, 0755, 0755), IsEmpty());
  EXPECT_THAT(warnings_of(1, 0775, 0775), IsEmpty());  // a group shares it
  EXPECT_THAT(warnings_of(2, 0777, 0755),
              ElementsAre(AllOf(HasSubstr((directory_ / "alias2").string() + ","),
                                HasSubstr("everybody may write"), HasSubstr("chmod o-w"))));
  EXPECT_THAT(warnings_of(3, 01777, 0755), IsEmpty());
  EXPECT_THAT(warnings_of(4, 01777, 01777),
              ElementsAre(HasSubstr((directory_ / "alias4/cache").string())));
}

TEST_F(DiskCacheTest, WarnsOfItsRootBeforeItBuilds) {
  make_dirs(root());
  ASSERT_EQ(::chmod(root().c_str(), 0777), 0);
  const LogLines lines;
  publish(root(), "one");
  publish(root(), "two");
  EXPECT_THAT(lines.warnings(), ElementsAre(HasSubstr(root().string())));
}

// --- Locks ---

TEST_F(DiskCacheTest, OneLockPerKeyInTheFirstRoot) {
  const DiskCache cache({root(), root(1)});
  const ByteRangeLock lock = cache.lock(kDigest);
  EXPECT_TRUE(lock.is_locked());
  EXPECT_EQ(names_in(root()), Names{"lock"});
  EXPECT_FALSE(fs::exists(root(1)));
  const std::int64_t offset = ByteRangeLock::offset_of(*Digest::from_hex(kDigest));
  EXPECT_EQ(ByteRangeLock::try_acquire(root() / "lock", offset), std::nullopt);
  EXPECT_TRUE(cache.lock("fedcba9876543210fedcba9876543210").is_locked());
  EXPECT_TRUE(cache.lock("not_hexadecimal").is_locked());
  ChildProcess other([&] {
    int asked = 0;
    const InterruptScope scope([&] { return ++asked == 2; });
    try {
      cache.lock(kDigest);
    } catch (const exception::Interrupted&) {
      return 0;  // it waited
    }
    return 1;
  });
  EXPECT_EQ(other.wait(), 0);
}

}  // namespace
}  // namespace deep_jit
