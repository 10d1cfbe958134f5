"""Tree ensembles of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.learned_models import (
    agree,
    learned,
    node,
    random_rows,
    random_trees,
)

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_AFTER = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_X = (np.float32, np.float64, np.int64, np.int32)


def _entries(rng, leaves, targets, prefix, positive=False, every=True):
    """Weights of leaves: of every target, or of some."""
    rows = [
        (*leaf, target, float(rng.random() if positive else rng.normal()))
        for leaf in leaves
        for target in targets
        if every or rng.random() < 0.6
    ]
    columns = list(zip(*rows, strict=True))
    names = ("treeids", "nodeids", "ids", "weights")
    return {f"{prefix}_{n}": list(c) for n, c in zip(names, columns, strict=True)}


@pytest.mark.parametrize("dtype", _X, ids=lambda d: d.__name__)
@pytest.mark.parametrize("mode", [*_MODES, "mixed"])
def test_every_test_of_a_node_on_every_type(mode, dtype, tmp_path):
    rng = np.random.default_rng(1)
    for missing in (False, True):
        modes = _MODES if mode == "mixed" else (mode,)
        nodes, leaves = random_trees(rng, 5, 4, modes, missing=missing)
        entries = _entries(rng, leaves, (0,), "target")
        x = {"x": random_rows(rng, 33, 4, dtype)}
        made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **nodes, **entries)
        if dtype in (np.int64, np.int32):  # ONNX Runtime has no kernel
            wide = {"x": x["x"].astype(np.float32)}
            want = evaluate(agree(learned([made], wide, ["y"]), wide, tmp_path), wide)
            (tmp_path / "whole.onnx").write_bytes(learned([made], x, ["y"]))
            found = evaluate(import_model(tmp_path / "whole.onnx"), x)
            np.testing.assert_array_equal(found.outputs["y"], want.outputs["y"])
            continue
        agree(learned([made], x, ["y"]), x, tmp_path)


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_targets_are_joined_by_every_function(targets, function, tmp_path):
    rng = np.random.default_rng(2)
    for every, rows in ((True, 1), (targets == 1, 9)):
        nodes, leaves = random_trees(rng, 7, 3, ("BRANCH_LEQ",))
        entries = _entries(rng, leaves, range(targets), "target", every=every)
        x = {"x": random_rows(rng, rows, 3, np.float32)}
        for base in (None, [0.5] * targets):
            made = node(
                "TreeEnsembleRegressor", ["x"], ["y"], n_targets=targets, base_values=base,
                aggregate_function=function, **nodes, **entries,
            )  # fmt: skip
            agree(learned([made], x, ["y"]), x, tmp_path)


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_leaves_may_name_no_target(targets, function, tmp_path):
    """The only one, the first of two, or the second."""
    rng = np.random.default_rng(7)
    nodes, leaves = random_trees(rng, 2, 3, ("BRANCH_LEQ",), depth=2)
    x = {"x": random_rows(rng, 25, 3, np.float32)}
    for named in (leaves[:1], leaves[::2]):
        for target in range(targets):
            entries = _entries(rng, named, (target,), "target", positive=target == 1)
            made = node(
                "TreeEnsembleRegressor", ["x"], ["y"], n_targets=targets,
                base_values=[0.5, -2.0][:targets], aggregate_function=function, **nodes, **entries,
            )  # fmt: skip
            agree(learned([made], x, ["y"]), x, tmp_path)


@pytest.mark.parametrize("after", _AFTER)
@pytest.mark.parametrize("targets", [1, 2, 4])
def test_scores_of_a_regressor_are_transformed(targets, after, tmp_path):
    rng = np.random.default_rng(3)
    nodes, leaves = random_trees(rng, 3, 3, ("BRANCH_LT",))
    entries = _entries(rng, leaves, range(targets), "target", positive=True)
    entries["target_weights"] = [w / 4 for w in entries["target_weights"]]
    x = {"x": random_rows(rng, 5, 3, np.float32)}
    made = node(
        "TreeEnsembleRegressor", ["x"], ["y"], n_targets=targets, post_transform=after, **nodes,
        **entries,
    )  # fmt: skip
    agree(learned([made], x, ["y"]), x, tmp_path, near=1e-4)


@pytest.mark.parametrize("after", _AFTER)
@pytest.mark.parametrize("classes", [3, 5])
def test_the_class_of_the_highest_score_wins(classes, after, tmp_path):
    rng = np.random.default_rng(4)
    for every, base, texts in ((True, None, False), (False, None, True), (True, classes, False)):
        nodes, leaves = random_trees(rng, 6, 3, ("BRANCH_LEQ",))
        entries = _entries(rng, leaves, range(classes), "class", positive=True, every=every)
        entries["class_weights"] = [w / 8 for w in entries["class_weights"]]
        names = [f"c{i}" for i in range(classes)]
        made = node(
            "TreeEnsembleClassifier", ["x"], ["l", "p"], post_transform=after,
            base_values=None if base is None else [0.125] * base,
            classlabels_strings=names if texts else None,
            classlabels_int64s=None if texts else [7, *range(classes - 1)], **nodes, **entries,
        )  # fmt: skip
        x = {"x": random_rows(rng, 17, 3, np.float32)}
        near = 1e-3 if after == "PROBIT" else 1e-5
        agree(learned([made], x, ["l", "p"]), x, tmp_path, near, names)


@pytest.mark.slow
@pytest.mark.parametrize("after", _AFTER[:4])
@pytest.mark.parametrize("ids", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("positive", [True, False])
def test_two_classes_as_onnx_runtime_scores_them(positive, ids, after, tmp_path):
    rng = np.random.default_rng(5)
    for every in (True, False):
        for base in ((), (0.25,), (0.25, -0.5)):
            nodes, leaves = random_trees(rng, 3, 3, ("BRANCH_LEQ",), depth=2)
            entries = _entries(rng, leaves, ids, "class", positive, every or base == (0.25,))
            entries["class_weights"] = [w / 2 for w in entries["class_weights"]]
            made = node(
                "TreeEnsembleClassifier", ["x"], ["l", "p"], post_transform=after,
                base_values=base or None, classlabels_int64s=[10, 20], **nodes, **entries,
            )  # fmt: skip
            x = {"x": random_rows(rng, 40, 3, np.float32)}
            agree(learned([made], x, ["l", "p"]), x, tmp_path)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_of_opset_5(dtype, tmp_path):
    """Four tests, one of them for a set, whose branches are leaves or nodes."""
    nan = np.nan

    def tensor(values, kind=dtype):
        return numpy_helper.from_array(np.array(values, kind))

    for function in range(4):
        made = node(
            "TreeEnsemble", ["x"], ["y"], n_targets=2, aggregate_function=function,
            post_transform=0, tree_roots=[0, 2], nodes_featureids=[0, 1, 0, 2],
            nodes_modes=tensor([0, 6, 3, 6], np.uint8), nodes_splits=tensor([0.5, 0, 1, 0]),
            nodes_truenodeids=[1, 0, 2, 4], nodes_trueleafs=[0, 1, 1, 1],
            nodes_falsenodeids=[1, 1, 3, 5], nodes_falseleafs=[1, 1, 0, 1],
            membership_values=tensor([1, 2, nan, -1, 0, nan]),
            leaf_targetids=[0, 1, 0, 0, 1, 1], leaf_weights=tensor([1, 2, 3, 4, 5, 6]),
            nodes_missing_value_tracks_true=[0, 1, 0, 0],
        )  # fmt: skip
        rows = random_rows(np.random.default_rng(6), 50, 3, dtype)
        x = {"x": np.floor(rows)}  # ONNX Runtime truncates what it looks for in a set
        agree(learned([made], x, ["y"], version=5), x, tmp_path)


def test_a_cycle_and_a_feature_that_the_input_lacks_are_refused(tmp_path):
    rng = np.random.default_rng(7)
    nodes, leaves = random_trees(rng, 1, 3, ("BRANCH_LEQ",), depth=3)
    entries = _entries(rng, leaves, (0,), "target")
    x = {"x": random_rows(rng, 2, 2, np.float32)}
    for name, value, said in (
        ("nodes_featureids", 2, "expected tests of 2 features, found feature 2"),
        ("nodes_truenodeids", 0, "found a cycle or a node apart"),
        ("nodes_truenodeids", 99, "expected node 99 of tree 0, found none"),
        ("nodes_modes", "BRANCH_XOR", "found BRANCH_XOR"),
    ):
        other = {**nodes, name: [value, *nodes[name][1:]]}
        if name != "nodes_featureids":
            other["nodes_featureids"] = [0] * len(nodes["nodes_modes"])
        made = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **other, **entries)
        path = tmp_path / "m.onnx"
        path.write_bytes(learned([made], x, ["y"]))
        with pytest.raises(InputError, match=said):
            import_model(path)


def test_a_single_leaf_is_a_tree(tmp_path):
    nodes = {
        "nodes_treeids": [3], "nodes_nodeids": [0], "nodes_featureids": [0], "nodes_values": [0.0],
        "nodes_modes": ["LEAF"], "nodes_truenodeids": [0], "nodes_falsenodeids": [0],
    }  # fmt: skip
    made = node(
        "TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, target_treeids=[3],
        target_nodeids=[0], target_ids=[0], target_weights=[2.5], **nodes,
    )  # fmt: skip
    x = {"x": np.zeros((2, 1), np.float32)}
    agree(learned([made], x, ["y"]), x, tmp_path)


def test_a_forest_whose_input_is_computed(tmp_path):
    rng = np.random.default_rng(8)
    nodes, leaves = random_trees(rng, 9, 4, ("BRANCH_LEQ",))
    entries = _entries(rng, leaves, (0, 1, 2), "class", positive=True)
    x = {"x": random_rows(rng, 6, 4, np.float64)}
    made = [
        node("Scaler", ["x"], ["s"], offset=[0.5], scale=[2.0]),
        node("TreeEnsembleClassifier", ["s"], ["label", "p"], classlabels_strings=["a", "b", "c"],
             **nodes, **entries),
        helper.make_node("Cast", ["label"], ["named"], to=8),
        node("ZipMap", ["p"], ["maps"], classlabels_strings=["a", "b", "c"]),
    ]  # fmt: skip
    graph = agree(learned(made, x, ["named", "maps"]), x, tmp_path, labels=("a", "b", "c"))
    assert any("numbers of labels here: 0 a, 1 b, 2 c" in note for note in graph.notes)
