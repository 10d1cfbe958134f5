"""Linear models, support vector machines and features of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.inputs import read_notes
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here
from tests.support.learned_models import (
    agree,
    learned,
    node,
    random_rows,
    random_trees,
)

_AFTER = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_TYPES = (np.float32, np.float64, np.int64, np.int32)


def _rows(rng, rows, features, dtype=np.float32):
    return {"x": (rng.normal(size=(rows, features)) * 3).astype(dtype)}


def _floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32).reshape(-1).tolist()


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("rows", [1, 7])
def test_features_of_every_type(rows, dtype, tmp_path):
    rng = np.random.default_rng(1)
    x = _rows(rng, rows, 5, dtype)
    x["x"][0] = 0
    made = [node("Scaler", ["x"], ["a"], offset=_floats(rng, 5), scale=_floats(rng, 5))]
    made += [node("Scaler", ["x"], ["b"], offset=[0.5], scale=[2.0])]
    made += [node("Normalizer", ["x"], [f"n{norm}"], norm=norm) for norm in ("MAX", "L1", "L2")]
    made += [node("ArrayFeatureExtractor", ["x", "columns"], ["e"])]
    made += [node("FeatureVectorizer", ["x", "x"], ["v"], inputdimensions=[3, 7])]
    outputs = ["a", "b", "nMAX", "nL1", "nL2", "e", "v"]
    if dtype != np.int32:
        made.append(node("OneHotEncoder", ["x"], ["h"], cats_int64s=[0, -2, 3, 1], zeros=1))
        outputs.append("h")
    if dtype == np.float32:
        made.append(node("Binarizer", ["x"], ["t"], threshold=0.25))
        outputs.append("t")
    made.append(node("FeatureVectorizer", ["x"], ["w"], inputdimensions=[5]))
    for name in (*outputs, "w"):
        columns = {"columns": np.array([[4, 0, 0]])}
        agree(learned(made, x, [name], columns), x, tmp_path)


@pytest.mark.parametrize("values", [[1.5], [1.5, -2.0, 3.0]])
def test_missing_values_are_imputed(values, tmp_path):
    x = np.float32([[1, np.nan, -1], [np.nan, 0, -1]])
    for old in (np.nan, -1.0):
        made = node("Imputer", ["x"], ["y"], imputed_value_floats=values, replaced_value_float=old)
        agree(learned([made], {"x": x}, ["y"]), {"x": x}, tmp_path)
    whole = {"x": np.array([[1, 7, -1], [7, 0, 7]])}
    made = node("Imputer", ["x"], ["y"], imputed_value_int64s=[int(v) for v in values],
                replaced_value_int64=7)  # fmt: skip
    agree(learned([made], whole, ["y"]), whole, tmp_path)


@pytest.mark.parametrize("after", _AFTER)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressors(targets, after, tmp_path):
    rng = np.random.default_rng(2)
    for rows, offsets in ((1, None), (6, _floats(rng, targets))):
        made = node("LinearRegressor", ["x"], ["y"], targets=targets, intercepts=offsets,
                    coefficients=_floats(rng, targets, 5), post_transform=after)  # fmt: skip
        x = {"x": _rows(rng, rows, 5)["x"] / 40}
        agree(learned([made], x, ["y"]), x, tmp_path, 1e-3 if after == "PROBIT" else 1e-5)


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("after", _AFTER[:4])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_linear_classifiers(count, after, dtype, tmp_path):
    """Labels without a score, as of 3 of 4 names, are never chosen."""
    rng = np.random.default_rng(3)
    names = ["no", "yes", "perhaps", "never"][: max(count, 2)]
    for texts in (True, False):
        made = node(
            "LinearClassifier", ["x"], ["l", "p"], coefficients=_floats(rng, count, 5),
            intercepts=_floats(rng, count), post_transform=after, multi_class=1,
            classlabels_strings=names if texts else None,
            classlabels_ints=None if texts else [5, 3, 9, 1][: max(count, 2)],
        )  # fmt: skip
        x = _rows(rng, 9, 5, dtype)
        agree(learned([made], x, ["l", "p"]), x, tmp_path, labels=names)


def test_probits_of_a_linear_classifier(tmp_path):
    x = {"x": np.linspace(0.05, 0.95, 6, dtype=np.float32)[:, None]}
    for count, labels in ((1, None), (2, [4, 9])):
        made = node("LinearClassifier", ["x"], ["l", "p"], coefficients=[1.0, 0.5][:count],
                    intercepts=[0.0, 0.1][:count], post_transform="PROBIT",
                    classlabels_ints=labels)  # fmt: skip
        agree(learned([made], x, ["l", "p"]), x, tmp_path, 1e-3)
    made = node("LinearClassifier", ["x"], ["l", "p"], coefficients=[1.0], intercepts=[0.0],
                post_transform="PROBIT", classlabels_ints=[4, 9])  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(learned([made], x, ["l", "p"]))
    with pytest.raises(InputError, match="scores of both labels for post_transform PROBIT"):
        import_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regressors(kernel, tmp_path):
    rng = np.random.default_rng(4)
    for degree, one_class in ((3.0, 0), (2.0, 1)):
        made = node(
            "SVMRegressor", ["x"], ["y"], kernel_type=kernel, n_supports=7, one_class=one_class,
            kernel_params=[0.1, 0.5, degree], support_vectors=_floats(rng, 7, 5),
            coefficients=_floats(rng, 7), rho=[0.25],
        )  # fmt: skip
        x = _rows(rng, 6, 5)
        agree(learned([made], x, ["y"]), x, tmp_path)
    made = node("SVMRegressor", ["x"], ["y"], kernel_type=kernel, coefficients=_floats(rng, 5),
                kernel_params=[0.1, 0.5, 3.0], rho=[0.25], n_supports=0)  # fmt: skip
    agree(learned([made], x, ["y"]), x, tmp_path)


@pytest.mark.parametrize("after", _AFTER[:4])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_support_vector_classifiers_vote(count, after, tmp_path):
    rng = np.random.default_rng(5)
    sizes = [3, 2, 4, 1, 3][:count]
    pairs = count * (count - 1) // 2
    for dtype, kernel in ((np.float32, "RBF"), (np.int64, "LINEAR"), (np.float64, "POLY")):
        made = node(
            "SVMClassifier", ["x"], ["l", "p"], kernel_type=kernel, post_transform=after,
            kernel_params=[0.1, 0.5, 2.0], support_vectors=_floats(rng, sum(sizes), 4),
            vectors_per_class=sizes, coefficients=_floats(rng, count - 1, sum(sizes)),
            rho=_floats(rng, pairs), classlabels_ints=[4, 2, 7, 1, 0][:count],
        )  # fmt: skip
        x = _rows(rng, 21, 4, dtype)
        agree(learned([made], x, ["l", "p"]), x, tmp_path)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_probabilities_of_support_vector_classifiers(count, tmp_path):
    rng = np.random.default_rng(6)
    sizes = [3, 2, 4, 1, 3][:count]
    pairs = count * (count - 1) // 2
    made = node(
        "SVMClassifier", ["x"], ["l", "p"], kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0],
        support_vectors=_floats(rng, sum(sizes), 4), vectors_per_class=sizes,
        coefficients=_floats(rng, count - 1, sum(sizes)), rho=_floats(rng, pairs),
        prob_a=[-abs(v) - 1 for v in _floats(rng, pairs)], prob_b=_floats(rng, pairs),
        classlabels_strings=list("abcde"[:count]),
    )  # fmt: skip
    x = _rows(rng, 40, 4)
    agree(learned([made], x, ["l", "p"]), x, tmp_path, labels=list("abcde"))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("positive", [True, False])
def test_linear_support_vector_classifiers(positive, count, tmp_path):
    rng = np.random.default_rng(7)
    weights = _floats(rng, count, 4)
    made = node("SVMClassifier", ["x"], ["l", "p"], rho=[0.1],
                classlabels_ints=[3, 1, 4, 2][:count],
                coefficients=[abs(w) for w in weights] if positive else weights,
                kernel_params=[0.0, 0.0, 3.0], post_transform="NONE")  # fmt: skip
    x = _rows(rng, 30, 4)
    agree(learned([made], x, ["l", "p"]), x, tmp_path)


def test_labels_are_encoded_by_tables(tmp_path):
    whole = {"x": np.array([[3, -1, 7], [0, 12, 99]])}
    for keys in ([7, 3, 12], [3, 1_000_000, 7]):
        for values in ({"values_int64s": [5, -4, 9]}, {"values_floats": [0.5, 2.0, -1.0]},
                       {"values_strings": ["a", "b", "a"], "default_string": "none"}):  # fmt: skip
            made = node("LabelEncoder", ["x"], ["y"], keys_int64s=keys, **values)
            labels = ("a", "b", "none")
            agree(learned([made], whole, ["y"]), whole, tmp_path, labels=labels)
    floats = {"x": np.float32([0.5, 2, np.nan, 7])}
    for version in (2, 4):
        made = node("LabelEncoder", ["x"], ["y"], keys_floats=[2.0, np.nan, 0.5],
                    values_floats=[1.0, 2.0, 3.0], default_float=-7.0)  # fmt: skip
        if version == 2:
            floats["x"][2] = 1
        agree(learned([made], floats, ["y"], version=version), floats, tmp_path)


def test_a_network_of_scikit_learn_names_the_winner(tmp_path):
    """As skl2onnx writes MLPClassifier: the label is looked up by the winner's number."""
    rng = np.random.default_rng(8)
    for classes in (np.array(["setosa", "versicolor", "virginica"], object), np.array([3, 5, 8])):
        w = rng.normal(size=(4, 3)).astype(np.float32)
        constants = {"w": w, "classes": classes, "shape": np.array([-1])}
        made = [
            node("Scaler", ["x"], ["s"], offset=_floats(rng, 4), scale=_floats(rng, 4)),
            helper.make_node("MatMul", ["s", "w"], ["z"]),
            helper.make_node("Softmax", ["z"], ["p"]),
            helper.make_node("ArgMax", ["z"], ["winner"], axis=1),
            node("ArrayFeatureExtractor", ["classes", "winner"], ["found"]),
            helper.make_node("Reshape", ["found", "shape"], ["label"]),
            node("ZipMap", ["p"], ["maps"], classlabels_int64s=[0, 1, 2]),
        ]
        x = _rows(rng, 1, 4)
        content = learned(made, x, ["label", "maps"], constants)
        agree(content, x, tmp_path, labels=classes.tolist())
        named = read_notes(tmp_path / "model.onnx").labels
        assert named == ((tuple(classes),) * 2 if classes.dtype.kind == "O" else ())


