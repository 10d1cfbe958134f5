"""RoiAlign and MaxRoiPool against ONNX Runtime: regions in, across and outside of images."""

from __future__ import annotations

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402

_RNG = np.random.default_rng(9)
_X = _RNG.standard_normal((2, 3, 20, 30)).astype(np.float32)
_LOW = _RNG.uniform(-30, 60, (12, 2))
_REGIONS = np.float32([
    [0, 0, 59, 39], [3.3, 4, 20, 30.5], [10, 10, 10.2, 10.1], [50, 2, 60, 7], [9, 9, 4, 20],
    [9, 9, 4, 3], [-300, -200, 500, 900], [-2e4, 4, 3e4, 9], [1e6, 5, 2e6, 20],
    *np.hstack([_LOW, _LOW + _RNG.uniform(-5, 90, (12, 2))]),
])  # fmt: skip
_IMAGES = np.arange(len(_REGIONS)) % 2


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("places", ["half_pixel", "output_half_pixel"])
def test_regions_are_sampled(places, mode, samples, known, tmp_path):
    align = node(
        "RoiAlign", ["x", "regions", "images"], ["y"], mode=mode, sampling_ratio=samples,
        output_height=3, output_width=4, spatial_scale=0.5,
        coordinate_transformation_mode=places,
    )  # fmt: skip
    inputs, constants = {"x": _X}, {"images": _IMAGES}
    (constants if known else inputs)["regions"] = _REGIONS
    _compare(align, inputs, constants, tmp_path)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0625])
def test_bins_of_regions_have_their_maximum(scale, tmp_path):
    pool = node("MaxRoiPool", ["x", "regions"], ["y"], pooled_shape=[3, 4], spatial_scale=scale)
    regions = np.hstack([_IMAGES[:, None], _REGIONS]).astype(np.float32)
    _compare(pool, {"x": _X, "regions": regions}, {}, tmp_path)


def _compare(made, inputs, constants, tmp_path):
    proto = model([made], [value(n, v.shape) for n, v in inputs.items()], ["y"], constants)
    path = save(proto, tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, inputs).outputs["y"]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert not graph.notes
