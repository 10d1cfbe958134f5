"""Runs on a board: counts the instructions of products of pruned layers.

    python3 spmm_on_board.py PACKAGE.zip LIBRARY CASES OUTPUT OUTPUT-BYTES

CASES is an .npz of layers, written by test_sparse.py. Prints one JSON document.
"""

from __future__ import annotations

import json
import sys
from ctypes import memmove
from pathlib import Path

package, path, cases, output, _size = sys.argv[1:]
sys.path.insert(0, package)

from edgekit.device.runtime.agent.count import count_calls, counter, fix_layout  # noqa: E402
from edgekit.device.runtime.agent.npz import read_npz  # noqa: E402
from edgekit.device.runtime.arrays.gemm_library import Block  # noqa: E402
from edgekit.device.runtime.arrays.sparse_library import SparseLibrary, SparseProduct, SpmmPlan  # noqa: E402

fix_layout()
library = SparseLibrary(Path(path).resolve())
kept = []


def placed(data: bytes) -> int:
    """The address of a cache-line-aligned copy."""
    block = Block(len(data))
    memmove(block.address, data, len(data))
    kept.append(block)
    return block.address


def timer(layer: dict, plan: bool):
    rows, cols, pixels, panels, pairs = layer["sizes"]
    at = {name: placed(data) for name, data in layer.items() if name not in ("sizes", "stored")}
    x, y = placed(bytes(4 * cols * pixels)), placed(bytes(4 * rows * pixels))
    given = (at["start"], at["index"], at["values"], 0, x, y, pixels, pixels, pixels)
    made = SpmmPlan(panels, pairs, at["pair"], at["columns"], at["paired"]) if plan else None
    return library.spmm_timer(SparseProduct("f32", rows, cols, 2, *given, plan=made), 1)


def layers() -> dict:
    found: dict = {}
    for name, array in read_npz(Path(cases)).items():
        layer, part = name.split(".")
        data = bytes(array.data)
        sizes = memoryview(data).cast("q").tolist() if part == "sizes" else data
        found.setdefault(layer, {})[part] = sizes
    return found


with counter() as (descriptor, user_only):
    instructions = {}
    for name, layer in layers().items():
        for kind in ("plan", "rows"):
            timed = timer(layer, kind == "plan")
            calls = count_calls(descriptor, lambda t=timed: t(0), lambda t=timed: t(1), 3)
            instructions[f"{kind}_{name}"] = min(calls)
Path(output).write_bytes(b"")
print(json.dumps({"user_only": user_only, "instructions": instructions}))
