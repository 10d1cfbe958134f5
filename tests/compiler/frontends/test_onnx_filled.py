"""Boxes that a file selects of a data-dependent number, and fills up to a fixed one."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save
from tests.support.onnx_models import value as value_of

onnxruntime = pytest.importorskip("onnxruntime")

_N = 60


def _model(folder, value, mode):
    """As Ultralytics' exporter selects boxes: those of a mask, of which some are kept, before zeros
    up to eight."""
    constants = {}

    def constant(name, data):
        constants[name] = np.array(data)
        return name

    zero, one, both = (constant(n, v) for n, v in (("0", [0]), ("1", [1]), ("01", [0, 1])))
    end = [constant("fill", np.float32(value))] if value is not None else []
    nodes = [
        node("Greater", ["scores", constant("least", np.float32(0.5))], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        node("Transpose", ["places"], ["at"], perm=[1, 0]),
        node("GatherND", ["boxes", "at"], ["some"]),
        node("GatherND", ["scores", "at"], ["sure"]),
        node("Unsqueeze", ["some", zero], ["some3"]),
        node("Unsqueeze", ["sure", both], ["sure3"]),
        node("NonMaxSuppression", ["some3", "sure3", constant("all", [1 << 60]),
                                   constant("overlap", np.float32([0.4]))], ["rows"]),
        node("Gather", ["rows", constant("two", 2)], ["kept"], axis=1),
        node("Slice", ["kept", zero, constant("eight", [8]), zero], ["first"]),
        node("Gather", ["some", "first"], ["corners"]),
        node("Gather", ["sure", "first"], ["score"]),
        node("Unsqueeze", ["score", one], ["column"]),
        node("Concat", ["corners", "column"], ["found"], axis=1),
        node("Shape", ["found"], ["shape"]),
        node("Gather", ["shape", zero], ["count"]),
        node("Sub", ["eight", "count"], ["left"]),
        node("Concat", [constant("none", [0, 0]), "left", zero], ["pads"], axis=0),
        node("Pad", ["found", "pads", *end], ["filled"], mode=mode),
        node("Unsqueeze", ["filled", zero], ["y"]),
    ]  # fmt: skip
    inputs = {"boxes": [_N, 4], "scores": [_N]}
    made = [value_of(name, shape) for name, shape in inputs.items()]
    return save(model(nodes, made, ["y"], constants), folder)


@pytest.mark.parametrize(("share", "value"), [(0.5, None), (1.0, 0), (0.0, 0), (0.05, None)])
def test_boxes_of_a_mask_are_selected_and_filled_up_with_zeros(tmp_path, share, value):
    rng = np.random.default_rng(9)
    corner = rng.random((_N, 2))
    x = {
        "boxes": np.concatenate([corner, corner + rng.random((_N, 2))], 1),
        "scores": rng.random(_N),
    }
    x["scores"] = np.where(rng.random(_N) < share, 0.5 + x["scores"] / 2, x["scores"] / 2)
    x = {name: each.astype(np.float32) for name, each in x.items()}
    path = _model(tmp_path, value, "constant")
    (wanted,) = onnxruntime.InferenceSession(path).run(None, x)
    graph, _ = run_passes(import_model(path))
    assert graph.outputs == ("y",) and wanted.shape == (1, 8, 5)
    np.testing.assert_allclose(evaluate(graph, x).outputs["y"], wanted, atol=1e-6)


@pytest.mark.parametrize(("value", "mode"), [(1, "constant"), (None, "edge")])
def test_rows_are_filled_up_with_zeros_only(tmp_path, value, mode):
    with pytest.raises(InputError, match="expected constant pads"):
        import_model(_model(tmp_path, value, mode))
