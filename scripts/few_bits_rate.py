#!/usr/bin/env python3
"""Estimates a row times matrices of few bits, and the share of the memory's rate that it reaches.

    scripts/few_bits_rate.py [--boards rk3566,rpi4,...] [--bits 2,3,4] [--threads 1,4] [--write]

The model is a row times four matrices of 2048 x 2048, one after the other; its input is limited to
-1 to 1, so that no channel is an outlier. `edgekit estimate` quantizes the weights. --write records
the rows in docs/results/few_bits_rate.csv.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from results import record

from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.clusters import timed_core

_BOARDS = "bpi-f3,rk3566,rpi4,rpi5"
_MATRICES, _SIDE = 4, 2048
_LARGEST = 1 / 60  # of weights: rows become smaller


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default=_BOARDS)
    parser.add_argument("--bits", default="2,3,4")
    parser.add_argument("--threads", default="1,4")
    parser.add_argument("--write", action="store_true", help="record the rows")
    asked = parser.parse_args()
    bits, threads = (map(int, each.split(",")) for each in (asked.bits, asked.threads))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "few_bits.onnx"
        onnx.save(_model(), path)
        for board, each, count in itertools.product(asked.boards.split(","), bits, threads):
            row, machine = _row(path, board, each, count)
            print(*row.values(), flush=True)
            if asked.write:
                options = f"--boards {board} --bits {each} --threads {count} --write"
                source = machine, f"scripts/few_bits_rate.py {options}"
                record("few_bits_rate.csv", [row], ("weights", "board", "threads"), source)


def _row(path: Path, board: str, bits: int, threads: int) -> tuple[dict[str, object], str]:
    """A row of the file, and its machine."""
    command = [
        *(str(Path(sys.executable).with_name("edgekit")), "estimate", str(path), "--json"),
        *("--board", board, "--threads", str(threads), "--weights", f"int{bits}"),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    core = timed_core(load_board(board))
    assert core is not None
    ms, megabytes = found["estimated_ms"]["median"], found["weights_bytes"] / 1e6
    rate = core.dram.core_gb_s if threads == 1 else core.dram.gb_s
    return {
        "weights": f"int{bits}",
        "board": board,
        "core": core.name.upper(),
        "threads": threads,
        "ms": f"{ms:.3g}",
        "MB": f"{megabytes:.2f}",
        "of_memory_rate": f"{megabytes / ms / rate:.0%}",
    }, "estimated" if found["validated"] else "estimated, not validated"


def _model() -> onnx.ModelProto:
    rng, limits = np.random.default_rng(0), {"low": np.float32(-1), "high": np.float32(1)}
    nodes: list[Any] = [helper.make_node("Clip", ["x", *limits], ["0"])]
    constants = [numpy_helper.from_array(np.array(v), name) for name, v in limits.items()]
    for i in range(_MATRICES):
        values = rng.uniform(-_LARGEST, _LARGEST, (_SIDE, _SIDE)).astype(np.float32)
        constants.append(numpy_helper.from_array(values, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"{i}", f"w{i}"], [f"{i + 1}"]))
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, _SIDE])
        for name in ("x", f"{_MATRICES}")
    ]
    graph = helper.make_graph(nodes, "few_bits", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    main()
