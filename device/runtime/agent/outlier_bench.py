"""Times products with the outlier split, and the float product, on this board; standard library
only.

The request is a JSON file: {"operands": an .npz of x [m, k] f32, values [k, n] s8, scale [n] f32
and their exact product y [m, n] f32, "paths": paths of the split, "dense": the method of the float
product} and optionally "threshold", "threads", "seconds" and "count".
"""

from __future__ import annotations

import math
import time
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List

from edgekit.device.runtime.agent.interleave import Timer
from edgekit.device.runtime.agent.npz import read_npz
from edgekit.device.runtime.agent.timed_products import placed, product_costs, read_request
from edgekit.device.runtime.arrays.gemm_library import (
    Block,
    GemmLibrary,
    GemmMethod,
    Operand,
    Product,
)
from edgekit.device.runtime.arrays.outlier_library import (
    PATHS,
    DenseRows,
    Options,
    OutlierLibrary,
    Packed,
    reported,
)
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING


def bench(path: Path, library: Path) -> Dict[str, Any]:
    """Answers a request: for each path its costs, for the first its report and relative error, and
    the costs of the float product."""
    request = read_request(path, "outlier-bench")
    try:
        arrays = read_npz(Path(request["operands"]))
        (m, k), (_, n) = arrays["x"].shape, arrays["values"].shape
        blocks = placed({name: arrays[name] for name in ("x", "values", "scale")})
        exact = array("f", bytes(arrays["y"].data))
        how, paths = GemmMethod.of(request["dense"]), list(map(str, request["paths"]))
        threshold = float(request.get("threshold", 6.0))
        if not paths or set(paths) - set(PATHS):
            raise ValueError(f"paths {paths}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"{path.name}: expected an outlier-bench request, found: {error}"
        raise InputError(found) from None
    threads = request["threads"]
    table = library.with_name(f"{library.name}.table")
    split = OutlierLibrary(library, table if table.is_file() else None)
    packed = split.pack(n, k, k, blocks["values"].address, blocks["scale"].address)
    x, y = DenseRows(blocks["x"].address, m, k, False), Block(4 * m * n)
    options = [Options(threshold, each) for each in paths]
    report = reported(split.run(x, packed, y.address, options[0], threads))
    difference = _relative_error(array("f", y.memory[: 4 * m * n]), exact)

    def prepare() -> List[Timer]:
        timers = [_split_timer(split, x, packed, y, each, threads) for each in options]
        return [*timers, _float_timer(GemmLibrary(library), split, packed, x, y, how, threads)]

    *costs, dense = product_costs(prepare, threads, request["seconds"], request["count"])
    return {
        "schema": "edgekit.outlier-bench/1",
        "report": asdict(report),
        "relative_error": difference,
        "paths": dict(zip(paths, costs)),
        "dense": dense,
    }


def _split_timer(
    split: OutlierLibrary, x: DenseRows, packed: Packed, y: Block, options: Options, threads: int
) -> Timer:
    def timed(count: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(count):
            split.run(x, packed, y.address, options, threads)
        return time.perf_counter_ns() - start

    return timed


def _float_timer(
    library: GemmLibrary,
    split: OutlierLibrary,
    packed: Packed,
    x: DenseRows,
    y: Block,
    how: GemmMethod,
    threads: int,
) -> Timer:
    """Times the product with W as floats, which are not packed ahead."""
    n, k = packed.c.n, packed.c.k
    padded = -(-n // OUTLIER_PADDING) * OUTLIER_PADDING
    floats, channels = Block(4 * k * padded), array("i", range(k))
    split.rows(packed, channels.buffer_info()[0], k, floats.address)
    operands = Operand(x.address, k, 1), Operand(floats.address, padded, 1)
    product = Product("f32", x.m, n, k, *operands, Operand(y.address, n, 1))
    return library.timer(product, how, threads, keep=(floats, y))


def _relative_error(found: Any, exact: Any) -> float:
    """The Frobenius norm of the difference over that of the exact product."""
    total = math.sqrt(sum(value * value for value in exact))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(found, exact))) / (total or 1.0)
