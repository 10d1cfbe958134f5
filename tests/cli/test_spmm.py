"""edgekit lab bench sparse --weights: pruned layers compared with dense ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

_MODEL = Path(__file__).parents[2] / "models" / "face_detection_full_range_sparse.tflite"


@pytest.mark.slow
def test_layers_of_a_file_are_timed(edgekit: Any, home: Path) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 24, 1, 1)).astype(np.float32)
    w[rng.random(w.shape) < 0.7] = 0
    np.savez(home / "w.npz", first=w, twin=w, bias=np.zeros(16, np.float32))
    bench = ("lab", "bench", "sparse", "--weights", "w.npz", "--seconds", "0.05")
    done = edgekit(*bench, "--pixels", "50", "--json")
    assert done.code == 0
    (layer,) = done.document["layers"]
    assert (layer["name"], layer["outputs"], layer["inputs"]) == ("first", 16, 24)
    assert 0.2 < layer["density"] < 0.4 and layer["sparse"] > 0 and layer["dense"] > 0
    shown = edgekit(*bench, "--threads", "2", "--dtype", "float16")
    assert shown.code == 0 and "geometric mean" in shown.out


@pytest.mark.parametrize(
    "data, complaint",
    [(b"", "expected an .npz of weights"), (None, "expected weights of 2 dimensions or more")],
)
def test_invalid_weights_are_refused(
    edgekit: Any, home: Path, data: bytes | None, complaint: str
) -> None:
    path = home / "w.npz"
    if data is None:
        np.savez(path, bias=np.zeros(3, np.float32))
    else:
        path.write_bytes(data)
    done = edgekit("lab", "bench", "sparse", "--weights", "w.npz")
    assert done.code == 2 and complaint in done.err and done.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_layers_of_a_model_have_as_many_pixels_as_there(edgekit: Any) -> None:
    done = edgekit(
        "lab", "bench", "sparse", "--weights", str(_MODEL), "--seconds", "0.05", "--json"
    )
    assert done.code == 0
    found = {(layer["outputs"], layer["inputs"], layer["pixels"])
             for layer in done.document["layers"]}  # fmt: skip
    assert {(8, 32, 9216), (96, 384, 36)} < found and len(found) == 24
    dense = _MODEL.with_name("okay_nabu.tflite")
    refused = edgekit("lab", "bench", "sparse", "--weights", str(dense))
    assert refused.code == 2 and "expected pruned 1x1 convolutions of f32" in refused.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--weights", "w.npz", "--matrix", "m.mtx"), "expected --matrix or --weights, found both"),
        (("--pixels", "9", "--peers"), "expected --peers or --pixels, found both"),
        (("--weights", "w.npz", "--dtype", "float64"), "float16 or int8 with --weights, found fl"),
    ],
)
def test_options_of_products_with_a_vector(
    edgekit: Any, options: tuple[str, ...], complaint: str
) -> None:
    done = edgekit("lab", "bench", "sparse", *options)
    assert (done.code, done.out) == (2, "") and complaint in done.complaint
