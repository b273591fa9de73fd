# SPDX-License-Identifier: MIT
"""What the CUDA backend costs from Python, beside others, on a machine with a GPU.

    cuda_python_bench.py --bare libbare_launch.so [--json FILE]

The host's time for one launch of a kernel with a pointer, an int and a float, 32 threads: bursts of
200, all ways in turn in this process, medians; the driver's own call is among them. A first call is
made by a process of its own with an empty cache. A way that is not installed is named, with the
reason; torch has to be. Imports deep_jit from PYTHONPATH.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module

import torch

_BURST = 200
_ROUNDS = 101
_WARM_UP = 5
_FIRST_CALLS = 3
_SOURCE = (
    'extern "C" __global__ void scale(float* x, int n, float a) { if (n) x[0] *= a; }//'
).ljust(80, ".") + "\n"
_CPP = "void launch(torch::Tensor x, int64_t n, double a);"
_CUDA = """#include <c10/cuda/CUDAStream.h>
__global__ void scale(float* x, int n, float a) { if (n) x[0] *= a; }
void launch(torch::Tensor x, int64_t n, double a) {
  scale<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), n, a);
}"""


def runtime():
    # Its cache folder is in the environment: see empty_caches().
    return import_module("deep_jit").Runtime("cuda", env_prefix="BENCH")


# --- Ways to launch: each takes a torch tensor and returns a function without arguments ---


def deep_jit_tensor(x):
    kernel = runtime().compile("scale", _SOURCE)
    return lambda: kernel[1, 32](x, 32, 1.5)


def deep_jit_pointer(x):
    cupy = import_module("cupy")
    kernel = runtime().compile("scale", _SOURCE)
    array = cupy.asarray(x)
    return lambda: kernel[1, 32](array, 32, 1.5)


def deep_jit_compile(x):
    jit = runtime()
    return lambda: jit.compile("scale", _SOURCE)[1, 32](x, 32, 1.5)


def cupy_raw_kernel(x):
    cupy, numpy = import_module("cupy"), import_module("numpy")
    kernel = cupy.RawKernel(_SOURCE, "scale")
    array, n, a = cupy.asarray(x), numpy.int32(32), numpy.float32(1.5)
    return lambda: kernel((1,), (32,), (array, n, a))


def cuda_core(x):
    try:
        core = import_module("cuda.core")
        core.Device  # noqa: B018 -- older ones have everything in `experimental`
    except (AttributeError, ImportError):
        core = import_module("cuda.core.experimental")
    device = core.Device()
    device.set_current()
    arch = "sm_" + "".join(map(str, device.compute_capability))
    options = core.ProgramOptions(std="c++17", arch=arch)
    program = core.Program(_SOURCE, code_type="c++", options=options)
    kernel = program.compile("cubin").get_kernel("scale")
    config = core.LaunchConfig(grid=1, block=32)
    launch, stream = core.launch, device.default_stream
    pointer, n, a = x.data_ptr(), ctypes.c_int(32), ctypes.c_float(1.5)
    return lambda: launch(stream, config, kernel, pointer, n, a)


def torch_compile_kernel(x):
    kernel = torch.cuda._compile_kernel(_SOURCE, "scale")
    return lambda: kernel((1, 1, 1), (32, 1, 1), (x, 32, 1.5))


def torch_load_inline(x):
    extension = import_module("torch.utils.cpp_extension")
    module = extension.load_inline("bench_scale", _CPP, _CUDA, functions=["launch"])
    launch = module.launch
    return lambda: launch(x, 32, 1.5)


def triton(x):
    kernel = import_module("triton_scale").scale
    return lambda: kernel[(1,)](x, 32, 1.5, num_warps=1)


_WAYS = {
    "launch: deep_jit, torch tensor": deep_jit_tensor,
    "launch: deep_jit, CuPy array": deep_jit_pointer,
    "memory hit and launch, 80 bytes: deep_jit": deep_jit_compile,
    "launch: CuPy RawKernel": cupy_raw_kernel,
    "launch: cuda.core": cuda_core,
    "launch: torch.cuda._compile_kernel": torch_compile_kernel,
    "launch: torch load_inline": torch_load_inline,
    "launch: Triton": triton,
}
_FIRST = {
    "first call: deep_jit, NVRTC": deep_jit_tensor,
    "first call: deep_jit, nvcc": deep_jit_tensor,
    "first call: cuda.core": cuda_core,
    "first call: CuPy RawKernel": cupy_raw_kernel,
    "first call: torch.cuda._compile_kernel": torch_compile_kernel,
    "first call: Triton": triton,
}


def import_first(way):
    """Imports and context are no part of a first call."""
    names = {
        deep_jit_tensor: ["deep_jit"],
        cuda_core: ["cuda.core", "cuda.core.experimental"],
        cupy_raw_kernel: ["cupy"],
        triton: ["triton_scale"],
    }
    for name in names.get(way, []):
        try:
            import_module(name)
        except ImportError:
            pass  # Said when the way itself fails.


def first_call(name):
    """Prints how long one first call takes, in ms."""
    x = torch.ones(256, device="cuda")
    torch.cuda.synchronize()
    import_first(_FIRST[name])
    start = time.perf_counter()
    _FIRST[name](x)()
    torch.cuda.synchronize()
    print((time.perf_counter() - start) * 1e3)


class Results:
    """Samples by name, in microseconds, and why a name has none."""

    def __init__(self):
        self._samples = {}
        self.missing = {}

    def add(self, name, microseconds):
        self._samples.setdefault(name, []).append(microseconds)

    def cases(self):
        def summary(values):
            values = sorted(values)
            at = [values[int(part * (len(values) - 1))] for part in (0.5, 0.1, 0.9)]
            return {"us": at[0], "us_10": at[1], "us_90": at[2], "n": len(values)}

        return {name: summary(values) for name, values in self._samples.items()}


def reason(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def load_bare(path, cache):
    """The driver's own launch of the kernel, whose cubin is whatever deep_jit made of it."""
    bare = ctypes.CDLL(path)
    bare.bare_burst.restype = ctypes.c_double
    bare.bare_burst.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_float]
    for folder, _, names in os.walk(cache):
        if "kernel.cubin" in names:
            cubin = os.path.join(folder, "kernel.cubin")
            code = bare.bare_load(cubin.encode(), b"scale")
            if code:
                raise RuntimeError(f"the driver does not load {cubin}: error {code}")
            return bare
    raise RuntimeError("deep_jit has made no cubin")


