// SPDX-License-Identifier: MIT
//
// Runtime: compiles kernel sources for one backend, keeps the binaries, loads and launches them.
//
// What: the life of a kernel. A request (tag, source, options) becomes a key; the key is looked for
// in memory, then on disk; only then the compiler runs, once per key across threads and processes;
// the result is published whole and loaded.
// When not: one Runtime serves one device and one Config; make another for another library.
//
// Example:
//     auto jit = create_lazy_jit<Host>(Config("/opt/mylib", "MYLIB"));
//     auto kernel = jit->compile("scale", source, {.optimize_level = "2"});
//     jit->launch(kernel, {.grid_dim = Dim3{16}, .block_dim = Dim3{256}}, out, x, n);
//
// Errors: exception::CompileError (the compiler failed; nothing is published), LaunchError,
// CacheError (the cache folder cannot be written), Interrupted, Exception for misuse. A failure is
// never remembered: the next call tries again. When only publishing fails (the disk is full),
// compile() warns and returns the kernel all the same; compile_without_load() throws the
// CacheError.
// Thread-safety: compile, compile_without_load, launch, cache_key and explain_key may be called
// from any thread, and give Python's GIL away while they work (base/gil.hpp). The public members
// are for reading; change the default options, if at all, before the first call.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/filesystem.hpp"
#include "deep_jit/base/gil.hpp"
#include "deep_jit/base/hash.hpp"
#include "deep_jit/base/lazy_init.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/cache/build_directory.hpp"
#include "deep_jit/cache/disk_cache.hpp"
#include "deep_jit/cache/manifest.hpp"
#include "deep_jit/cache/memory_cache.hpp"
#include "deep_jit/key/dependencies.hpp"
#include "deep_jit/key/identity_memo.hpp"
#include "deep_jit/key/include_scanner.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/backend_concept.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/fingerprint.hpp"
#include "deep_jit/runtime/metadata.hpp"
#include "deep_jit/runtime/options_fields.hpp"
#include "deep_jit/runtime/post_hook.hpp"

