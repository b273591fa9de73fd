"""pybind_extension: a Python extension written with pybind11."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_python//python:defs.bzl", "py_library")

def pybind_extension(name, srcs, deps = [], copts = [], testonly = False, visibility = None, **kwargs):
    """The module NAME, built for the Python of whatever depends on it; it lies beside its BUILD file.

    Args:
        name: the module's name, as in PYBIND11_MODULE; add it to the deps of Python code.
        srcs: its sources. One of them has PYBIND11_MODULE: what comes out of libraries is not exported.
        deps: C++ libraries; @deep_jit//runtime:python_api brings pybind11 and Python's headers.
        copts: further compiler flags.
        testonly: as usual.
        visibility: as usual.
        **kwargs: local_defines, linkopts ... of the cc_binary.
    """
    cc_binary(
        name = name + ".so",
        srcs = srcs,
        copts = ["-fvisibility=hidden"] + copts,
        linkshared = True,
        testonly = testonly,
        visibility = ["//visibility:private"],
        deps = deps,
        **kwargs
    )
    py_library(
        name = name,
        data = [name + ".so"],
        imports = ["."],
        testonly = testonly,
        visibility = visibility,
    )
