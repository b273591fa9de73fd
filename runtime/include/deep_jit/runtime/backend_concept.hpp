// SPDX-License-Identifier: MIT
//
// Backend: what a class must supply so that Runtime can drive it.
//
// What: the C++20 concept, made of smaller ones so that the compiler's message names the piece that
// is missing. A backend knows how to compile a source into a directory, what else its binaries
// depend on, and how to load such a directory.
// When not: merging, keys, caches and metadata are Runtime's work, the same for every backend.
//
// Example: deep_jit::Host in backend/host/backend.hpp.
//
// Rules that the concept cannot state:
// - A backend with one compiler has get_compiler_info() and add_to_key(key); one whose options
// choose
//   the compiler has what ChoosesCompiler names instead, and compile() returns a CompileRecord.
//   What decides between them must be part of the key.
// - get_compiler_info() is asked for each key: it notices a compiler that was replaced in place.
// - compile() writes only below the given directory, leaves there what load() needs, returns the
//   command that made it (for meta.json), and throws exception::CompileError when it fails. It runs
//   the post hook (post_hook.hpp) when its options have one. Under DependencyMode::kVerified it
//   leaves the list of key/dependencies.hpp, and throws InputsChanged unless it knows that the
//   headers were the same before and after the compiler ran.
// - load() throws exception::CacheError when the artifact cannot be opened (the runtime then
//   compiles it again), any other exception when a fresh compile would fail the same way.
// - the const members may be called from many threads at once.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/key/compiler_identity.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/config.hpp"

namespace deep_jit {

// Thrown when what a compiler has read is no longer what was there before: the runtime starts the
// request again, under a new key.
struct InputsChanged {};

// What compile() tells of its work: the command that made the artifact, and what meta.json shall
// say of the compiler; null: what get_compiler_info() says.
struct CompileRecord {
  std::vector<std::string> command;
  nlohmann::ordered_json compiler_info;

  CompileRecord(std::vector<std::string> command,  // NOLINT: a command alone will do.
                nlohmann::ordered_json compiler_info = nullptr)
      : command(std::move(command)), compiler_info(std::move(compiler_info)) {}
};

// --- The pieces ---

template <class B>
concept HasBackendTypes = requires {
  typename B::Device;
  typename B::Kernel;
  typename B::CompilerOptions;
  typename B::LaunchOptions;
  typename B::CompilerInfo;
  { B::kName } -> std::convertible_to<std::string_view>;
};

// Fields for options_fields.hpp, and defaults read from the environment.
template <class Options>
concept HasOptionFields = std::copyable<Options> && requires(const Options& options) {
  Options::visit_fields(options, [](std::string_view, const auto&) {});
  { options.override_with(options) } -> std::same_as<Options>;
};

template <class Options, class Device>
concept IsCompilerOptions =
    HasOptionFields<Options> && requires(const Options& options, const Env& env, Device& device) {
      { Options::default_options(env, device) } -> std::same_as<Options>;
      { options.get_flags() } -> std::same_as<std::vector<std::string>>;
      { options.to_json() } -> std::same_as<nlohmann::ordered_json>;
    };

template <class Options>
concept IsLaunchOptions = HasOptionFields<Options> && requires(const Env& env) {
  { Options::default_options(env) } -> std::same_as<Options>;
};

template <class Info>
concept IsCompilerInfo = requires(const Info& info) {
  { info.identity } -> std::convertible_to<const CompilerIdentity&>;
  { info.to_json() } -> std::same_as<nlohmann::ordered_json>;
};

// Optional: the compiler's identity and the flags, and what else counts, depend on the options.
template <class B>
concept ChoosesCompiler =
    requires(const B& backend, Key& key, const typename B::CompilerOptions& options) {
      { backend.add_compiler_to_key(key, options) };
      { backend.add_to_key(key, options) };
    };

// Optional: files for people that are no part of the key, such as assembly, and that can be added
// to an entry that was made without them. missing_dumps() names those that the options ask for and
// the entry lacks (all, with an empty path); add_dumps() makes them in a private directory.
template <class B>
concept AddsDumps =
    requires(const B& backend, const std::string& source, const std::filesystem::path& directory,
             const Env& env, const Config& config, const typename B::CompilerOptions& options) {
      { backend.missing_dumps(directory, options) } -> std::same_as<std::vector<std::string>>;
      { backend.add_dumps(source, directory, directory, env, config, options) };
    };

template <class B>
concept CanAddToKey =
    ChoosesCompiler<B> || requires(const B& backend, Key& key) { backend.add_to_key(key); };

template <class B>
concept CanCompile =
    CanAddToKey<B> && std::constructible_from<B, const Env&, const Config&> &&
    requires(const B& backend, const std::string& source, const std::filesystem::path& directory,
             const Env& env, const Config& config, const typename B::CompilerOptions& options) {
      { backend.get_compiler_info() } -> std::convertible_to<typename B::CompilerInfo>;
      {
        backend.compile(source, directory, env, config, options)
      } -> std::convertible_to<CompileRecord>;
    };

template <class B>
concept CanLoad = requires(const std::filesystem::path& directory, const Env& env) {
  { B::load(directory, env) } -> std::same_as<std::shared_ptr<typename B::Kernel>>;
};

// --- The concept ---

template <class B>
concept Backend = HasBackendTypes<B> && std::default_initializable<typename B::Device> &&
                  IsCompilerOptions<typename B::CompilerOptions, typename B::Device> &&
                  IsLaunchOptions<typename B::LaunchOptions> &&
                  IsCompilerInfo<typename B::CompilerInfo> && CanCompile<B> && CanLoad<B>;

// For a static_assert: true, or errors that name the missing piece whatever the compiler says of an
// unsatisfied concept (GCC says little of nested ones).
template <class B>
consteval bool is_whole_backend() {
  static_assert(HasBackendTypes<B>,
                "HasBackendTypes: the backend needs Device, Kernel, CompilerOptions, "
                "LaunchOptions, CompilerInfo and a kName");
  if constexpr (HasBackendTypes<B>) {
    static_assert(std::default_initializable<typename B::Device>,
                  "the backend's Device needs a default constructor");
    static_assert(IsCompilerOptions<typename B::CompilerOptions, typename B::Device>,
                  "IsCompilerOptions: the backend's CompilerOptions need visit_fields, "
                  "override_with, default_options(env, device), get_flags and to_json");
    static_assert(IsLaunchOptions<typename B::LaunchOptions>,
                  "IsLaunchOptions: the backend's LaunchOptions need visit_fields, override_with "
                  "and default_options(env)");
    static_assert(IsCompilerInfo<typename B::CompilerInfo>,
                  "IsCompilerInfo: the backend's CompilerInfo needs an identity and to_json");
    static_assert(CanCompile<B>,
                  "CanCompile: the backend needs a constructor from (env, config), "
                  "get_compiler_info, add_to_key and compile");
    static_assert(CanLoad<B>,
                  "CanLoad: the backend needs a static load(directory, env) that returns a "
                  "std::shared_ptr<Kernel>");
  }
  return Backend<B>;
}

}  // namespace deep_jit
