"""Products that the node tests do not cover, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (4, 1), (4, 4)])
@pytest.mark.parametrize("alpha", [1.0, 2.3])
def test_a_term_may_be_a_row_or_a_column(shape, alpha, tmp_path):
    rng = np.random.default_rng(3)
    x, w, c = (rng.normal(size=s).astype(np.float32) for s in ((4, 5), (5, 4), shape))
    made = node("Gemm", ["x", "w", "c"], ["y"], alpha=alpha, beta=0.5)
    constants = {"w": w, "c": np.asarray(c, np.float32)}
    path = save(model([made], [value("x", x.shape)], ["y"], constants), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(import_model(path), {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
