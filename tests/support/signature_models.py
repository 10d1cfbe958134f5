"""A .tflite file with the signatures encode, decode and step, as converters write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compiler.frontends.conftest import Files

SIGNATURES = ("encode", "decode", "step")
WEIGHTS = np.random.default_rng(6).standard_normal((4, 8)).astype(np.float32)


def codec(files: Any = None, names: tuple[str, ...] = SIGNATURES) -> bytes:
    """`encode`: x [1, 8] → code [1, 4]; `decode`: code [1, 4] → x [1, 8]; `step`: h [1, 8] and
    x [1, 8] → h [1, 8] and code, with the weights of `encode`. The file has the signatures in
    `names`, all subgraphs, and other names for all tensors."""
    files = files or Files()
    signatures = {
        "encode": ({"x": 0}, {"code": 2}),
        "decode": ({"code": 0}, {"x": 2}),
        "step": ({"h": 0, "x": 1}, {"h": 4, "code": 3}),
    }
    made = [files.signature(name, SIGNATURES.index(name), *signatures[name]) for name in names]
    return bytes(files.model(*graphs(files), signatures=made))


def graphs(files: Any) -> tuple[Any, ...]:
    """The subgraphs of encode, decode and step."""
    return _dense(files, 8, 4, WEIGHTS), _dense(files, 4, 8, WEIGHTS.T), _step(files)


def expected(signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a signature."""
    if signature == "encode":
        return {"code": inputs["x"] @ WEIGHTS.T}
    if signature == "decode":
        return {"x": inputs["code"] @ WEIGHTS}
    return {"h": inputs["h"] + inputs["x"], "code": inputs["x"] @ WEIGHTS.T}


def inputs_of(signature: str) -> dict[str, Any]:
    """Random inputs of a signature."""
    rng = np.random.default_rng(len(signature))
    sizes = {"encode": {"x": 8}, "decode": {"code": 4}, "step": {"h": 8, "x": 8}}[signature]
    return {n: rng.standard_normal((1, size)).astype(np.float32) for n, size in sizes.items()}


def _dense(files: Any, size: int, out: int, weights: Any) -> Any:
    tensors = [
        files.tensor("serving_in:0", [1, size]),
        files.tensor("w", weights.shape, data=np.ascontiguousarray(weights)),
        files.tensor("Identity:0", [1, out]),
    ]
    op = files.op("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")
    return files.graph(tensors, [op], [0], [2])


def _step(files: Any) -> Any:
    tensors = [
        files.tensor("step_h:0", [1, 8]),
        files.tensor("step_x:0", [1, 8]),
        files.tensor("w", WEIGHTS.shape, data=WEIGHTS),
        files.tensor("Identity:0", [1, 4]),
        files.tensor("Identity_1:0", [1, 8]),
    ]
    chain = [
        files.op("ADD", [0, 1], [4], "AddOptions"),
        files.op("FULLY_CONNECTED", [1, 2, -1], [3], "FullyConnectedOptions"),
    ]
    return files.graph(tensors, chain, [0, 1], [4, 3])
