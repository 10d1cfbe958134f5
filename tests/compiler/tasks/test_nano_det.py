"""NanoDet's outputs of each grid, which have PicoDet's shapes but names of their own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built
from tests.support.onnx_models import node

_SIZE = (64, 128)


@pytest.mark.parametrize("strides", [(8, 16, 32), (8, 16, 32, 64)])
def test_distances_and_scores_of_each_grid(tmp_path, strides):
    rng, parts, nodes, boxes, scores = np.random.default_rng(3), {}, [], [], []
    for stride in strides:
        rows, columns = _SIZE[0] // stride, _SIZE[1] // stride
        logits = rng.normal(-2, 2, (1, rows * columns, 2)).astype(np.float32)
        spread = rng.normal(0, 2, (1, rows * columns, 32)).astype(np.float32)
        parts |= {f"logits{stride}": logits, f"dis_pred_stride_{stride}": spread}
        nodes.append(node("Sigmoid", [f"logits{stride}"], [f"cls_pred_stride_{stride}"]))
        scores.append(1 / (1 + np.exp(-logits[0])))
        shares = np.exp(spread.reshape(-1, 4, 8))
        left, top, right, bottom = (shares @ np.arange(8) / shares.sum(2)).T * stride
        row, column = (stride * (each.reshape(-1) + 0.5) for each in np.mgrid[:rows, :columns])
        edges = column - left, row - top, column + right, row + bottom
        x0, y0, x1, y1 = edges
        boxes.append(np.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0], 1))
    names = [f"{kind}_pred_stride_{stride}" for kind in ("cls", "dis") for stride in strides]
    made = prepared(built(tmp_path, parts, nodes, names, _SIZE))
    assert made.task is not None and "NanoDet" in made.source
    assert (made.task.channels, made.task.mean[0]) == ("bgr", 103.53)
    expected = best_boxes(np.concatenate(boxes), np.concatenate(scores), 0.35, 0.6, single=False)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])
