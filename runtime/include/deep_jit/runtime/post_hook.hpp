// SPDX-License-Identifier: MIT
//
// Post hooks: a Python file of the library that looks at, or changes, each compiled artifact.
//
// What: the compiler option `post_hook` is a path below Config.python_library_root. Where it is
// set, the backend's compile() runs it, as `<python> <hook> <artifact>` with the artifact's
// absolute path, in the private directory of the build and before anything is published. The file
// may be changed in place; what the hook leaves there is what is kept. Path (as given) and content
// of the hook are part of the key, but not the modules that it imports: use extra_signature for
// those. The option unset inherits the default; the empty string is no hook, so that one kernel can
// do without.
// When not: for work at load or launch time.
//
// Example:
//     add_post_hook_to_key(key, config, options.post_hook);
//     run_post_hook(config, env, options.post_hook, directory / "kernel.so", source, options);
//
// Errors: exception::Exception with "failed to open for reading" for a hook that is not there;
// CompileError, naming the hook, with its output, when it exits with another code than 0 or leaves
// no artifact.
// Thread-safety: free functions; no lock is held while a hook runs but the one of its key.
#pragma once

#include <filesystem>
#include <format>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "deep_jit/base/env.hpp"
#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/find_executable.hpp"
#include "deep_jit/base/log.hpp"
#include "deep_jit/base/subprocess.hpp"
#include "deep_jit/key/file_digest.hpp"
#include "deep_jit/key/key.hpp"
#include "deep_jit/runtime/config.hpp"
#include "deep_jit/runtime/metadata.hpp"

namespace deep_jit {

using PostHook = std::optional<std::string>;

// Adds nothing when there is no hook.
void add_post_hook_to_key(Key& key, const Config& config, const PostHook& hook);

// `artifact`: absolute. `source` and `options` are for a CompileError.
void run_post_hook(const Config& config, const Env& env, const PostHook& hook,
                   const std::filesystem::path& artifact, const std::string& source,
                   const nlohmann::ordered_json& options);

// --- Inline implementations ---

inline void add_post_hook_to_key(Key& key, const Config& config, const PostHook& hook) {
  if (!hook || hook->empty()) return;
  key.add("post hook", *hook)
      .add("post hook content", digest_file(config.get_python_path(*hook)).hex());
}

namespace detail {

inline std::optional<std::filesystem::path> find_python(const Config& config) {
  if (!config.python_executable.empty()) return find_executable(config.python_executable);
  const auto python = find_executable("python3");
  return python ? python : find_executable("python");
}

}  // namespace detail

inline void run_post_hook(const Config& config, const Env& env, const PostHook& hook,
                          const std::filesystem::path& artifact, const std::string& source,
                          const nlohmann::ordered_json& options) {
  if (!hook || hook->empty()) return;
  const auto path = config.get_python_path(*hook);
  Command command{.working_directory = artifact.parent_path()};
  CommandResult result;
  const auto fail = [&](const std::string& problem) {
    throw exception::CompileError(
        __FILE__, __LINE__,
        std::format("post hook {} failed: {}\nCommand: {}\nOutput:\n{}", path.string(), problem,
                    format_command(command.arguments), result.output),
        result.output, command.arguments, artifact.filename().string(), dump_json(options), source);
  };
  const auto python = detail::find_python(config);
  if (!python) {
    fail(config.python_executable.empty()
             ? "there is no Python: neither python3 nor python is on PATH; set "
               "Config.python_executable"
             : std::format("Config.python_executable, `{}`, is not an executable file",
                           config.python_executable));
  }
  command.arguments = {python->string(), path.string(), artifact.string()};
  if (env.get<bool>("JIT_DEBUG", false) || env.get<bool>("JIT_PRINT_COMPILER_COMMAND", false)) {
    log(LogLevel::kInfo, "Running command: " + format_command(command.arguments));
  }
  result = run_command(command);
  std::error_code error;
  if (!result.ok()) {
    fail(std::format("command failed with exit code {}", result.exit_code));
  } else if (!std::filesystem::is_regular_file(artifact, error)) {
    fail(std::format("it left no {}", artifact.filename().string()));
  } else if (std::filesystem::file_size(artifact, error) == 0 || error) {
    fail(std::format("it left an empty {}", artifact.filename().string()));
  }
}

}  // namespace deep_jit
