"""The contenders of the GEMM benchmark: our library and the ones that users have.

Each gets the product in its best form: weights packed ahead if it supports that, matrix-vector
products through its dedicated function. If the weights are the left operand, libraries that only
accept them on the right get just the transposed product, the others get both (`gemm_worker`).
"""

from __future__ import annotations

import ctypes
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.arrays.gemm_library import GemmLibrary, Operand, Product
from edgekit.host.common.paths import install_command
from edgekit.host.lab.bench.gemm_cases import GemmCase
from edgekit.host.lab.bench.operands import empty

Array = NDArray[Any]
_OVERHEAD_RUNS = 1000

Runner = Callable[[int], float]  # nanoseconds of that many consecutive products
Load = Callable[[str], Any]  # imports a module by name, or raises ImportError


class UnavailableError(Exception):
    """The contender is not installed or cannot compute this kind of product."""


class GemmContender(Protocol):
    """A library. `name` as in the results, `version` as reported by the library; `left`: it also
    accepts weights as the left operand."""

    name: str
    version: str
    left: bool

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        """Prepares the product of a [m, k] and b [k, n], both float32 or both int8.

        Checks its result once. Raises UnavailableError.
        """


class WrongResultError(Exception):
    """The contender computed a wrong product, so its time is meaningless."""


def check(name: str, found: Array, a: Array, b: Array) -> None:
    """Compares a result with NumPy's; float32 is allowed rounding errors."""
    if a.dtype == np.float32:
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        good = np.allclose(found, wanted, rtol=1e-3, atol=1e-3 * max(a.shape[1], 1) ** 0.5)
    else:
        wide = a.astype(np.float64) @ b.astype(np.float64)  # exact: sums stay below 2^53
        good = np.array_equal(found.astype(np.int64), wide.astype(np.int64))
    if not good:
        raise WrongResultError(f"{name}: wrong result for {a.shape} by {b.shape} {a.dtype}")


class Edgekit:
    """Our library: packed weights, and a method lookup on every product."""

    name = "edgekit"
    left = True

    def __init__(self, library: Path, table: Path, threads: int) -> None:
        from edgekit.device.version import VERSION

        self.version = VERSION
        self._library = GemmLibrary(library, table)
        self._threads = threads

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        m, k, n = case.shape.m, case.shape.k, case.shape.n
        dtype = "f32" if a.dtype == np.float32 else "s8"
        how, _ = self._library.lookup(dtype, m, n, k, self._threads, case.weights)
        left = Operand(a.ctypes.data, k, 1)
        right = Operand(b.ctypes.data, n, 1)
        source, extent = (left, m) if case.weights == "a" else (right, n)
        block = self._library.pack(dtype, case.weights, extent, k, how, source)
        packed = Operand(block.address, source.row, source.col, packed=True)
        left, right = (packed, right) if case.weights == "a" else (left, packed)
        c = empty((m, n), np.float32 if dtype == "f32" else np.int32)
        product = Product(dtype, m, n, k, left, right, Operand(c.ctypes.data, n, 1))
        timer = self._library.timer(
            product, how, self._threads, look_up=True, keep=(a, b, c, block)
        )
        timer(1)
        check(self.name, c, a, b)
        return timer


