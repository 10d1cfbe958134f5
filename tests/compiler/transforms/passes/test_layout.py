"""The layout pass: unchanged results, and no transposes between convolutions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.layout import push_transposes
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.regroup import order_within_groups, regroup
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(11)
_X = value("x", [1, 8, 6, 10])


def _weights(*shape):
    return _RNG.standard_normal(shape).astype(np.float32)


def _both(nodes, constants, folder, outputs=("y",)):
    """Number of remaining transposes; raises unless the pass preserves all results."""
    conv = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])]
    constants = {"w": _weights(8, 8, 3, 3), **constants}
    graph = import_model(save(model([*conv, *nodes], [_X], outputs, constants), folder))
    inputs = {"x": _weights(1, 8, 6, 10)}
    after = run_passes(graph)[0]
    before, now = evaluate(graph, inputs).outputs, evaluate(after, inputs).outputs
    assert after.outputs == graph.outputs
    for name, want in before.items():
        np.testing.assert_allclose(now[name], want, rtol=1e-5, atol=1e-5)
    return sum(isinstance(n.op, ops.Transpose) for n in after.nodes)


_PER_CHANNEL = {"s": _weights(1, 8, 1, 1), "t": _weights(8, 1, 1), "w2": _weights(8, 8, 1, 1)}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Relu", ["c"], ["r"]), node("Conv", ["r", "w2"], ["y"])],
        [node("Mul", ["c", "s"], ["m"]), node("Add", ["m", "t"], ["y"])],
        [node("Sigmoid", ["c"], ["g"]), node("Mul", ["c", "g"], ["y"])],
        [node("Concat", ["c", "c"], ["k"], axis=1), node("Relu", ["k"], ["y"])],
        [node("Split", ["c"], ["a", "b"], axis=1), node("Add", ["a", "b"], ["y"])],
        [node("GlobalAveragePool", ["c"], ["p"]), node("Mul", ["c", "p"], ["y"])],
        [node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2]), node("Conv", ["p", "w2"], ["y"])],
        [node("ReduceMax", ["c"], ["p"], axes=[2, 3], keepdims=0), node("Neg", ["p"], ["y"])],
        [node("Slice", ["c", "one", "five", "one"], ["y"])],
        [node("Pad", ["c", "pads"], ["p"]), node("Conv", ["p", "w2"], ["y"])],
        [node("Softmax", ["c"], ["y"], axis=1)],
        [node("PRelu", ["c", "t"], ["y"])],
    ],
    ids=lambda nodes: "-".join(n.op_type for n in nodes),
)
def test_only_the_borders_keep_a_transpose(nodes, tmp_path):
    more = {
        "one": np.array([1], np.int64), "five": np.array([5], np.int64),
        "pads": np.array([0, 0, 1, 1, 0, 0, 0, 2], np.int64),
    }  # fmt: skip
    assert _both(nodes, {**_PER_CHANNEL, **more}, tmp_path) <= 2


def test_a_channel_shuffle_moves_nothing_but_its_halves(tmp_path):
    """ShuffleNet's reshape → transpose → reshape → gather twice, as PyTorch exports it."""
    constants = {
        "to": np.array([4, 2, 60], np.int64), "back": np.array([2, -1, 4, 6, 10], np.int64),
        "first": np.array(0, np.int64), "second": np.array(1, np.int64),
        "half": _weights(8, 4, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Reshape", ["c", "to"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "back"], ["u"]),
        node("Gather", ["u", "first"], ["a"], axis=0),
        node("Gather", ["u", "second"], ["b"], axis=0),
        node("Conv", ["a", "half"], ["ca"]),
        node("Conv", ["b", "half"], ["cb"]),
        node("Add", ["ca", "cb"], ["y"]),
    ]
    assert _both(nodes, constants, tmp_path) == 2


def test_a_channel_shuffle_of_images_stays_channels_last(tmp_path):
    """As torchvision exports it: reshape → transpose → reshape → slices."""
    constants = {
        "to": np.array([1, 2, 4, 6, 10], np.int64), "back": np.array([1, 8, 6, 10], np.int64),
        "zero": np.array([0], np.int64), "four": np.array([4], np.int64),
        "eight": np.array([8], np.int64), "one": np.array([1], np.int64),
        "half": _weights(8, 4, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Reshape", ["c", "to"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "back"], ["u"]),
        node("Slice", ["u", "zero", "four", "one"], ["a"]),
        node("Slice", ["u", "four", "eight", "one"], ["b"]),
        node("Conv", ["a", "half"], ["ca"]),
        node("Conv", ["b", "half"], ["cb"]),
        node("Add", ["ca", "cb"], ["y"]),
    ]
    assert _both(nodes, constants, tmp_path) == 3


def test_a_normalization_without_factors_keeps_its_terms(tmp_path):
    nodes = [
        node("Transpose", ["x"], ["r"], perm=[0, 2, 1, 3]),
        node("LayerNormalization", ["r", "ones", "terms"], ["n"], axis=-1),
        node("Transpose", ["n"], ["y"], perm=[0, 2, 1, 3]),
    ]
    assert _both(nodes, {"ones": np.ones(10, np.float32), "terms": _weights(10)}, tmp_path) == 0


def test_a_flat_output_needs_the_elements_in_their_old_order(tmp_path):
    nodes = [node("Flatten", ["c"], ["f"]), node("MatMul", ["f", "m"], ["y"])]
    assert _both(nodes, {"m": _weights(480, 3)}, tmp_path) == 2


def test_what_needs_its_own_layout_gets_it(tmp_path):
    nodes = [
        node("Add", ["c", "x"], ["s"]),
        node("ReduceSum", ["s", "axes"], ["r"], keepdims=1),
        node("MatMul", ["c", "m"], ["p"]),
        node("Add", ["p", "r"], ["y"]),
    ]
    constants = {"m": _weights(10, 10), "axes": np.array([1, 2], np.int64)}
    _both(nodes, constants, tmp_path, ("y", "s", "c"))


def test_sums_are_in_the_order_that_is_there_already(tmp_path):
    """As in transformers of patches: products over pixels need them last, and once they are, the
    sums behind keep them so."""
    nodes = [node("Reshape", ["c", "flat"], ["s0"])]
    for i in range(3):
        nodes += [
            node("MatMul", [f"s{i}", "m"], [f"p{i}"]),
            node("Relu", [f"p{i}"], [f"r{i}"]),
            node("Add", [f"s{i}", f"r{i}"], [f"s{i + 1}" if i < 2 else "y"]),
        ]
    constants = {"flat": np.array([1, 8, 60]), "m": _weights(60, 60)}
    assert _both(nodes, constants, tmp_path) == 2  # one is the input's


def test_a_graph_without_transposes_stays(tmp_path):
    path = save(model([node("Relu", ["x"], ["y"])], [_X], ["y"]), tmp_path)
    graph = import_model(path)
    assert push_transposes(graph) is graph


@given(st.data())
def test_regrouping_is_what_numpy_does(data):
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(sizes))))
    seen = tuple(sizes)
    factors = [f for d in seen for f in ((2, 2) if d == 4 else (d,))]
    target = tuple(factors) if data.draw(st.booleans()) else (int(np.prod(seen)),)
    lies = [0] * len(seen)
    for axis, at in enumerate(order):
        lies[at] = seen[axis]
    physical = np.arange(int(np.prod(seen))).reshape(lies)
    found = regroup(seen, tuple(order), target)
    if found is not None:
        expected = physical.transpose(order).reshape(target)
        made = physical.reshape(found.shape).transpose(found.order)
        np.testing.assert_array_equal(made, expected)
        assert order_within_groups(seen, tuple(order), target) == tuple(order)
    elif len([d for d in seen if d > 1]) == 1 or list(order) == sorted(order):
        raise AssertionError("nothing had to move")
    moved = order_within_groups(seen, tuple(order), target)
    assert moved is None or regroup(seen, moved, target) is not None