def test_class_names_are_labels_of_the_scores(tmp_path):
    rng = np.random.default_rng(9)
    made = node("LinearClassifier", ["x"], ["l", "p"], coefficients=_floats(rng, 3, 4),
                intercepts=_floats(rng, 3), classlabels_strings=["a", "b", "c"])  # fmt: skip
    x = _rows(rng, 2, 4)
    (tmp_path / "m.onnx").write_bytes(learned([made], x, ["l", "p"]))
    assert read_notes(tmp_path / "m.onnx").labels == (("a", "b", "c"),) * 2


def test_a_file_without_an_opset_of_onnx_itself(tmp_path):
    x = _rows(np.random.default_rng(10), 2, 3)
    made = node("Scaler", ["x"], ["y"], offset=[1.0], scale=[2.0])
    proto = helper.make_model(
        helper.make_graph(
            [made], "g", [helper.make_tensor_value_info("x", 1, [2, 3])],
            [helper.make_tensor_value_info("y", 1, [2, 3])],
        ),
        opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=6,
    )  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found = evaluate(import_model(tmp_path / "m.onnx"), x).outputs["y"]
    np.testing.assert_array_equal(found, (x["x"] - 1) * 2)


@pytest.mark.slow
def test_a_library_computes_what_the_reference_does(tmp_path):
    """A pipeline with a forest and a machine whose search for probabilities is a loop."""
    rng = np.random.default_rng(11)
    nodes, leaves = random_trees(rng, 8, 4, ("BRANCH_LEQ", "BRANCH_EQ"), missing=True)
    made = [
        node("Scaler", ["x"], ["s"], offset=[0.5], scale=[2.0]),
        node(
            "TreeEnsembleClassifier", ["s"], ["l", "p"], classlabels_int64s=[4, 2, 9],
            class_treeids=[t for t, _ in leaves], class_nodeids=[n for _, n in leaves],
            class_ids=[i % 3 for i in range(len(leaves))], class_weights=_floats(rng, len(leaves)),
            post_transform="SOFTMAX", **nodes,
        ),
        node(
            "SVMClassifier", ["x"], ["m", "q"], kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0],
            support_vectors=_floats(rng, 7, 4), vectors_per_class=[3, 2, 2], rho=_floats(rng, 3),
            coefficients=_floats(rng, 2, 7), prob_a=[-1.0] * 3, prob_b=[0.0] * 3,
            classlabels_strings=["a", "b", "c"],
        ),
    ]  # fmt: skip
    x = {"x": random_rows(rng, 21, 4, np.float32)}
    x["x"][np.isnan(x["x"])] = 0
    names = ["l", "p", "m", "q"]
    graph = agree(learned(made, x, names), x, tmp_path, labels=["a", "b", "c"])
    expected = evaluate(graph, x).outputs
    found = run_here(build(graph, load_board("local"), tmp_path / "made"), x)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


