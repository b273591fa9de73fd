# SPDX-License-Identifier: MIT
"""os.fork after import, after declaration and after use."""

from collections.abc import Callable
from pathlib import Path

import pytest

_FORK = """
import os, sys, warnings
import numpy as np
import deep_jit

warnings.simplefilter("ignore")  # Python 3.12 warns about fork beside threads: our very case
stage = sys.argv[1]
source = '''
__global__ void fill(int* out, int value) { out[blockIdx.x] = value; }
'''

def check(jit, name, value):
    out = np.zeros(4096, np.int32)
    jit.compile(name, source, extra_cxx_flags=[f"-DNAME_{name}"])[4096, 1](out, value)
    assert (out == value).all()

jit = None
if stage != "import":
    jit = deep_jit.Runtime("host", env_prefix="OWN")
if stage == "use":
    check(jit, "parent", 1)

children = []
for index in range(2):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = jit or deep_jit.Runtime("host", env_prefix="OWN")
            if stage == "use":
                check(own, "parent", 2)
            check(own, f"child{index}", 3)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
check(jit or deep_jit.Runtime("host", env_prefix="OWN"), "afterwards", 4)
print(codes)
"""


@pytest.mark.parametrize("stage", ["import", "declare", "use"])
def test_fork(cache_dir: Path, run_python: Callable[..., str], stage: str) -> None:
    assert run_python(_FORK, stage) == "[0, 0]\n"
    entries = {path.name.split(".")[0] for path in (cache_dir / "cache").iterdir()}
    assert entries == {"child0", "child1", "afterwards"} | ({"parent"} if stage == "use" else set())
    assert not list((cache_dir / "tmp").glob("*"))
