"""An error message lists any number of operators in one short line."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.common.refusal import advice, refuse, unsupported
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value


def _line(kinds):
    with pytest.raises(InputError) as error:
        refuse(unsupported(((str(i), kind) for i, kind in enumerate(kinds)), {"ADD"}))
    return str(error.value)


def test_operators_are_grouped_by_kind():
    kinds = ["ADD", "PRELU", "ADD", "COS", "PRELU", "PRELU", "SIN", "PRELU", "SIN"]
    assert _line(kinds).startswith(
        "operators PRELU × 4 (first: 1, 4, 5), COS (3), SIN × 2 (6, 8) are not supported; "
    )


def test_a_single_operator_is_named_with_its_number():
    assert _line(["ADD", "COS"]).startswith("operator 1 (COS) is not supported; ")


def test_nothing_is_refused_where_all_is_known():
    refuse(unsupported([("0", "ADD")], {"ADD"}))


@pytest.mark.parametrize("format_", ["onnx", "tflite"])
def test_strings_are_refused_in_words(format_, files, tmp_path):
    path = tmp_path / f"m.{format_}"
    if format_ == "tflite":
        tensors = [files.tensor("s", [2], "STRING"), files.tensor("y", [2], "STRING")]
        moved = files.op("RESHAPE", ["s"], ["y"])
        path.write_bytes(files.model(files.graph(tensors, [moved], ["s"], ["y"])))
    else:
        texts = helper.make_tensor_value_info("s", TensorProto.STRING, [2])
        path = save(model([node("Identity", ["s"], ["y"])], [texts], ["y"]), tmp_path)
    with pytest.raises(InputError, match=r"expected numbers, found strings; give the model num"):
        import_model(path)


def test_the_line_stays_short_and_printable():
    line = _line([f"CUSTOM:\x1b[31m{i}{'x' * 10_000}" for i in range(5_000)])
    assert line.isprintable() and len(line) < 5_000
    assert "and 4960 more kinds" in line


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("HASHTABLE_FIND", "numbers"),
        ("StringNormalizer", "numbers"),
        ("CUSTOM:FlexErf", "TFLITE_BUILTINS"),
        ("CUSTOM:Mine", "one program"),
        ("ai.onnx.ml:DictVectorizer", "numbers"),
        ("Never heard of", "application"),
    ],
)
def test_the_nearest_operator_is_suggested(kind, shown):
    assert shown in advice(kind)


def test_onnx_models_are_refused_so(tmp_path):
    names = [f"t{i}" for i in range(30)]
    nodes = [node("Fancy", [a], [b]) for a, b in zip(["x", *names], names, strict=False)]
    path = save(model(nodes, [value("x", [2])], ["t29"]), tmp_path)
    with pytest.raises(InputError, match=r"operators Fancy × 30 \(first: 0, 1, 2\) are not supp"):
        import_model(path)
