"""Every board computes what this machine computes, and refuses what it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.bench.cases import make_cases
from edgekit.host.bench.process import Worker
from edgekit.host.bench.zoo import compile_release, open_zoo

pytestmark = pytest.mark.cross

_MODELS = Path(__file__).parents[2] / "models"
_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_ZOO = open_zoo(_MODELS, Path(_EXTRA) if _EXTRA else None)
_BOARDS = ["a57", "a76", "a7", "rv64gc", "rv64gcv"]
_QUICK = ["okay_nabu", "face_detection_short_range"]
_FLOAT_TOLERANCE = 1e-4


def _outputs_agree(model, board, virtual_board, tmp_path, calls, threads=1):
    local = compile_release(model, "local", tmp_path)
    with Worker("edgekit", local) as worker:
        cases = make_cases(worker.inputs, calls, _ZOO.samples(), steps=40 if worker.stateful else 1)
        cases.save(tmp_path / "in.npz")
        worker.run(tmp_path / "in.npz", tmp_path / "out.npz", cases.steps)
    remote = compile_release(model, board, tmp_path)
    found = virtual_board(board).run(remote, cases, tmp_path, threads)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        expected = [stored[f"out{i}"] for i in range(len(stored.files))]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        if ours.dtype.kind == "f":
            for row, reference in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(
                    row, reference, rtol=0, atol=_FLOAT_TOLERANCE * np.abs(reference).max()
                )
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("name", _QUICK)
def test_small_models_compute_the_same_as_here(name, board, virtual_board, tmp_path):
    model = _MODELS / f"{name}.tflite"
    _outputs_agree(model, board, virtual_board, tmp_path, calls=2)


@pytest.mark.long
@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_all_models_compute_the_same_as_here(model, board, virtual_board, tmp_path):
    _outputs_agree(model, board, virtual_board, tmp_path, calls=4, threads=2)


@pytest.mark.parametrize(
    ("board", "lesser_cpu", "feature"),
    [("a76", "cortex-a57", "asimddp"), ("rv64gcv", "rv64,v=false", "v")],
)
def test_a_cpu_without_a_needed_feature_is_refused(
    board, lesser_cpu, feature, virtual_board, tmp_path
):
    library = compile_release(_MODELS / "okay_nabu.tflite", board, tmp_path) / "model.so"
    refused = virtual_board(board, lesser_cpu).execute(str(library))
    assert (refused.returncode, refused.stdout.strip()) == (3, feature)
    assert virtual_board(board).execute(str(library)).returncode == 0
