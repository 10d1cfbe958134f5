"""Signatures of .tflite files: their names, their subgraphs, and what they may share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import check_signatures, import_model, signatures_of
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.signature_models import SIGNATURES, codec, graphs, inputs_of


@pytest.mark.peers
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_what_litert_runs(files: Any, name: str) -> None:
    from ai_edge_litert.interpreter import Interpreter

    content, inputs = codec(files), inputs_of(name)
    wanted = Interpreter(model_content=content).get_signature_runner(name)(**inputs)
    graph = graph_from_tflite(content, "m", signature=name)
    assert graph.inputs == tuple(inputs)
    found = evaluate(graph, inputs).outputs
    shown = {graph.output_names.get(n, n): value for n, value in found.items()}
    assert shown.keys() == wanted.keys()
    for output, value in wanted.items():
        np.testing.assert_allclose(shown[output], value, rtol=1e-5, atol=1e-6)


def test_a_file_with_several_signatures_needs_one(files: Any) -> None:
    with pytest.raises(InputError, match=r"--signature with one of encode, decode, step, found n"):
        graph_from_tflite(codec(files), "m")
    with pytest.raises(InputError, match=r"--signature with one of .*, found train"):
        graph_from_tflite(codec(files), "m", signature="train")


def test_the_only_signature_changes_nothing_unless_it_is_named(files: Any) -> None:
    content, plain = codec(files, ("encode",)), codec(files, ())
    graph = graph_from_tflite(content, "m")
    assert graph.inputs == graph_from_tflite(plain, "m").inputs == ("serving_in:0",)
    named = graph_from_tflite(content, "m", signature="encode")
    assert (named.inputs, named.outputs) == (("x",), ("code",))
    with pytest.raises(InputError, match=r"--signature with one of none, found encode"):
        graph_from_tflite(plain, "m", signature="encode")


def test_a_signature_may_name_any_subgraph(files: Any) -> None:
    """Also one that has the inputs of another in another order, and fewer outputs."""
    made = [files.signature("b", 2, {"q": 1, "p": 0}, {"r": 3}), files.signature("a", 0, {}, {})]
    content = files.model(*graphs(files), signatures=made)
    graph = graph_from_tflite(content, "m", signature="b")
    assert (graph.inputs, graph.outputs) == (("p", "q"), ("r",))
    assert graph_from_tflite(content, "m", signature="a").inputs == ("serving_in:0",)


@pytest.mark.peers
def test_a_tensor_may_have_several_names(files: Any) -> None:
    """As converters write what a function returns twice, and an input that it passes through."""
    from ai_edge_litert.interpreter import Interpreter

    ends = {"code": 3, "again": 3, "same": 0, "h": 4}
    made = [files.signature("step", 2, {"h": 0, "x": 1}, ends)]
    encode, decode, step = graphs(files)
    content = files.model(encode, decode, replace(step, outputs=[*ends.values()]), signatures=made)
    wanted = Interpreter(model_content=content).get_signature_runner("step")(**inputs_of("step"))
    graph = graph_from_tflite(content, "m", signature="step")
    found = evaluate(graph, inputs_of("step")).outputs
    shown = {graph.output_names.get(n, n): value for n, value in found.items()}
    assert list(shown) == list(ends)
    for output, value in wanted.items():
        np.testing.assert_allclose(shown[output], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (("a", 3, {}, {}), "signature a: expected a subgraph below 3, found 3"),
        (("a", 0, {"x": 1}, {}), "a name for each of the inputs of subgraph 0, found x"),
        (("a", 0, {"x": 0, "y": 0}, {}), "of the inputs of subgraph 0, found x, y"),
        (("a", 0, {"x": 0}, {"": 2}), "of the outputs of subgraph 0"),
        (("b", 0, {}, {}), "signatures with distinct names, found b, b"),
        (("", 0, {}, {}), "signatures with distinct names"),
    ],
)
def test_odd_signatures_are_refused(files: Any, wrong: Any, complaint: str) -> None:
    made = [files.signature("b", 1, {}, {}), files.signature(*wrong)]
    with pytest.raises(InputError, match=complaint) as error:
        graph_from_tflite(files.model(*graphs(files), signatures=made), "m", signature="b")
    assert "\n" not in str(error.value)


def test_an_only_signature_that_is_odd_is_left_out(files: Any) -> None:
    content = files.model(*graphs(files), signatures=[files.signature("a", 9, {"": 7}, {})])
    assert graph_from_tflite(content, "m").inputs == ("serving_in:0",)


def _reads_and_writes(files: Any, writes: bool) -> Any:
    tensors = [files.tensor("x", [3]), files.tensor("v", [], "RESOURCE"),
               files.tensor("old", [3]), files.tensor("y", [3])]  # fmt: skip
    handle = files.op("VAR_HANDLE", [], ["v"], "VarHandleOptions", {"SharedName": "count"})
    add = files.op("ADD", ["x", "old"], ["y"], "AddOptions")
    chain = [handle, files.op("READ_VARIABLE", ["v"], ["old"], "ReadVariableOptions"), add]
    if writes:
        chain.append(files.op("ASSIGN_VARIABLE", ["v", "y"], [], "AssignVariableOptions"))
    return files.graph(tensors, chain, ["x"], ["y"])


def test_a_state_of_two_signatures_is_refused(files: Any, tmp_path: Path) -> None:
    graphs = [_reads_and_writes(files, True), _reads_and_writes(files, False)]
    made = [files.signature(name, i, {"x": 0}, {"y": 3}) for i, name in enumerate(("add", "get"))]
    path = tmp_path / "m.tflite"
    path.write_bytes(files.model(*graphs, signatures=made))
    assert signatures_of(path) == {"add": ("x",), "get": ("x",)}
    with pytest.raises(InputError, match=r"add changes variable count of get; .*--signature get"):
        check_signatures(path, ["add", "get"])
    check_signatures(path, ["get"])


def test_other_formats_have_no_signatures(tmp_path: Path) -> None:
    from tests.support.onnx_models import model, node, save, value

    path = save(model([node("Relu", ["x"], ["y"])], [value("x", [3])], ["y"]), tmp_path)
    assert signatures_of(path) == {}
    with pytest.raises(InputError, match=r"expected a \.tflite model with --signature, found an O"):
        import_model(path, signature="encode")
