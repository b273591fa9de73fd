"""Which toolkit a build gets, and what each way to hold it wrong says."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//tools/toolchains/cuda:defs.bzl", "CUDA_TOOLCHAIN_TYPE", "CudaToolkitInfo", "cuda_toolchain", "cuda_toolkit")
load("//tools/toolchains/cuda:versions.bzl", "CUDA_COMPONENTS", "CUDA_VERSIONS", "DEFAULT_CUDA_VERSION")

_VERSION = str(Label("//tools/toolchains/cuda:version"))

def _toolkit_test_impl(ctx):
    env = analysistest.begin(ctx)
    info = analysistest.target_under_test(env)[CudaToolkitInfo]
    asserts.equals(env, ctx.attr.version, info.version)
    asserts.equals(env, "home", info.home.basename)
    asserts.equals(env, [name for name in sorted(CUDA_COMPONENTS) if name != "sanitizer"], sorted(info.components))
    asserts.equals(env, "bin/nvcc", info.components["nvcc"])
    return analysistest.end(env)

_ATTRS = {"version": attr.string()}

_toolkit_test = analysistest.make(_toolkit_test_impl, attrs = _ATTRS)
_flag_test = analysistest.make(_toolkit_test_impl, attrs = _ATTRS, config_settings = {_VERSION: "13.3"})

def _error_test_impl(ctx):
    env = analysistest.begin(ctx)
    for words in ctx.attr.words:
        asserts.expect_failure(env, words)
    return analysistest.end(env)

def _error_test(**config_settings):
    return analysistest.make(
        _error_test_impl,
        attrs = {"words": attr.string_list(mandatory = True)},
        config_settings = config_settings,
        expect_failure = True,
    )

_wrong_test = _error_test()
_wrong_flag_test = _error_test(**{_VERSION: "12.0"})
_wrong_machine_test = _error_test(**{"//command_line_option:platforms": str(Label("//tests/tools/toolchains/cuda:other_machine"))})
_disabled_test = _error_test(**{"//command_line_option:extra_toolchains": str(Label("//tests/tools/toolchains/cuda:disabled_toolchain"))})

def toolchain_tests(name):
    """The tests and what they look at.

    Args:
        name: of the suite.
    """
    tests = []

    def add(test, case, **kwargs):
        test(name = case, target_under_test = kwargs.pop("target", ":default"), **kwargs)
        tests.append(case)

    for toolkit, attrs in {
        "default": {},
        "of_another_version": {"version": "13.3"},
        "of_no_version": {"version": "9.9"},
        "with_sanitizer": {"components": ["nvcc", "sanitizer"]},
    }.items():
        cuda_toolkit(name = toolkit, tags = ["manual"], **attrs)

    native.platform(
        name = "other_machine",
        constraint_values = [
            "@platforms//cpu:aarch64",
            "@platforms//os:linux",
        ],
    )

    for toolchain, attrs in {
        "disabled": {"disabled": "its licence has not been accepted: run accept"},
        "empty": {},
    }.items():
        cuda_toolchain(name = toolchain, version = "1.0", tags = ["manual"], **attrs)
    native.toolchain(
        name = "disabled_toolchain",
        toolchain = ":disabled",
        toolchain_type = CUDA_TOOLCHAIN_TYPE,
    )

    add(_toolkit_test, "default_version_test", version = DEFAULT_CUDA_VERSION)
    add(_toolkit_test, "version_of_a_target_test", target = ":of_another_version", version = "13.3")
    add(_flag_test, "version_of_the_flag_test", version = "13.3")
    versions = ", ".join(CUDA_VERSIONS.keys() + ["local"])
    for test, case, target, words in [
        (_wrong_test, "unknown_version_test", ":of_no_version", ["there is no version \"9.9\"", "tools/toolchains/cuda:version to one of: " + versions]),
        (_wrong_flag_test, "unknown_version_of_the_flag_test", ":default", ["there is no version \"12.0\""]),
        (_wrong_test, "missing_component_test", ":with_sanitizer", ["needs sanitizer of the CUDA toolkit 13.0, which has: cccl, cuobjdump,"]),
        (_wrong_machine_test, "wrong_machine_test", ":default", ["the pinned toolkit 13.0 is for x86_64 with Linux", "use --config=local_cuda"]),
        (_disabled_test, "disabled_toolchain_test", ":default", ["default needs a CUDA toolkit, and there is none: its licence has not been accepted: run accept"]),
        (_wrong_test, "empty_toolchain_test", ":empty", ["give the toolkit's `home`, or say in `disabled` why there is none"]),
    ]:
        add(test, case, target = target, words = words)
    native.test_suite(name = name, tests = tests)
