"""A node test of the onnx package per operator and set of attributes; tests/long runs all."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.long import onnx_nodes
from tests.long.result import result_line
from tests.support.onnx_nodes import all_cases, disagreement, graph_of, is_claimed, operators_of

# Operators whose node tests use only element types that edgekit lacks: see test_onnx.py.
_WITHOUT_A_TEST = {"GlobalLpPool"}
# ONNX has none: see test_onnx_regions.py.
_WITHOUT_A_TEST |= {"MaxRoiPool"}
# No longer in ONNX: see test_onnx_old.py.
_WITHOUT_A_TEST |= {
    "Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh",
}  # fmt: skip
# ONNX Runtime's own: see test_onnx_microsoft.py.
_WITHOUT_A_TEST |= {"SimplifiedLayerNormalization"}
# TensorRT's plugin: see tests/compiler/tasks/test_selected.py.
_WITHOUT_A_TEST |= {"EfficientNMS_TRT"}
# Random numbers: see test_random.py.
_WITHOUT_A_TEST |= {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
# Sequences, whose tests have values that are not tensors: see test_onnx_control.py.
_WITHOUT_A_TEST |= {
    "ConcatFromSequence", "Optional", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
    "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence",
}  # fmt: skip


def _cases_of_each():
    """For each operator, one test per set of attributes that it states: defaults matter, too.
    Building all of them takes seconds."""
    found = {}
    for case in filter(is_claimed, all_cases()):
        kinds = operators_of(case)
        if len(kinds) == 1 and "training" not in case.name and "empty_set" not in case.name:
            stated = frozenset(a.name for node in case.model.graph.node for a in node.attribute)
            found.setdefault(kinds.pop(), {}).setdefault(stated, case)
    return {kind: [*cases.values()] for kind, cases in found.items()}


_OWN = {kind for kind in onnx_operators() if ":" not in kind and kind not in _WITHOUT_A_TEST}
_OWN |= {f"ai.onnx.ml:{kind}" for kind in ("ArrayFeatureExtractor", "Binarizer", "TreeEnsemble")}


@pytest.mark.slow
def test_operators_are_what_onnx_says(tmp_path):
    """One test, so that one process builds the cases."""
    cases = _cases_of_each()
    assert cases.keys() == _OWN
    for case in (case for kind in sorted(cases) for case in cases[kind]):
        try:
            graph, inputs = graph_of(case, tmp_path)
            for each in (graph, run_passes(graph)[0]):
                assert disagreement(case, evaluate(each, inputs).outputs) is None
        except Exception as error:
            error.add_note(case.name)
            raise


@pytest.mark.slow
def test_the_long_suite_judges_tests_whose_results_are_not_random(capsys):
    assert onnx_nodes.main(["--references", "--only", "test_training_dropout"]) == 0
    assert (result_line(capsys.readouterr().out) or "").startswith("2 tests of all operators: 2 ")
