"""ONNX models of ai.onnx.ml's operators, and their comparison with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph

DOMAIN = "ai.onnx.ml"


def learned(
    nodes: Sequence[Any], x: Mapping[str, Array], outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None, version: int = 3,
) -> bytes:  # fmt: skip
    """A file; `outputs` have no declared type."""
    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in x.items()
    ]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    made = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", ends, results, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    given = {k: v for k, v in attributes.items() if v is not None}
    return helper.make_node(op, inputs, outputs, domain=DOMAIN, **given)


def agree(
    content: bytes, x: Mapping[str, Array], folder: Path, near: float = 1e-5,
    labels: Sequence[str] = (),
) -> Graph:  # fmt: skip
    """Compares the import with ONNX Runtime; strings must be those of `labels`."""
    import onnxruntime

    path = folder / "model.onnx"
    path.write_bytes(content)
    session = onnxruntime.InferenceSession(content)
    expected = session.run(None, dict(x))
    graph = import_model(path)
    found = evaluate(graph, dict(x)).outputs
    for meta, want in zip(session.get_outputs(), expected, strict=True):
        got = found[meta.name]
        if isinstance(want, list):  # maps
            want = np.array([[*row.values()] for row in want], np.float32)
        if want.dtype.kind == "O":
            got = np.array(labels, object)[got]
        else:
            assert got.dtype == want.dtype, meta.name
        assert got.shape == want.shape, meta.name
        if want.dtype.kind == "f":
            limit = near * max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-9)
            np.testing.assert_allclose(got, want, rtol=near, atol=limit, err_msg=meta.name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=meta.name)
    return graph


def random_trees(
    rng: np.random.Generator, trees: int, features: int, modes: Sequence[str], depth: int = 4,
    missing: bool = False,
) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:  # fmt: skip
    """The nodes_ attributes, and the (tree, node) of all leaves. Thresholds are small integers."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    made: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    leaves = []
    for tree in range(trees):
        rows: list[list[Any]] = []

        def add(level: int, tree: int = tree, rows: list[list[Any]] = rows) -> int:
            number = len(rows)
            row: list[Any] = [tree, number, 0, 0.0, "LEAF", 0, 0, 0]
            rows.append(row)
            if level < depth and rng.random() < 0.85:
                row[2:5] = [int(rng.integers(features)), float(rng.integers(-2, 3)),
                            modes[int(rng.integers(len(modes)))]]  # fmt: skip
                row[5], row[6] = add(level + 1), add(level + 1)
                row[7] = int(missing and rng.random() < 0.5)
            else:
                leaves.append((tree, number))
            return number

        add(0)
        for row in rows:
            for name, value in zip(names, row, strict=True):
                made[f"nodes_{name}"].append(value)
    return made, leaves


def random_rows(rng: np.random.Generator, rows: int, features: int, dtype: Any) -> Array:
    """Small integers, so that many equal a threshold; floats also have halves and NaN."""
    x = rng.integers(-3, 4, (rows, features)).astype(dtype)
    if x.dtype.kind == "f":
        x += rng.choice([0, 0, 0.5], x.shape).astype(dtype)
        x[rng.random(x.shape) < 0.1] = np.nan
    return x