def _imputer(fitted, k, rows):
    """The calls of a KNNImputer that skl2onnx exports; the bodies of its functions, which collect
    incomplete rows, are not read."""
    columns = fitted.shape[1]
    holes = np.isnan(fitted)
    constants = {"fitted": fitted, "holes": holes, "k": np.int64(k), "there": ~holes}
    constants |= {f"c{i}": np.int64(i) for i in range(columns)}
    nodes = [
        helper.make_node("IsNaN", ["x"], ["mask"]),
        helper.make_node("ReduceMax", ["whole", "last"], ["any"], keepdims=0),
        helper.make_node("NonZero", ["any"], ["found"]),
        helper.make_node("Reshape", ["found", "flat"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["incomplete"]),
        helper.make_node("dict_idx_map", ["x", "rows"], ["map"], domain="local_domain"),
        helper.make_node(
            "dist_nan_euclidean", ["incomplete", "fitted"], ["far"], domain="local_domain"
        ),
    ]
    nodes.insert(1, helper.make_node("Cast", ["mask"], ["whole"], to=TensorProto.INT32))
    constants |= {"last": np.array([1]), "flat": np.array([-1])}
    for i in range(columns):
        ins = [f"c{i}", f"y{i}" if i else "x", "far", "there", "holes", "map", "mask", "rows",
               "fitted", "k"]  # fmt: skip
        nodes.append(
            helper.make_node("knn_imputer_column", ins, [f"y{i + 1}"], domain="local_domain")
        )
    counts = {"dict_idx_map": 2, "dist_nan_euclidean": 2, "knn_imputer_column": 10}
    own = [
        helper.make_function(
            "local_domain", name, [f"i{n}" for n in range(count)], ["y"],
            [helper.make_node("Identity", ["i0"], ["y"])], [helper.make_opsetid("", 18)],
        )
        for name, count in counts.items()
    ]  # fmt: skip
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, columns])
        for n in ("x", f"y{columns}")
    ]
    initial = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "imputer", ends[:1], ends[1:], initial)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("local_domain", 1)]
    return helper.make_model(graph, functions=own, opset_imports=sets).SerializeToString()