namespace deep_jit {
inline namespace DJ_GIL_FORM {

template <class B>
class Runtime {
  static_assert(is_whole_backend<B>(),
                "Runtime<B>: B does not satisfy the concept deep_jit::Backend "
                "(deep_jit/runtime/backend_concept.hpp); the errors beside this one name the "
                "missing piece");

 public:
  using Device = typename B::Device;
  using Kernel = typename B::Kernel;
  using CompilerOptions = typename B::CompilerOptions;
  using LaunchOptions = typename B::LaunchOptions;

  // Reads the environment and finds the compiler now. Of the cache folder it touches only the memo
  // of compilers (key/identity_memo.hpp), and that only if the folder is there.
  explicit Runtime(Config config) : Runtime(std::move(config), GilScopedRelease()) {}

  // --- Compile and launch ---

  // The loaded kernel for `source`. `name` is a tag for people, in the entry's folder name; it is
  // not part of the key: in one Runtime the same source and options give the same kernel object.
  std::shared_ptr<Kernel> compile(const std::string& name, const std::string& source,
                                  const CompilerOptions& overrides = {});

  // The entry's directory, compiled when needed; loads nothing and does not touch the memory cache.
  std::filesystem::path compile_without_load(const std::string& name, const std::string& source,
                                             const CompilerOptions& overrides = {});

  template <class... Args>
  void launch(const std::shared_ptr<Kernel>& kernel, const LaunchOptions& overrides,
              const Args&... args);

  // --- Keys ---

  // `options` are whole: what compile() calls default_compiler_options.override_with(overrides).
  std::string cache_key(const std::string& source, const CompilerOptions& options);
  std::string explain_key(const std::string& source, const CompilerOptions& options);

  // --- Parts, in the order of their making ---

  Config config;
  Env env;
  Device device;
  CompilerOptions default_compiler_options;
  LaunchOptions default_launch_options;
  DiskCache disk_cache;
  IdentityMemo identity_memo;
  B backend;
  IncludeScanner scanner;
  MemoryCache<Digest, Kernel> memory_cache;  // By key.
  Key hash_base;                             // The parts that all keys of this runtime begin with.

 private:
  struct Request {
    const std::string& tag;
    const std::string& source;
    const CompilerOptions& options;
    Key key;  // Of what the scanner remembers; the compiler may see newer files.
    Digest digest;
  };

  struct Build {
    PendingEntry entry;
    std::string metadata;
  };

  // The GIL comes back when everything is made.
  Runtime(Config config, const GilScopedRelease& released);

  B make_backend() const;

  Digest fingerprint(const std::string& source, const CompilerOptions& overrides) const;
  Key make_key(const std::string& source, const CompilerOptions& options,
               IncludeScanner& headers) const;
  template <class Use>
  auto with_request(const std::string& tag, const std::string& source,
                    const CompilerOptions& overrides, const Use& use);
  Build build_locked(const Request& request);
  std::filesystem::path publish(Build& build) const;
  void add_dumps(const Request& request) const;
  bool is_current(const std::filesystem::path& entry) const;
  void unpublish(const std::filesystem::path& entry) const;
  std::shared_ptr<Kernel> load_or_build(const Request& request);
  std::shared_ptr<Kernel> load(const std::filesystem::path& directory) const;
  std::shared_ptr<Kernel> try_load(const std::optional<std::filesystem::path>& directory) const;

  MemoryCache<Digest, Kernel> request_cache_;  // By fingerprint: a hit builds no key.
};

// A runtime that is made at first use: declaring one touches neither device nor compiler nor disk.
template <class B>
LazyInit<Runtime<B>> create_lazy_jit(Config config);

// --- Inline implementations ---

template <class B>
Runtime<B>::Runtime(Config config, const GilScopedRelease&)
    : config(std::move(config)),
      env(this->config.env_prefix),
      default_compiler_options(CompilerOptions::default_options(env, device)),
      default_launch_options(LaunchOptions::default_options(env)),
      disk_cache(this->config.cache_dirs.empty() ? DiskCache::from_env(env)
                                                 : DiskCache(this->config.cache_dirs)),
      identity_memo(disk_cache.paths.front()),
      backend(make_backend()),
      scanner(this->config.include_dirs, this->config.include_prefixes) {
  hash_base.add("key format", std::to_string(kKeyFormatVersion))
      .add("backend", B::kName)
      .add("extra signature", this->config.extra_signature)
      .add("dependencies",
           this->config.dependency_mode == DependencyMode::kVerified ? "verified" : "tracked");
  if (env.template get<bool>("JIT_DEBUG", false)) exception::enable_traces(true);
  identity_memo.flush();
}

template <class B>
B Runtime<B>::make_backend() const {
  const IdentityMemoScope remembered(identity_memo);
  return B(env, config);
}

template <class B>
auto Runtime<B>::compile(const std::string& name, const std::string& source,
                         const CompilerOptions& overrides) -> std::shared_ptr<Kernel> {
  const Digest requested = fingerprint(source, overrides);
  if (auto known = request_cache_.find(requested)) return known;
  const GilScopedRelease released;
  return request_cache_.get_or_create(requested, [&] {
    return with_request(name, source, overrides, [this](const Request& request) {
      auto kernel =
          memory_cache.get_or_create(request.digest, [&] { return load_or_build(request); });
      add_dumps(request);
      return kernel;
    });
  });
}

template <class B>
std::filesystem::path Runtime<B>::compile_without_load(const std::string& name,
                                                       const std::string& source,
                                                       const CompilerOptions& overrides) {
  const GilScopedRelease released;
  return with_request(name, source, overrides, [this](const Request& request) {
    const std::string digest = request.digest.hex();
    const auto lookup = [&] { return disk_cache.lookup(request.tag, digest); };
    if (auto found = lookup(); found && is_current(*found)) {
      add_dumps(request);
      return *found;
    }
    const auto lock = disk_cache.lock(digest);
    if (auto found = lookup()) {
      if (is_current(*found)) return *found;
      unpublish(*found);
    }
    auto build = build_locked(request);
    return publish(build);
  });
}

template <class B>
template <class... Args>
void Runtime<B>::launch(const std::shared_ptr<Kernel>& kernel, const LaunchOptions& overrides,
                        const Args&... args) {
  if (kernel == nullptr) {
    DJ_THROW(exception::LaunchError, "kernel must not be null: pass what compile() returned");
  }
  const GilScopedRelease released;
  kernel->launch(default_launch_options.override_with(overrides), args...);
}

template <class B>
std::string Runtime<B>::cache_key(const std::string& source, const CompilerOptions& options) {
  const GilScopedRelease released;
  return make_key(source, options, scanner).digest().hex();
}

template <class B>
std::string Runtime<B>::explain_key(const std::string& source, const CompilerOptions& options) {
  const GilScopedRelease released;
  return make_key(source, options, scanner).explain();
}

template <class B>
Digest Runtime<B>::fingerprint(const std::string& source, const CompilerOptions& overrides) const {
  FingerprintBytes bytes;
  append_fields_fingerprint(default_compiler_options, bytes);
  append_fields_fingerprint(overrides, bytes);
  const Digest content = hash_bytes(source);
  bytes.append_value(content.high);
  bytes.append_value(content.low);
  return hash_bytes(bytes.view());
}

template <class B>
Key Runtime<B>::make_key(const std::string& source, const CompilerOptions& options,
                         IncludeScanner& headers) const {
  const IdentityMemoScope remembered(identity_memo);
  Key key = hash_base;
  if constexpr (ChoosesCompiler<B>) {
    backend.add_compiler_to_key(key, options);
  } else {
    const CompilerIdentity compiler = backend.get_compiler_info().identity;
    key.add("compiler version", compiler.version).add("compiler content", compiler.content.hex());
    for (const auto& flag : options.get_flags()) key.add("flag", flag);
  }
  if constexpr (requires { options.post_hook; }) {
    add_post_hook_to_key(key, config, options.post_hook);
  }
  if constexpr (ChoosesCompiler<B>) {
    backend.add_to_key(key, options);
  } else {
    backend.add_to_key(key);
  }
  key.add("source", source);
  if (config.dependency_mode == DependencyMode::kTracked) {
    key.add("tracked headers", headers.scan(source).hex());
  }
  identity_memo.flush();
  return key;
}

// Calls `use` with the request under its key; again under a new key when headers, hook or compiler
// turn out to have changed, so that a binary is never published under the key of others.
template <class B>
template <class Use>
auto Runtime<B>::with_request(const std::string& tag, const std::string& source,
                              const CompilerOptions& overrides, const Use& use) {
  constexpr int kAttempts = 3;  // Someone may save a header while we compile, hardly three times.
  const CompilerOptions options = default_compiler_options.override_with(overrides);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Key key = make_key(source, options, scanner);
    const Digest digest = key.digest();
    try {
      return use(Request{tag, source, options, std::move(key), digest});
    } catch (const InputsChanged&) {
      scanner.forget();
    }
  }
  DJ_PANIC(
      "the headers (or the post hook, or the compiler) of kernel `{}` changed {} times while it "
      "was "
      "compiled: compile again when nothing writes to the include directories",
      tag, kAttempts);
}

// Compiles; the caller holds the key's lock and has found nothing on disk.
template <class B>
auto Runtime<B>::build_locked(const Request& request) -> Build {
  auto entry = disk_cache.begin(request.tag, request.digest.hex());
  CompileRecord record =
      backend.compile(request.source, entry.directory(), env, config, request.options);
  if (record.compiler_info.is_null()) {
    record.compiler_info = backend.get_compiler_info().to_json();
  }
  IncludeScanner fresh(config.include_dirs, config.include_prefixes);
  if (make_key(request.source, request.options, fresh).digest() != request.digest) {
    throw InputsChanged{};
  }
  return {std::move(entry),
          make_metadata(record.command, config.to_json(), std::move(record.compiler_info),
                        request.options.to_json(), request.key)};
}

template <class B>
std::filesystem::path Runtime<B>::publish(Build& build) const {
  build.entry.write_file(kMetadataFileName, build.metadata);
  const auto directory = build.entry.commit();
  // Another writer's entry may have been first, with other headers.
  if (!is_current(directory)) throw InputsChanged{};
  return directory;
}

// An entry that was made without a dump gets it when it is asked for. The file is not in the
// manifest, which nothing that is loaded depends on, and comes whole by a rename. The kernel is
// there: what goes wrong here is a warning.
template <class B>
void Runtime<B>::add_dumps([[maybe_unused]] const Request& request) const {
  if constexpr (AddsDumps<B>) {
    if (backend.missing_dumps("", request.options).empty()) return;
    const auto entry = disk_cache.lookup(request.tag, request.digest.hex());
    if (!entry) return;
    const auto missing = backend.missing_dumps(*entry, request.options);
    if (missing.empty()) return;
    const auto& root = disk_cache.paths.front();
    try {
      if (entry->parent_path().parent_path() != root) {
        DJ_PANIC("only the first cache directory, {}, is written to", root.string());
      }
      const BuildDirectory build = BuildDirectory::create(root);
      backend.add_dumps(request.source, *entry, build.path(), env, config, request.options);
      for (const auto& name : missing) std::filesystem::rename(build.path() / name, *entry / name);
    } catch (const exception::Interrupted&) {
      throw;
    } catch (const std::exception& failure) {
      log(LogLevel::kWarning,
          std::format("cannot add {} to {}: {}", missing.front(), entry->string(), failure.what()));
    }
  }
}

// Whether the headers that a whole entry was made of are those of today; the key says it for
// tracked ones.
template <class B>
bool Runtime<B>::is_current(const std::filesystem::path& entry) const {
  if (config.dependency_mode == DependencyMode::kTracked) return true;
  DependencyRoots roots{.include_dirs = config.include_dirs, .compiler_home = {}};
  if constexpr (requires { backend.get_compiler_info().home(); }) {
    roots.compiler_home = backend.get_compiler_info().home();
  }
  const auto dependencies = Dependencies::of_entry(entry);
  return dependencies && dependencies->matches(roots);
}

// For an entry that is whole by its checksums and of no use: without its marker it counts as
// damaged, and commit() replaces it. Other roots than the first are not written to.
template <class B>
void Runtime<B>::unpublish(const std::filesystem::path& entry) const {
  if (entry.parent_path().parent_path() != disk_cache.paths.front()) return;
  std::error_code ignored;
  std::filesystem::remove(entry / kCommitFileName, ignored);
}

template <class B>
auto Runtime<B>::load_or_build(const Request& request) -> std::shared_ptr<Kernel> {
  const std::string digest = request.digest.hex();
  if (auto kernel = try_load(disk_cache.lookup(request.tag, digest))) return kernel;
  const auto lock = disk_cache.lock(digest);
  const auto found = disk_cache.lookup(request.tag, digest);
  if (auto kernel = try_load(found)) return kernel;
  if (found) unpublish(*found);
  auto build = build_locked(request);
  std::filesystem::path directory;
  try {
    directory = publish(build);
  } catch (const UnfitBuild&) {
    throw;  // No cache could take it.
  } catch (const exception::CacheError& failure) {
    // A full disk must not cost the caller a kernel that is made already.
    directory = build.entry.use_unpublished(failure);
  }
  return load(directory);
}

template <class B>
auto Runtime<B>::load(const std::filesystem::path& directory) const -> std::shared_ptr<Kernel> {
  const auto start = std::chrono::steady_clock::now();
  auto kernel = [&] {
    if constexpr (requires { device.enter(); }) {
      // Whatever the calling thread has current: the kernel is for this runtime's device.
      [[maybe_unused]] const auto entered = device.enter();
      return B::load(directory, env);
    } else {
      return B::load(directory, env);
    }
  }();
  if (env.template get<bool>("JIT_DEBUG", false) ||
      env.template get<bool>("JIT_PRINT_LOAD_TIME", false)) {
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    log(LogLevel::kInfo,
        std::format("Load time ({}): {:.3f} ms", directory.string(), elapsed.count()));
  }
  return kernel;
}

// Null when there is no entry, its headers have changed, or its artifact cannot be opened.
template <class B>
auto Runtime<B>::try_load(const std::optional<std::filesystem::path>& directory) const
    -> std::shared_ptr<Kernel> {
  if (!directory || !is_current(*directory)) return nullptr;
  try {
    auto kernel = load(*directory);
    // Another process may have put an entry of its own headers there meanwhile.
    return is_current(*directory) ? kernel : nullptr;
  } catch (const exception::CacheError&) {
    return nullptr;
  }
}

template <class B>
LazyInit<Runtime<B>> create_lazy_jit(Config config) {
  return LazyInit<Runtime<B>>(
      [config = std::move(config)] { return std::make_shared<Runtime<B>>(config); });
}

}  // namespace DJ_GIL_FORM
}  // namespace deep_jit
