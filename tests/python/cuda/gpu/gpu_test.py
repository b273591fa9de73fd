# SPDX-License-Identifier: MIT
"""CUDA kernels launched from Python on a real GPU, beside torch and CuPy."""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deep_jit
import pytest

torch = pytest.importorskip("torch", reason="no torch")

_SCALE = """
__global__ void scale(float* out, const float* x, int n, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}
"""

_SPIN = """
__global__ void spin(int* out, long long cycles, int value) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  *out = value;
}
"""


@pytest.fixture
def scale(jit: Any) -> Any:
    return jit.compile("scale", _SCALE)


@pytest.fixture
def spin(jit: Any) -> Any:
    return jit.compile("spin", _SPIN)


@pytest.fixture(autouse=True)
def _no_error_is_left() -> Iterator[None]:
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def test_scale(scale: Any) -> None:
    x = torch.linspace(-1, 1, 1000, device="cuda")
    out = torch.full((1001,), 77.0, device="cuda")
    scale[(8, 1), 128](out, x, 1000, 2)  # the int becomes a float: the symbol says so
    assert torch.equal(out[:1000], 2 * x)
    assert out[1000].item() == 77
    scale.launch(grid=8, block=128, args=(out, x, 1000, 0.5))
    assert torch.equal(out[:1000], 0.5 * x)
    assert [param.kind for param in scale.params] == ["pointer", "pointer", "signed", "float"]


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc", "auto"])
def test_each_compiler(jit: Any, compiler: str) -> None:
    source = _SCALE.replace("scale", f"scale_by_{compiler}")
    kernel = jit.compile("scale", source, compiler=compiler)
    assert kernel.name == f"scale_by_{compiler}"
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel[1, 64](out, x, 64, 3)
    assert torch.equal(out, 3 * x)
    entry = jit.compile_without_load("scale", source, compiler=compiler)
    assert (entry / "kernel.cubin").is_file()
    assert len({jit.cache_key(source, compiler=c) for c in ("nvcc", "nvrtc")}) == 2


def test_only_the_size_is_known_under_extern_c(jit: Any) -> None:
    kernel = jit.compile("scale_c", 'extern "C" ' + _SCALE.strip())
    assert {param.kind for param in kernel.params} == {"sized"}
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel[1, 64](out, x, 64, 3.0)
    assert torch.equal(out, 3 * x)
    kernel[1, 64](out.data_ptr(), x, 64, 4.0)
    assert torch.equal(out, 4 * x)


def test_every_width(jit: Any) -> None:
    kernel = jit.compile(
        "widths",
        """
        __global__ void widths(double* out, signed char a, unsigned short b, unsigned c,
                               long long d, float e, double f, bool g) {
          const double all[] = {double(a), double(b), double(c), double(d), e, f, double(g)};
          for (int i = 0; i < 7; ++i) out[i] = all[i];
        }
        """,
    )
    out = torch.zeros(7, dtype=torch.float64, device="cuda")
    kernel[1, 1](out, -7, 65535, 2**32 - 1, -(2**40), 1.5, 0.1, True)
    assert out.tolist() == [-7, 65535, 2**32 - 1, -(2**40), 1.5, 0.1, 1]


def test_a_large_struct_by_value(jit: Any) -> None:
    kernel = jit.compile(
        "copy",
        "struct Big { unsigned char bytes[128]; };\n"
        "__global__ void copy(unsigned char* out, Big big) {"
        " out[threadIdx.x] = big.bytes[threadIdx.x]; }",
    )
    out = torch.zeros(128, dtype=torch.uint8, device="cuda")
    for kind in (bytes, bytearray, lambda b: (ctypes.c_uint8 * 128)(*b)):
        out.zero_()
        kernel[1, 128](out, kind(bytes(range(128))))
        assert out.tolist() == list(range(128))


def test_strided_pinned_and_offset_tensors(scale: Any) -> None:
    base = torch.arange(64, dtype=torch.float32, device="cuda")
    out = torch.zeros(64, device="cuda")
    scale[1, 32](out, base[8:][::2], 32, 1.0)  # the address of its first element
    assert torch.equal(out[:32], base[8:40])
    pinned = torch.arange(32, dtype=torch.float32).pin_memory()
    scale[1, 32](out, pinned, 32, 2.0)
    assert torch.equal(out[:32].cpu(), 2 * pinned)


