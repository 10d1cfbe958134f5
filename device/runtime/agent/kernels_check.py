"""The health check of a release of kernels: a product of each kind, called as programs call it."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

from edgekit.device.runtime.agent.golden import compare_outputs, golden_inputs
from edgekit.device.runtime.agent.kernels import KernelsSpec, kernel_files
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.arrays.buffers import FORMATS, readable
from edgekit.device.runtime.arrays.find import use_release
from edgekit.device.runtime.arrays.gemm import gemm
from edgekit.device.runtime.arrays.gemm_library import HALF
from edgekit.device.runtime.arrays.nna_matmul import nna_matmul
from edgekit.device.runtime.arrays.outlier import OutlierWeights, outlier_matmul
from edgekit.device.runtime.arrays.sparse import SparseMatrix


def check_products(files: ReleaseFiles, kernels: KernelsSpec) -> Dict[str, Any]:
    """Computes each product and compares its result. Returns the largest difference of each, and
    the milliseconds of the slowest. DeviceError reports how far off a result is."""
    use_release(lambda: kernel_files(files.folder))
    differences: List[float] = []
    slowest = 0
    for product in kernels.products:
        operands = [_view_of(array) for array in golden_inputs(files, product).values()]
        start = time.perf_counter_ns()
        result = _COMPUTED[product.kind](*operands)
        slowest = max(slowest, time.perf_counter_ns() - start)
        differences += compare_outputs(files, product, [result], f"{product.kind}: ")
    return {
        "ms": slowest / 1e6,
        "max_difference": differences,
        "products": [product.kind for product in kernels.products],
    }


def _view_of(array: Array) -> memoryview:
    """A typed view of an array, without NumPy."""
    return memoryview(array.data).cast(FORMATS[array.dtype], array.shape)


def _gemm_f16(a: Any, b: Any) -> Any:
    left, right = (readable(bits, "")._replace(dtype=HALF) for bits in (a, b))
    return gemm(left, right)


def _spmv(indptr: Any, indices: Any, values: Any, x: Any) -> Any:
    shape = len(indptr) - 1, len(x)
    return SparseMatrix.from_csr(indptr, indices, values, shape).matvec(x)


def _outlier(x: Any, w: Any, scale: Any) -> Any:
    return outlier_matmul(x, OutlierWeights.from_int8(w, scale), path="split")


_COMPUTED: Dict[str, Callable[..., Any]] = {
    "gemm_f32": gemm,
    "gemm_f16": _gemm_f16,
    "gemm_s8": gemm,
    "gemm_u8": gemm,
    "nna": nna_matmul,
    "spmv": _spmv,
    "outlier": _outlier,
}
