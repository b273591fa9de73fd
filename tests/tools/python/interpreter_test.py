# SPDX-License-Identifier: MIT
"""The interpreter that a test runs with is the one that its target asks for."""

import os
import sys

import numpy


def test_interpreter_is_the_wanted_version():
    assert os.environ["EXPECTED_PYTHON"] == ".".join(map(str, sys.version_info[:2]))


def test_packages_come_from_the_lock():
    assert numpy.arange(4).sum() == 6
    assert "pypi_numpy" in numpy.__file__
