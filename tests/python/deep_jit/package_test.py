# SPDX-License-Identifier: MIT
"""What the package offers, and that its types and documentation agree with it."""

import ast
import inspect
from pathlib import Path

import deep_jit
from deep_jit import _core

_FOLDER = Path(deep_jit.__file__).parent


def test_public_names() -> None:
    assert set(deep_jit.__all__) == {
        "BoundLaunch",
        "CacheError",
        "CacheInfo",
        "CompileError",
        "CompileManyError",
        "CudaBoundLaunch",
        "CudaKernel",
        "CudaOptions",
        "CudaParam",
        "DeepJITError",
        "FailedKernel",
        "HostOptions",
        "Kernel",
        "KernelAttributes",
        "KernelSource",
        "LaunchError",
        "Param",
        "Runtime",
        "get_include",
    }
    for name in deep_jit.__all__:
        assert inspect.getdoc(getattr(deep_jit, name)), name


def test_every_public_method_is_documented() -> None:
    for owner in (
        deep_jit.Runtime,
        deep_jit.Kernel,
        deep_jit.BoundLaunch,
        deep_jit.CudaKernel,
        deep_jit.CudaBoundLaunch,
    ):
        for name, member in vars(owner).items():
            if not name.startswith("_"):
                assert inspect.getdoc(member), f"{owner.__name__}.{name}"
    assert (
        str(inspect.signature(deep_jit.Kernel.launch))
        == "(self, /, *, grid, block, args=(), num_smem_bytes=None, num_threads=None)"
    )
    # The options that follow are those of the error for an unknown one: cuda/kernel_test.py.
    signature = inspect.signature(deep_jit.CudaKernel.launch)
    assert list(signature.parameters)[1:5] == ["grid", "block", "args", "stream"]


def test_it_is_typed() -> None:
    assert (_FOLDER / "py.typed").is_file()


def test_the_stub_names_what_the_extension_has() -> None:
    stub = ast.parse((_FOLDER / "_core.pyi").read_text())
    for node in stub.body:
        if not isinstance(node, ast.ClassDef):
            continue
        actual = getattr(_core, node.name)
        for item in node.body:
            name = (
                item.target.id if isinstance(item, ast.AnnAssign) else getattr(item, "name", None)
            )
            if name is not None:
                assert hasattr(actual, name), f"{node.name}.{name}"
    stubbed = {node.name for node in stub.body if isinstance(node, ast.ClassDef)}
    assert stubbed == {name for name in vars(_core) if not name.startswith("_")}


def test_stub_fields_are_those_of_the_tuples() -> None:
    stub = ast.parse((_FOLDER / "_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    for name in ("Param", "CacheInfo", "CudaParam", "KernelAttributes"):
        declared = [
            item.target.id for item in classes[name].body if isinstance(item, ast.AnnAssign)
        ]  # type: ignore[union-attr]
        actual = getattr(_core, name)
        assert declared == [member for member in actual.__match_args__]
