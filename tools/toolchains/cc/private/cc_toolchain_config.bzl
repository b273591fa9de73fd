"""The feature set of both C++ toolchains: the pinned clang and the system's GCC."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "env_entry",
    "env_set",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
    "with_feature_set",
)
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/toolchains:cc_toolchain_config_info.bzl", "CcToolchainConfigInfo")

_COMPILE = [
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
    ACTION_NAMES.cpp_header_parsing,
    ACTION_NAMES.assemble,
    ACTION_NAMES.preprocess_assemble,
]

_CPP_COMPILE = [ACTION_NAMES.cpp_compile, ACTION_NAMES.cpp_header_parsing]

_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

_ARCHIVE = [ACTION_NAMES.cpp_link_static_library]

# The same bytes from any folder and at any time.
_REPRODUCIBLE = [
    "-no-canonical-prefixes",
    "-Wno-builtin-macro-redefined",
    "-D__DATE__=\"redacted\"",
    "-D__TIME__=\"redacted\"",
    "-D__TIMESTAMP__=\"redacted\"",
]

# By feature name. The main function of a fuzz target is linked by its own -fsanitize=fuzzer.
_SANITIZERS = {
    "asan": "address",
    "fuzz": "fuzzer-no-link,address",
    "tsan": "thread",
    "ubsan": "undefined",
}

def _flags(actions, flags, mode = None):
    if not flags:
        return []
    return [flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode])] if mode else [],
    )]

def _config_impl(ctx):
    sanitizers = []
    for name in ctx.attr.sanitizers:
        flags = ["-fsanitize=" + _SANITIZERS[name]]
        sanitizers.append(feature(
            name = name,
            flag_sets = _flags(_COMPILE, flags + ["-fno-omit-frame-pointer", "-g1"]) + _flags(_LINK, flags),
        ))
    features = [
        feature(name = "opt"),
        feature(name = "dbg"),
        feature(name = "fastbuild"),
        feature(name = "supports_pic", enabled = True),
        feature(
            name = "default_compile_flags",
            enabled = True,
            flag_sets = (
                _flags(_COMPILE, _REPRODUCIBLE + ctx.attr.compile_flags) +
                _flags(_CPP_COMPILE, ["-std=c++20", "-fvisibility-inlines-hidden"]) +
                _flags(_COMPILE, ["-fvisibility=hidden"]) +
                _flags(_COMPILE, ctx.attr.fastbuild_flags, "fastbuild") +
                _flags(_COMPILE, ["-O2", "-g0", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"], "opt") +
                _flags(_COMPILE, ["-O0", "-g"], "dbg")
            ),
        ),
        feature(
            name = "default_link_flags",
            enabled = True,
            flag_sets = _flags(_LINK, ctx.attr.link_flags) + _flags(_LINK, ["-Wl,-s"], "opt"),
        ),
        # Each header compiles alone.
        feature(
            name = "parse_headers",
            flag_sets = _flags([ACTION_NAMES.cpp_header_parsing], ["-xc++-header", "-fsyntax-only"]),
        ),
        feature(
            name = "tool_environment",
            enabled = True,
            env_sets = [env_set(
                actions = _COMPILE + _LINK + _ARCHIVE,
                env_entries = [env_entry(key = key, value = value) for key, value in ctx.attr.environment.items()],
            )],
        ),
    ] + sanitizers
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        features = features,
        cxx_builtin_include_directories = ctx.attr.builtin_include_directories,
        toolchain_identifier = ctx.label.name,
        target_system_name = "linux",
        target_cpu = ctx.attr.cpu,
        target_libc = "glibc",
        compiler = ctx.attr.compiler,
        abi_version = "unknown",
        abi_libc_version = "unknown",
        tool_paths = [tool_path(name = name, path = path) for name, path in ctx.attr.tools.items()],
    )

cc_toolchain_config = rule(
    implementation = _config_impl,
    attrs = {
        "builtin_include_directories": attr.string_list(),
        "compile_flags": attr.string_list(),
        "compiler": attr.string(mandatory = True),
        "cpu": attr.string(mandatory = True),
        "environment": attr.string_dict(),
        "fastbuild_flags": attr.string_list(),
        "link_flags": attr.string_list(),
        "sanitizers": attr.string_list(),
        "tools": attr.string_dict(mandatory = True),
    },
    provides = [CcToolchainConfigInfo],
)
