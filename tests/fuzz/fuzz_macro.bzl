"""fuzz_test: one fuzz target, as a fuzzer and as a test that replays its corpus."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_test(name, srcs, deps, corpus):
    """Makes NAME (under --config=fuzz only) and NAME_replay_test (always).

    Args:
        name: the fuzzer's name.
        srcs: defines LLVMFuzzerTestOneInput.
        deps: what it tests.
        corpus: inputs that were worth keeping: files.
    """
    cc_library(
        name = name + "_target",
        srcs = srcs,
        alwayslink = True,
        deps = deps,
    )
    cc_binary(
        name = name,
        linkopts = ["-fsanitize=fuzzer"],
        target_compatible_with = select({
            ":is_enabled": [],
            "//conditions:default": ["@platforms//:incompatible"],
        }),
        deps = [":{}_target".format(name)],
    )
    cc_test(
        name = name + "_replay_test",
        size = "small",
        srcs = ["replay_main.cc"],
        args = ["$(rootpaths {})".format(corpus)],
        data = [corpus],
        target_compatible_with = select({
            ":is_enabled": ["@platforms//:incompatible"],
            "//conditions:default": [],
        }),
        deps = [":{}_target".format(name)],
    )
