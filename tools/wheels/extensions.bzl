"""Wheels from PyPI as Bazel repositories, by name, version and hash: the module extension `wheels`.

`@pypi//numpy` is a py_library for the Python version that the build is for; `@pypi//numpy:files` its
files. Each group of wheels.lock.json is fetched when something first needs it.
"""

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
    wheel_hub(
        name = "pypi",
        groups = json.encode({group: pythons.keys() for group, pythons in lock.items()}),
        version_setting = str(Label("//tools/toolchains/python:is_")) + "{}",
    )

wheels = module_extension(implementation = _wheels_impl)