def _imputed(x, fitted, k):
    """As scikit-learn defines it."""
    y = x.copy()
    for row, column in zip(*np.nonzero(np.isnan(x)), strict=True):
        donors = fitted[~np.isnan(fitted[:, column])]
        both = ~np.isnan(donors) & ~np.isnan(x[row])
        square = np.where(both, donors - x[row], 0) ** 2
        with np.errstate(invalid="ignore"):
            distances = square.sum(1) * x.shape[1] / both.sum(1)
        near = np.argsort(distances, kind="stable")[:k]  # NaN comes last
        near = near[~np.isnan(distances[near])]
        y[row, column] = (donors[near] if len(near) else donors)[:, column].mean()
    return y


@pytest.mark.parametrize("k", [1, 3, 40])
def test_nearest_neighbors_impute_missing_values(k, tmp_path):
    rng = np.random.default_rng(k)
    fitted, x = (rng.normal(size=(n, 4)).astype(np.float32) for n in (20, 9))
    fitted[rng.random(fitted.shape) < 0.2] = x[rng.random(x.shape) < 0.4] = np.nan
    x[0], x[1] = np.nan, 1
    path = tmp_path / "m.onnx"
    path.write_bytes(_imputer(fitted, k, len(x)))
    graph = import_model(path)
    found = evaluate(graph, {"x": x}).outputs["y4"]
    np.testing.assert_allclose(found, _imputed(x, fitted, k), rtol=1e-4, atol=1e-5)
