// SPDX-License-Identifier: MIT
//
// Fake: a backend without a compiler, for the tests of Runtime.
//
// What: "compiling" writes the flags, the source and the headers that the test names into a file;
// hooks and counters let a test watch and break each step. When not: the tests of the Host backend
// use a real compiler.
//
// Errors: those that a hook throws. Thread-safety: counters are atomic; set hooks before threads.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/dependencies.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/options_fields.hpp"
#include "deep_jit/runtime/post_hook.hpp"

namespace deep_jit::testing {

struct FakeState {
  std::atomic<int> compiles = 0;
  std::atomic<int> loads = 0;
  std::atomic<int> flag_vectors = 0;
  std::string version = "fake 1.0";
  std::string key_part = "part";
  std::vector<std::string> headers;  // What it reads under DependencyMode::kVerified.
  std::function<void(const std::filesystem::path&)> on_compile;  // Before anything is written.
  std::function<void(const std::filesystem::path&)> on_load;
};

inline FakeState& fake() {
  static FakeState state;
  return state;
}

struct FakeBackend {
  struct Device {};

  struct CompilerOptions {
    std::optional<std::string> level = {};
    std::vector<std::string> extra_flags = {};
    std::optional<std::string> post_hook = {};

    static CompilerOptions default_options(const Env&, const Device&) { return {.level = "1"}; }
    CompilerOptions override_with(const CompilerOptions& overrides) const {
      return override_fields(*this, overrides);
    }
    std::vector<std::string> get_flags() const {
      ++fake().flag_vectors;
      std::vector<std::string> flags = {"-O" + level.value_or("?")};
      flags.insert(flags.end(), extra_flags.begin(), extra_flags.end());
      return flags;
    }
    nlohmann::ordered_json to_json() const { return fields_to_json(*this); }
    template <class Self, class F>
    static void visit_fields(Self& self, F&& f) {
      f("level", self.level);
      f("extra_flags", self.extra_flags);
      f("post_hook", self.post_hook);
    }
  };

  struct LaunchOptions {
    std::optional<int> grid = {};
    std::optional<int> block = {};

    static LaunchOptions default_options(const Env&) { return {.grid = 7}; }
    LaunchOptions override_with(const LaunchOptions& overrides) const {
      return override_fields(*this, overrides);
    }
    template <class Self, class F>
    static void visit_fields(Self& self, F&& f) {
      f("grid", self.grid);
      f("block", self.block);
    }
  };

  struct Kernel {
    std::string content;
    void launch(const LaunchOptions& options, int* grid, int* block) const {
      *grid = options.grid.value_or(-1);
      *block = options.block.value_or(-1);
    }
  };

  struct CompilerInfo {
    CompilerIdentity identity;
    nlohmann::ordered_json to_json() const { return {{"version", identity.version}}; }
  };

  static constexpr std::string_view kName = "fake";
  CompilerInfo info;

  FakeBackend(const Env&, const Config&) : info{{fake().version, Digest{1, 2}}} {}

  const CompilerInfo& get_compiler_info() const { return info; }
  void add_to_key(Key& key) const { key.add("fake part", fake().key_part); }

  std::vector<std::string> compile(const std::string& source,
                                   const std::filesystem::path& directory, const Env& env,
                                   const Config& config, const CompilerOptions& options) const {
    ++fake().compiles;
    const DependencyRoots roots{.include_dirs = config.include_dirs, .compiler_home = {}};
    const auto before = Dependencies::record(fake().headers, directory, roots);
    if (fake().on_compile) fake().on_compile(directory);
    std::string content;
    for (const auto& flag : options.get_flags()) content += flag + " ";
    content += source;
    for (const auto& header : fake().headers) content += "|" + read(header);
    write_file_sync(directory / "artifact", content);
    if (config.dependency_mode == DependencyMode::kVerified) {
      const auto after = Dependencies::record(fake().headers, directory, roots);
      if (before != after) throw InputsChanged{};
      write_file_sync(directory / kDependenciesFileName, after.serialize());
    }
    run_post_hook(config, env, options.post_hook, directory / "artifact", source,
                  options.to_json());
    return {"fake", "compile"};
  }

  static std::shared_ptr<Kernel> load(const std::filesystem::path& directory, const Env&) {
    ++fake().loads;
    if (fake().on_load) fake().on_load(directory);
    return std::make_shared<Kernel>(Kernel{read(directory / "artifact")});
  }
};

}  // namespace deep_jit::testing
