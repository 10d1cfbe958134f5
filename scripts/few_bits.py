"""Writes the products of SmolLM2's layers as an ONNX file of MatMulNBits, which ONNX Runtime runs.

python scripts/few_bits.py -o decode.onnx
python scripts/few_bits.py -o prefill.onnx --rows 32 --layers 2
edgekit estimate decode.onnx --board rpi5 --threads 1 --peers
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_WIDTH, _SHARED, _WIDE, _BLOCK = 576, 192, 1536, 32


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", type=Path, required=True, metavar="FILE", dest="to")
    parser.add_argument("--rows", type=int, default=1, metavar="N", help="tokens at a time")
    parser.add_argument("--layers", type=int, default=6, metavar="N")
    parser.add_argument("--bits", type=int, default=4, choices=(2, 4, 8))
    asked = parser.parse_args()
    onnx.save(_model(asked.rows, asked.layers, asked.bits), asked.to)
    return 0


def _model(rows: int, layers: int, bits: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    constants: list[Any] = []
    outputs: list[Any] = []

    def product(x: str, k: int, n: int, name: str) -> str:
        """x times random weights that keep its size."""
        packed = rng.integers(0, 256, (n, k // _BLOCK, _BLOCK * bits // 8), dtype=np.uint8)
        scale = np.full(n * k // _BLOCK, 3.4 / 2**bits / k**0.5, np.float32)
        constants.extend(
            [
                numpy_helper.from_array(packed, f"{name}.w"),
                numpy_helper.from_array(scale, f"{name}.s"),
            ]
        )
        nodes.append(
            helper.make_node(
                "MatMulNBits", [x, f"{name}.w", f"{name}.s"], [name], domain="com.microsoft",
                K=k, N=n, bits=bits, block_size=_BLOCK, accuracy_level=4,
            )
        )  # fmt: skip
        return name

    def added(one: str, other: str, name: str) -> str:
        nodes.append(helper.make_node("Add", [one, other], [name]))
        return name

    for i in range(layers):
        x = "x"  # not the layer's before: engines' outputs can then be compared closely
        keys = added(
            product(x, _WIDTH, _SHARED, f"k{i}"), product(x, _WIDTH, _SHARED, f"v{i}"), f"kept{i}"
        )
        outputs.append(helper.make_tensor_value_info(keys, 1, [rows, _SHARED]))
        x = product(product(x, _WIDTH, _WIDTH, f"q{i}"), _WIDTH, _WIDTH, f"o{i}")
        wide = added(
            product(x, _WIDTH, _WIDE, f"gate{i}"), product(x, _WIDTH, _WIDE, f"up{i}"), f"wide{i}"
        )
        x = product(wide, _WIDE, _WIDTH, f"down{i}")
        outputs.append(helper.make_tensor_value_info(x, 1, [rows, _WIDTH]))
    given = helper.make_tensor_value_info("x", 1, [rows, _WIDTH])
    graph = helper.make_graph(nodes, "few_bits", [given], outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


if __name__ == "__main__":
    raise SystemExit(main())
