"""Wheels from PyPI as Bazel repositories, by name, version and hash: the module extension `wheels`.

`@pypi//numpy` is a py_library for the Python version that the build is for; `@pypi//numpy:files` its
files. Each group of wheels.lock.json is fetched when something first needs it.
"""

load("//tools/wheels/private:npm_repository.bzl", "npm_binary_repository")
load("//tools/wheels/private:wheel_repository.bzl", "repository_name", "wheel_hub", "wheel_repository")

def _wheels_impl(mctx):
    lock = json.decode(mctx.read(Label("//tools/wheels:wheels.lock.json")))
    requirements = json.decode(mctx.read(Label("//tools/wheels:requirements.json")))
    for group, pythons in lock.items():
        for python, wheels in pythons.items():
            wheel_repository(
                name = repository_name(group, python),
                group = group,
                python = python,
                wheels = json.encode(wheels),
                optional = requirements[group].get("optional", False),
            )
    npm_binary_repository(
        name = "buildifier",
        package = "@bazel/buildifier",
        version = "8.2.1",
        sha256 = "b96ea9b13003036c801f52bee6f9b0314738f8432e5cb9d814c89f59292604ee",
        binary = "buildifier-linux_{cpu}",
        tool = "buildifier",
        lock = Label("//tools/wheels:wheels.lock.json"),
    )
    wheel_hub(
        name = "pypi",
        groups = json.encode({group: pythons.keys() for group, pythons in lock.items()}),
        version_setting = str(Label("//tools/toolchains/python:is_")) + "{}",
    )

wheels = module_extension(implementation = _wheels_impl)
