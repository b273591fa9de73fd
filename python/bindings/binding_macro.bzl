"""binding: a library of the extension, compiled for CPython's limited API."""

load("@pythons//:defs.bzl", "AVAILABLE_PYTHONS")
load("@rules_cc//cc:defs.bzl", "cc_library")

# The bindings give the GIL away themselves (gil.h), without pybind11.
BINDING_DEFINES = [
    "DJ_DISABLE_GIL=1",
    "Py_LIMITED_API=0x030A0000",
]

BINDING_COPTS = [
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# The oldest version that is here: headers of a later one give the same limited API.
_PYTHON_HEADERS = "@python_{}//:python_headers".format(AVAILABLE_PYTHONS[0].replace(".", "_"))

def binding(name, deps = [], has_source = True):
    """A cc_library of NAME.h and NAME.cc.

    Args:
        name: the area.
        deps: what it includes; Python's headers are added.
        has_source: whether there is a NAME.cc.
    """
    cc_library(
        name = name,
        srcs = [name + ".cc"] if has_source else [],
        hdrs = [name + ".h"],
        copts = BINDING_COPTS,
        local_defines = BINDING_DEFINES,
        deps = deps + [_PYTHON_HEADERS],
    )
