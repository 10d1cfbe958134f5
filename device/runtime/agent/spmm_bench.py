"""Times pruned weights times pixels, and the dense product, on this board; standard library only.

The request is a JSON file: {"operands": an .npz of the arrays of ek_spmm_weights and of its plan,
and the pixels x, "stored": their type, "pixels", "dense": {side: method}} and optionally "threads",
"seconds" and "count". Sides are "none", or "a" for dense weights packed ahead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from edgekit.device.runtime.agent.gemm_bench import Operands
from edgekit.device.runtime.agent.interleave import Timer
from edgekit.device.runtime.agent.npz import read_npz
from edgekit.device.runtime.agent.timed_products import placed, product_costs, read_request
from edgekit.device.runtime.arrays.gemm_library import Block, GemmLibrary, GemmMethod
from edgekit.device.runtime.arrays.sparse_library import (
    STORED,
    SUM_BYTES,
    SparseLibrary,
    SparseProduct,
    SpmmPlan,
)
from edgekit.device.runtime.errors import InputError

_ARRAYS = ("start", "index", "values", "pair", "columns", "packed", "x")


def bench(path: Path, library: Path) -> Dict[str, Any]:
    """Answers a request: the cost of the sparse product, and of the dense one by side."""
    request = read_request(path, "spmm-bench")
    try:
        arrays = read_npz(Path(request["operands"]))
        dtype, pixels = request["stored"], int(request["pixels"])
        (rows, cols), (panels, pairs) = (
            memoryview(bytes(arrays[name].data)).cast("q") for name in ("shape", "plan")
        )
        dense = {side: GemmMethod.of(how) for side, how in request["dense"].items()}
        blocks = placed({name: arrays[name] for name in _ARRAYS})
        index_bytes = len(arrays["index"].data) // max(arrays["index"].shape[0], 1) or 1
        if dtype not in STORED:
            raise ValueError(f"values of {dtype}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path.name}: expected an spmm-bench request, found: {error}") from None
    scale = placed({"scale": arrays["scale"]})["scale"].address if "scale" in arrays else 0
    y = Block(rows * pixels * SUM_BYTES[dtype])
    plan = SpmmPlan(
        panels, pairs, *(blocks[name].address for name in ("pair", "columns", "packed"))
    )
    start, index, values, x = (blocks[name].address for name in ("start", "index", "values", "x"))
    addresses = (start, index, values, scale, x, y.address)
    sizes = (pixels, pixels, pixels)
    product = SparseProduct(dtype, rows, cols, index_bytes, *addresses, *sizes, plan=plan)
    threads = request["threads"]
    products, operands = GemmLibrary(library), Operands("f32", rows, pixels, cols, len(dense))

    def prepare() -> List[Timer]:
        timers = [SparseLibrary(library).spmm_timer(product, threads)]
        for side, how in dense.items():
            made = operands.product(products, how, None if side == "none" else side)
            timers.append(products.timer(made, how, threads, keep=operands))
        return timers

    sparse, *others = product_costs(prepare, threads, request["seconds"], request["count"])
    return {
        "schema": "edgekit.spmm-bench/1",
        "sparse": sparse,
        "dense": dict(zip(dense, others)),
    }
