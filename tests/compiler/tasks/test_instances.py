"""Heads for instance segmentation, decoded as NumPy decodes them."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import instances

_SIZE = (64, 96)


@pytest.mark.parametrize("layout", ["v8", "last", "v5", "selected"])
def test_masks_are_sums_of_maps_inside_their_boxes(tmp_path, layout):
    path, maps, expected = instances(tmp_path, _SIZE, layout, names={0: "a", 1: "b", 2: "c"})
    made = prepared(path, CompileOptions())
    assert made.task is not None and made.task.kind == "instances"
    assert made.task.labels == ("a", "b", "c")
    values = evaluate(made.graph, {"images": np.zeros((1, 3, *_SIZE), np.float32)}).outputs
    rows, masks = values[made.task.output][0, 0], values[made.task.masks]
    kept = (rows[:, 1] >= 0) & (rows[:, 2] >= 0.25)
    assert 3 < len(expected) == kept.sum()
    order = np.argsort(-rows[kept, 2], kind="stable")
    for row, mask, each in zip(rows[kept][order], masks[kept][order], expected, strict=True):
        number, score, corners, weights = each
        assert row[1] == number and row[2] == pytest.approx(score, abs=1e-6)
        np.testing.assert_allclose(row[3:7], corners, atol=1e-3)
        total = np.clip(16 * np.tensordot(weights.astype(np.float64), maps, 1), -128, 127)
        left, top, right, bottom = (int(edge // 4) for edge in corners)
        inside = np.s_[max(top, 0) : bottom + 1, max(left, 0) : right + 1]
        assert np.abs(mask[inside] - total[inside]).max(initial=0) <= 0.501
        assert (mask[: max(top - 1, 0)] == -128).all() and (mask[bottom + 2 :] == -128).all()
    assert (masks[~kept] == -128).all()


def test_detect_leaves_the_masks_and_segment_insists(tmp_path):
    path, _, expected = instances(tmp_path, _SIZE, task="", names="")
    found = rows_of(prepared(path, CompileOptions(task="detect")))
    same(found, [each[:3] for each in expected])
    assert prepared(path, CompileOptions()).task is None
    for task in ("segment", "guess"):
        made = prepared(path, CompileOptions(task=task))
        assert made.task is not None and made.task.kind == "instances"
