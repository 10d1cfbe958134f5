"""The models that are exported and re-imported, and random inputs for them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tests.support.op_graphs import inputs_of

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
SHIPPED = Path(__file__).parents[2] / "models"
_FOLDERS = [SHIPPED, *([Path(_EXTRA) / "models"] if _EXTRA else [])]

_LARGE = ("face_detection_back", "pose_detection")
# It pools 128x128 pixels, which engines sum in f32, and random input amplifies the rounding.
_LIMITS = {"selfie_segmentation": 5e-4}


def models(suffix: str) -> list[Path]:
    """The available models, deduplicated by file name."""
    return sorted({p.name: p for f in _FOLDERS for p in f.rglob(f"*{suffix}")}.values())


def few(paths: list[Path]) -> list[Path]:
    """A third of the models, without large ones."""
    return [path for path in paths[::3] if path.stem not in _LARGE]


def drawn_inputs(graph, rng):
    """Floats from -1 to 1; integers over their full range."""
    drawn = inputs_of(graph, int(rng.integers(1 << 30)))
    return {
        n: rng.uniform(-1, 1, v.shape).astype(v.dtype) if v.dtype.kind == "f" else v
        for n, v in drawn.items()
    }


def need_close(path, found, value):
    """Floats within 1e-5 of the largest magnitude, integers equal."""
    assert found.shape == value.shape and found.dtype == value.dtype
    if value.dtype == np.float32:
        limit = _LIMITS.get(path.stem, 1e-5) * np.abs(value).max()
        np.testing.assert_allclose(found, value, rtol=0, atol=limit)
    else:
        np.testing.assert_array_equal(found, value)
