"""Other engines on an ONNX model: each must match the outputs of our release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.peers import bench_peers
from edgekit.host.lab.bench.process import Worker
from edgekit.host.lab.zoo.models import compile_release
from tests.support import onnx_models

pytestmark = [pytest.mark.slow, pytest.mark.engines]

_SHAPE = (1, 3, 16, 12)
_CONVERTED = pytest.param("ncnn", marks=pytest.mark.long)  # pnnx imports PyTorch, which is slow
_ENGINES = ("onnxruntime", "openvino", "mnn", _CONVERTED)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution with bias, followed by a ReLU."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 3, 3, 3)).astype(np.float32)
    bias = rng.normal(size=8).astype(np.float32)
    nodes = [
        onnx_models.node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        onnx_models.node("Relu", ["c"], ["y"]),
    ]
    made = onnx_models.model(
        nodes, [onnx_models.value("x", _SHAPE)], ["y"], {"w": weights, "b": bias}
    )
    return onnx_models.save(made, tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def release(model: Path) -> Path:
    return compile_release(model, "local", model.parent)


def _output(kind: str, model: Path, folder: Path) -> np.ndarray:
    inputs = folder / "in.npz"
    x = np.random.default_rng(1).normal(size=(2, *_SHAPE)).astype(np.float32)
    np.savez(inputs, in0=x)
    with Worker(kind, model) as worker:
        assert [i.shape for i in worker.inputs] == [_SHAPE]
        worker.run(inputs, folder / "out.npz")
    with np.load(folder / "out.npz") as stored:
        return stored["out0"]


@pytest.mark.parametrize("engine", _ENGINES)
def test_an_engine_computes_what_we_do(engine, model, release, tmp_path):
    ours = _output("edgekit", release, tmp_path)
    np.testing.assert_allclose(_output(engine, model, tmp_path), ours, atol=1e-5)


def test_engines_are_timed_and_the_others_say_why_not(model, release):
    names = ("onnxruntime", "litert")
    timed, other = bench_peers(release, model, threads=1, runs=3, peers=names).peers
    assert timed.latency and timed.ratio > 0
    assert other.missing == "runs .tflite models only"


@pytest.mark.parametrize("engine", ["onnxruntime", "ncnn"])
def test_a_format_that_an_engine_does_not_read_is_one_line(engine):
    with pytest.raises(InputError, match=r"runs \.onnx models only"):
        Worker(engine, Path("model.tflite"))


@pytest.mark.parametrize("engine", ["mnn", "ncnn"])
def test_a_model_that_a_converter_refuses_is_one_line(engine, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07 no model")
    with pytest.raises(InputError, match=engine) as error:
        Worker(engine, broken)
    assert "\n" not in str(error.value)