def test_other_kinds_of_arrays(scale: Any) -> None:
    x, out = torch.ones(32, device="cuda"), torch.zeros(32, device="cuda")

    class Interfaced:
        __cuda_array_interface__ = x.__cuda_array_interface__

    class Packed:
        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

        def __dlpack__(self, **keywords: Any) -> Any:
            return x.__dlpack__(**keywords)

    class Old(torch.Tensor):  # of a torch without DLPack's C interface
        __dlpack_c_exchange_api__ = None

    arrays = (x, x.detach(), torch.nn.Parameter(x), x.as_subclass(Old), Interfaced(), Packed())
    for factor, array in enumerate(arrays, 1):
        scale[1, 32](out, array, 32, factor)
        assert torch.equal(out, factor * x), type(array)


def test_cupy(scale: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x, out = cupy.arange(32, dtype=cupy.float32), cupy.zeros(32, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    scale[1, 32](out, x, 32, 3.0, stream=stream)
    stream.synchronize()
    assert (out == 3 * x).all()
    with pytest.raises(deep_jit.LaunchError, match="is an array of float64"):
        scale[1, 32](out, x.astype(cupy.float64), 32, 3.0)


def test_lazy_views(scale: Any) -> None:
    """Their memory holds other numbers than they show."""
    x = torch.ones(8, dtype=torch.complex64, device="cuda")
    for view in (x.conj(), x.conj().imag):
        with pytest.raises(deep_jit.LaunchError, match=r"lazy conjugate or negative view"):
            scale[1, 4](view, x.real, 4, 1.0)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (lambda x: (x, x.cpu(), 4, 1.0), "is on the CPU"),
        (lambda x: (x, x.double(), 4, 1.0), "is an array of float64, which the kernel would"),
        (lambda x: (x, x, 2**31, 1.0), "is out of range"),
        (lambda x: (x, x, 4.0, 1.0), "must be an int, not a float"),
        (lambda x: (x, x, 4), "has 4 parameters, but 3 arguments"),
    ],
)
def test_wrong_arguments(scale: Any, arguments: Any, problem: str) -> None:
    with pytest.raises(deep_jit.LaunchError, match=problem):
        scale[1, 4](*arguments(torch.ones(4, device="cuda")))


def test_what_the_driver_refuses(scale: Any) -> None:
    x = torch.ones(4, device="cuda")
    with pytest.raises(deep_jit.LaunchError, match=r"scale.*1024 threads per block"):
        scale[1, 2048](x, x, 4, 1.0)
    with pytest.raises(deep_jit.LaunchError, match="dynamic shared memory"):
        scale[1, 32](x, x, 4, 1.0, num_smem_bytes=2**20)
    scale[1, 4](x, x, 4, 2.0)
    assert x.tolist() == [2.0] * 4