class OpenBlas:
    """The OpenBLAS bundled with NumPy, called through a function pointer from a loop in C."""

    name = "openblas"
    left = True

    def __init__(self, loop: Path, threads: int) -> None:
        folder = Path(np.__file__).parent.parent / "numpy.libs"
        found = sorted(folder.glob("libscipy_openblas64_*.so*"))
        if not found:
            raise UnavailableError("NumPy was built without a bundled OpenBLAS")
        library = ctypes.CDLL(str(found[0]))
        library.scipy_openblas_set_num_threads64_(threads)
        library.scipy_openblas_get_config64_.restype = ctypes.c_char_p
        library.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
        words = library.scipy_openblas_get_config64_().decode().split()
        core = library.scipy_openblas_get_corename64_().decode()
        self.version = f"{words[1]} {core}"
        pointer = ctypes.c_void_p
        self._gemm = ctypes.cast(library.scipy_cblas_sgemm64_, pointer)
        self._gemv = ctypes.cast(library.scipy_cblas_sgemv64_, pointer)
        self._loop = ctypes.CDLL(str(loop)).time_sgemm
        self._loop.restype = ctypes.c_uint64
        self._loop.argtypes = (
            pointer,
            pointer,
            *[ctypes.c_int64] * 3,
            *[pointer] * 3,
            ctypes.c_long,
        )

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        if a.dtype != np.float32:
            raise UnavailableError("float32 only")
        c = empty((a.shape[0], b.shape[1]), np.float32)
        sizes = (case.shape.m, case.shape.n, case.shape.k)
        keep = (a, b, c)

        def run(count: int) -> float:
            addresses = (array.ctypes.data for array in keep)
            return float(self._loop(self._gemm, self._gemv, *sizes, *addresses, count))

        run(1)
        check(self.name, c, a, b)
        return run


# Row-major; matrix-vector products use sgemv, as in NumPy.
OPENBLAS_LOOP = """
#include <stdint.h>
#include <time.h>
typedef void (*gemm)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                     const float *, int64_t, float, float *, int64_t);
typedef void (*gemv)(int, int, int64_t, int64_t, float, const float *, int64_t, const float *,
                     int64_t, float, float *, int64_t);
static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
uint64_t time_sgemm(gemm mm, gemv mv, int64_t m, int64_t n, int64_t k, const float *a,
                    const float *b, float *c, long count) {
    enum { ROWS = 101, PLAIN = 111, TRANSPOSED = 112 };
    uint64_t start = now();
    for (long i = 0; i < count; i++)
        if (n == 1)
            mv(ROWS, PLAIN, m, k, 1, a, k, b, 1, 0, c, 1);
        else if (m == 1)
            mv(ROWS, TRANSPOSED, k, n, 1, b, n, a, 1, 0, c, 1);
        else
            mm(ROWS, PLAIN, PLAIN, m, n, k, 1, a, k, b, n, 0, c, n);
    return now() - start;
}
"""


class Torch:
    """torch.mm, and torch._int_mm for int8 (oneDNN), into a preallocated result."""

    name = "torch"
    left = True

    def __init__(self, threads: int, load: Load = importlib.import_module) -> None:
        self._torch = _import_package("torch", load)
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)
        self.version = str(self._torch.__version__)

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        torch = self._torch
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        floats = a.dtype == np.float32
        c = torch.empty(
            (case.shape.m, case.shape.n), dtype=torch.float32 if floats else torch.int32
        )
        call = torch.mm if floats else torch._int_mm
        call(x, y, out=c)
        check(self.name, c.numpy(), a, b)
        return _timed_runner(lambda: call(x, y, out=c))


class OneDnn:
    """oneDNN's inner product with packed weights, through PyTorch's operator for it."""

    name = "onednn"
    left = False

    def __init__(self, threads: int, load: Load = importlib.import_module) -> None:
        self._torch = _import_package("torch", load)
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)
        if not self._torch.backends.mkldnn.is_available():
            raise UnavailableError("PyTorch was built without oneDNN")
        self.version = f"in torch {self._torch.__version__}"

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        del case  # weights are b
        if a.dtype != np.float32:
            raise UnavailableError("float32 only")
        torch = self._torch
        rows = torch.from_numpy(a)
        weights = torch.from_numpy(np.ascontiguousarray(b.T))  # oneDNN wants [outputs, k]
        packed = torch.ops.mkldnn._reorder_linear_weight(weights, a.shape[0])
        call = torch.ops.mkldnn._linear_pointwise
        found = call(rows, packed, None, "none", [], "").numpy()
        check(self.name, found, a, b)
        return _timed_runner(lambda: call(rows, packed, None, "none", [], ""))


