"""Programs and pytest tests that run with one of the project's Pythons.

    pytest_test(name = "store_test", srcs = ["store_test.py"], deps = ["//python/deep_jit"])

makes one test a version (store_test_3.10 ...) and the suite store_test. A version that is not on this
machine is skipped. A pybind_extension among the deps is built for the version of each test.
"""

load("//tools/toolchains/python/private:pybind_extension.bzl", _pybind_extension = "pybind_extension")
load("//tools/toolchains/python/private:python_rules.bzl", _pytest_test = "pytest_test", _python_binary = "python_binary")

pybind_extension = _pybind_extension
pytest_test = _pytest_test
python_binary = _python_binary
