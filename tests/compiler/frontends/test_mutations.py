"""Corrupted copies of real models: a graph or one line, never another exception.

`tests/long/fuzz_importer.py` and `tests/long/fuzz_operators.py` do this ten thousand times.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.operators import ROWS
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, value

_ROOT = Path(__file__).parents[3]


def _load(name):
    path = _ROOT / "tests" / "long" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzzer, operators = _load("fuzz_importer"), _load("fuzz_operators")
MODELS = fuzzer.models(None)
EDITS = st.lists(
    st.builds(
        fuzzer.Edit,
        st.sampled_from(fuzzer.KINDS),
        st.integers(0, 2**22),
        st.one_of(st.sampled_from(fuzzer.EDGES), st.integers(0, 2**32 - 1)),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def smallest() -> bytes:
    return min((p.read_bytes() for p in MODELS), key=len)


@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
def test_a_file_cut_anywhere_is_refused_or_complete(model):
    content = model.read_bytes()
    for part in range(1, 50):
        cut = content[: len(content) * part // 50]
        assert fuzzer.outcome(cut) != "graph", f"{part}/50 of {model.name}"


def _cut(path, whole):
    """Import each of 50 prefixes of a file; rejections must be one line."""
    refused = 0
    for part in range(50):
        path.write_bytes(whole[: len(whole) * part // 50])
        try:
            import_model(path)
        except InputError as error:
            refused += 1
            assert str(error).isprintable() and path.name in str(error)
    return refused


def test_onnx_files_cut_anywhere(tmp_path):
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32)}
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    proto = model(nodes, [value("x", [1, 3, 8, 8])], ["y"], weights)
    assert _cut(tmp_path / "m.onnx", proto.SerializeToString()) == 50


def test_caffe_files_cut_anywhere(tmp_path):
    text = (
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }\n'
        'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }\n'
    )
    assert _cut(tmp_path / "net.prototxt", text.encode()) > 30
    (tmp_path / "net.prototxt").write_text(text)
    _cut(tmp_path / "net.caffemodel", bytes(range(256)) * 4)


def test_onnx_operators_with_operands_that_make_no_sense(tmp_path):
    assert operators.run(sorted(ROWS), 1500, 777, tmp_path) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
def test_random_damage_is_survived(smallest, edits):
    assert fuzzer.outcome(fuzzer.apply(smallest, edits))


def test_damage_to_the_structure_is_survived():
    assert fuzzer.run(MODELS, 60, 12345) == []
