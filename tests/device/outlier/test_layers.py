"""Accuracy on the linear layers of a transformer, if EDGEKIT_EXTRA_DATA provides them."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import OutlierWeights, outlier_matmul
from edgekit.host.compiler.ir.types import Array

_MEDIAN, _WORST, _GAIN = 0.010, 0.016, 2.0


def _files() -> list[Path]:
    """float16 files: activations act_X [rows, k] and weights w_X [n, k]."""
    folder = os.environ.get("EDGEKIT_EXTRA_DATA")
    return sorted(Path(folder).glob("**/outliers/*linear_layers.npz")) if folder else []


def _error(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.stem)
@pytest.mark.slow
def test_errors_are_those_of_int8_and_half_where_there_are_outliers(path):
    errors = {}
    with np.load(path) as layers:
        for name in (key[4:] for key in layers if key.startswith("act_")):
            x, w = layers[f"act_{name}"], layers[f"w_{name}"].T
            weights = OutlierWeights.from_float(w)
            exact = x.astype(np.float64) @ weights.dequantized()
            split = errors[name] = _error(outlier_matmul(x, weights, path="split"), exact)
            if name.endswith("f1"):
                assert split * _GAIN <= _error(outlier_matmul(x, weights, path="int8"), exact)
    assert statistics.median(errors.values()) <= _MEDIAN
    assert max(errors.values()) <= _WORST