def measure_launches(bare_path, cache, results):
    x = torch.ones(256, device="cuda")
    launches = {}
    for name, way in _WAYS.items():
        try:
            launch = way(x)
            launch()
            torch.cuda.synchronize()
            launches[name] = launch
        except Exception as error:  # Whatever is wrong with one way, the others count.
            results.missing[name] = reason(error)
    try:
        bare = load_bare(bare_path, cache)
        launches["launch: cuLaunchKernelEx"] = None
    except (OSError, RuntimeError) as error:
        results.missing["launch: cuLaunchKernelEx"] = reason(error)
    names = list(launches)
    gc.disable()
    for turn in range(_ROUNDS + _WARM_UP):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            launch = launches[name]
            if launch is None:
                microseconds = bare.bare_burst(_BURST, x.data_ptr(), 32, 1.5) / 1e3
            else:
                start = time.perf_counter()
                for _ in range(_BURST):
                    launch()
                microseconds = (time.perf_counter() - start) / _BURST * 1e6
            torch.cuda.synchronize()
            if turn >= _WARM_UP:
                results.add(name, microseconds)
    gc.enable()


def empty_caches(folder):
    """An environment in which nothing has been compiled yet."""
    return {
        **os.environ,
        "BENCH_JIT_CACHE_DIR": f"{folder}/deep_jit",
        "CUPY_CACHE_DIR": f"{folder}/cupy",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCH_EXTENSIONS_DIR": f"{folder}/torch",
    }


def measure_first_calls(results):
    for _ in range(_FIRST_CALLS):
        for name in _FIRST:
            if name in results.missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                # Read by deep_jit only.
                compiler = {"BENCH_JIT_CUDA_COMPILER": name.rpartition(" ")[2].lower()}
                run = subprocess.run(
                    [sys.executable, __file__, "--first-call", name],
                    env=empty_caches(folder) | (compiler if "deep_jit" in name else {}),
                    capture_output=True,
                    text=True,
                    check=False,
                )
            if run.returncode == 0:
                results.add(name, float(run.stdout.split()[-1]) * 1e3)
            else:
                lines = run.stderr.strip().splitlines() or ["it printed nothing"]
                results.missing[name] = lines[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bare", help="libbare_launch.so")
    parser.add_argument("--json")
    parser.add_argument("--first-call", choices=_FIRST)
    arguments = parser.parse_args()
    if arguments.first_call:
        first_call(arguments.first_call)
        return
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(empty_caches(folder))
        measure_launches(arguments.bare, f"{folder}/deep_jit", results)
    measure_first_calls(results)
    for name, case in results.cases().items():
        print(f"{name:<45} {case['us']:>12.2f} us")
    for name, why in results.missing.items():
        print(f"{name:<45} missing: {why}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"cases": results.cases(), "missing": results.missing}, file, indent=2)


if __name__ == "__main__":
    main()