def test_the_current_stream_of_torch(scale: Any, spin: Any) -> None:
    """On another stream than the producer's the copy would come long before the value."""
    side = torch.cuda.Stream()
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    seen = torch.zeros(1, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        spin[1, 1](flag, 200_000_000, 5)
        seen.copy_(flag)
    assert not side.query(), "the kernel runs on the side stream, and the launch did not wait"
    side.synchronize()
    assert seen.item() == 5


def test_explicit_streams(spin: Any) -> None:
    busy, free = torch.cuda.Stream(), torch.cuda.Stream()
    flags = torch.zeros(2, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    spin[1, 1](flags[0:], 500_000_000, 1, stream=busy)
    for stream in (free, free.cuda_stream):
        spin[1, 1](flags[1:], 1000, 2, stream=stream)
        free.synchronize()
    assert not busy.query()
    busy.synchronize()
    assert flags.tolist() == [1, 2]
    with torch.cuda.stream(busy):
        spin[1, 1](flags[0:], 1000, 7, stream=0)  # the default stream, whatever torch's is
    torch.cuda.default_stream().synchronize()
    assert flags[0].item() == 7


def test_dynamic_shared_memory(jit: Any) -> None:
    kernel = jit.compile(
        "turn",
        """
        __global__ void turn(int* out, int n) {
          extern __shared__ int smem[];
          for (int i = threadIdx.x; i < n; i += blockDim.x) smem[i] = i;
          __syncthreads();
          for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = smem[n - 1 - i];
        }
        """,
    )
    count = 25_000  # 100 kB: more than a kernel has without asking
    out = torch.zeros(count, dtype=torch.int32, device="cuda")
    kernel[1, 256](out, count, num_smem_bytes=4 * count)
    assert torch.equal(out.cpu(), torch.arange(count - 1, -1, -1, dtype=torch.int32))


def test_clusters(jit: Any) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("this GPU has no clusters")
    kernel = jit.compile(
        "clusters",
        """
        __global__ void clusters(unsigned* out) {
          unsigned x, y;
          asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(x));
          asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(y));
          out[blockIdx.y * gridDim.x + blockIdx.x] = 100 * x + y;
        }
        """,
    )
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    for cluster, expected in (((4, 2), 402), (8, 801), (1, 101)):
        kernel[(8, 2), 32](out, cluster_dim=cluster)
        assert out.tolist() == [expected] * 16
    with pytest.raises(deep_jit.LaunchError, match="nonportable_cluster_size_allowed"):
        kernel[(16, 1), 32](out, cluster_dim=16)
    kernel[(16, 1), 32](out, cluster_dim=16, nonportable_cluster_size_allowed=True)
    assert out.tolist() == [1601] * 16


def test_cooperative_and_pdl(jit: Any, scale: Any) -> None:
    kernel = jit.compile(
        "meet",
        """
        #include <cooperative_groups.h>
        __global__ void meet(int* count, int* out) {
          if (threadIdx.x == 0) atomicAdd(count, 1);
          cooperative_groups::this_grid().sync();
          if (threadIdx.x == 0) out[blockIdx.x] = *count;
        }
        """,
    )
    count = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    kernel[16, 32](count, out, cooperative=True)
    assert out.tolist() == [16] * 16
    with pytest.raises(deep_jit.LaunchError, match="cooperative"):
        kernel[10**6, 32](count, out, cooperative=True)
    x = torch.ones(32, device="cuda")
    for _ in range(3):
        scale[1, 32](x, x, 32, 2.0, enable_pdl=True)
    assert x.tolist() == [8.0] * 32


def test_attributes(jit: Any) -> None:
    kernel = jit.compile(
        "attributes",
        "__global__ void __launch_bounds__(256) attributes(int* out) {"
        " __shared__ int s[512]; s[threadIdx.x] = threadIdx.x; __syncthreads();"
        " out[threadIdx.x] = s[255 - threadIdx.x]; }",
    )
    attributes = kernel.attributes
    assert attributes.shared_size_bytes == 2048
    assert attributes.max_threads_per_block == 256
    assert attributes.local_size_bytes == 0
    assert 0 < attributes.num_regs < 256


def test_graphs(jit: Any, scale: Any) -> None:
    x, out = torch.ones(32, device="cuda"), torch.zeros(32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale[1, 32](out, x, 32, 3.0)
    assert out.tolist() == [0.0] * 32
    for _ in range(2):
        out.zero_()
        graph.replay()
        assert out.tolist() == [3.0] * 32
    cold = "__global__ void cold(int* out) { *out = 1; }"
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        out.zero_()
        with pytest.raises(deep_jit.LaunchError, match="`cold` while a stream records"):
            jit.compile("cold", cold)
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    jit.compile("cold", cold)[1, 1](flag)
    assert flag.item() == 1


def test_many_threads(scale: Any) -> None:
    results: list[bool] = []

    def run(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1000,), float(index), device="cuda")
            out = torch.zeros(1000, device="cuda")
            for _ in range(200):
                scale[8, 128](out, x, 1000, 2.0)
            results.append(bool((out == 2 * index).all()))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16


def _run_python(code: str, cache: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GPUTEST_JIT_CACHE_DIR": str(cache),
    }
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stderr) == (0, ""), child.stdout + child.stderr
    return child.stdout


def test_declaring_opens_no_driver(tmp_path: Path) -> None:
    code = """
import deep_jit
jit = deep_jit.Runtime("cuda", env_prefix="GPUTEST")
print("libcuda" in open("/proc/self/maps").read())
"""
    assert _run_python(code, tmp_path) == "False\n"


def test_without_torch_and_a_quiet_exit(tmp_path: Path) -> None:
    """No torch in the process: the default stream; the kernel lives until the interpreter ends."""
    code = """
import ctypes, sys
import deep_jit
jit = deep_jit.Runtime("cuda", env_prefix="GPUTEST")
kernel = jit.compile("fill", "__global__ void fill(int* out, int v) { out[threadIdx.x] = v; }")
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(128)) == 0
kernel[1, 32](memory.value, 42)
out = (ctypes.c_int * 32)()
assert cuda.cuMemcpyDtoH_v2(out, memory, ctypes.c_size_t(128)) == 0
print(set(out), "torch" in sys.modules)
"""
    assert _run_python(code, tmp_path) == "{42} False\n"


def test_fork_after_use_is_an_error_not_a_crash(tmp_path: Path) -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import deep_jit
jit = deep_jit.Runtime("cuda", env_prefix="GPUTEST")
kernel = jit.compile("empty", "__global__ void empty() {}")
kernel[1, 1]()
child = os.fork()
if child == 0:
    try:
        kernel[1, 1]()
    except deep_jit.LaunchError as error:
        os._exit(0 if "spawn" in str(error) else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert _run_python(code, tmp_path) == "0\n"