class OnnxRuntime:
    """ONNX Runtime's MatMul or MatMulInteger (u8 by s8) with constant weights, which it packs.

    The graph repeats the node many times, and the time of a nearly empty session is subtracted:
    what remains is the product and its share of the executor's time.
    """

    name = "onnxruntime"
    left = False
    _MOST_NODES = 64
    _WEIGHT_BYTES = 1 << 18  # of all nodes together: each has a copy, and all must fit the cache

    def __init__(self, threads: int, load: Load = importlib.import_module) -> None:
        self._ort = _import_package("onnxruntime", load)
        self._onnx = _import_package("onnx", load)
        self._threads = threads
        self.version = str(self._ort.__version__)
        ones = np.ones((1, 1), np.float32)
        nothing, _ = self._prepare_session(ones, ones, 1)
        # The minimum of many runs: the subtracted time must not include noise.
        self._overhead = min(_timed_runner(nothing)(1) for _ in range(_OVERHEAD_RUNS))

    def prepare(self, case: GemmCase, a: Array, b: Array) -> Runner:
        del case  # weights are b
        if a.dtype == np.int8:
            # Its fast form: other values, the same work. Larger weights would saturate pairs of
            # products on x86 without VNNI.
            a, b = a.view(np.uint8), b >> 1
        nodes = min(max(self._WEIGHT_BYTES // max(b.nbytes, 1), 1), self._MOST_NODES)
        run, output = self._prepare_session(a, b, nodes)
        run()
        check(self.name, output(), a, b)
        return lambda count: self._net_time(run, count, nodes)

    def _net_time(self, run: Callable[[], object], count: int, nodes: int) -> float:
        sessions = -(-count // nodes)
        spent = _timed_runner(run)(sessions) - sessions * self._overhead
        return spent * count / (sessions * nodes)

    def _prepare_session(
        self, x: Array, w: Array, nodes: int
    ) -> tuple[Callable[[], object], Callable[[], Array]]:
        """A function that runs the graph on preallocated memory, and one that reads the result."""
        ort = self._ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Otherwise identical nodes would be merged into one.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        model = self._build_model(x, w, nodes).SerializeToString()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
        result = np.zeros(
            (x.shape[0], w.shape[1]), np.float32 if x.dtype == np.float32 else np.int32
        )
        value = ort.OrtValue.ortvalue_from_numpy(result)
        binding.bind_ortvalue_output("y", value)

        def run() -> object:
            return session.run_with_iobinding(binding)

        def output() -> Array:
            found: Array = value.numpy()
            return found

        return run, output

    def _build_model(self, x: Array, w: Array, nodes: int) -> Any:
        helper, floats = self._onnx.helper, x.dtype == np.float32
        types = self._onnx.TensorProto
        kind, result = ("MatMul", types.FLOAT) if floats else ("MatMulInteger", types.INT32)
        entry = types.FLOAT if floats else types.UINT8
        names = [f"y{i}" for i in range(1, nodes)] + ["y"]
        graph = helper.make_graph(
            [helper.make_node(kind, ["x", "w"], [name]) for name in names],
            "products",
            [helper.make_tensor_value_info("x", entry, x.shape)],
            [helper.make_tensor_value_info("y", result, (x.shape[0], w.shape[1]))],
            [self._onnx.numpy_helper.from_array(w, "w")],
        )
        version = helper.make_opsetid("", 13)
        return helper.make_model(graph, opset_imports=[version], ir_version=8)


def _timed_runner(call: Callable[[], object]) -> Runner:
    def run(count: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        return float(time.perf_counter_ns() - start)

    return run


def _import_package(name: str, load: Load) -> Any:
    try:
        return load(name)
    except ImportError as error:
        raise UnavailableError(f"not installed ({error}); {install_command('peers')}") from None
