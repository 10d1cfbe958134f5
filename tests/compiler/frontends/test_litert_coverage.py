"""Every TensorFlow Lite operator has a test against LiteRT for each type it claims to support.

docs/operators.md lists the claims; the tables of the neighboring tests must match them exactly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.compiler.frontends.tflite.importer import supported_operators
from tests.support.litert_pairs import TABLES, contents, pairs

# Tested by their effect on entire graphs, or (MediaPipe's, SEGMENT_SUM) against plain definitions:
# see test_random.py, test_tflite.py, test_tflite_flow.py, test_mediapipe_customs.py,
# test_litert_index.py, test_poses.py.
_ELSEWHERE = {
    "ASSIGN_VARIABLE", "CALL", "CALL_ONCE", "DENSIFY", "IF", "MULTINOMIAL",
    "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "READ_VARIABLE", "SEGMENT_SUM", "VAR_HANDLE",
    "WHILE",
    "CUSTOM:Convolution2DTransposeBias", "CUSTOM:Landmarks2TransformMatrix",
    "CUSTOM:MaxPoolingWithArgmax2D", "CUSTOM:MaxUnpooling2D", "CUSTOM:PosenetDecoderOp",
    "CUSTOM:TransformLandmarks", "CUSTOM:TransformTensorBilinear",
}  # fmt: skip
_PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def _claimed() -> dict[str, set[str]]:
    """The rows `| OPERATOR | type, type |` of the page's part on TensorFlow Lite."""
    rows = {}
    part = _PAGE.read_text().partition("\n## TensorFlow Lite\n")[2].partition("\n## ")[0]
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if (len(cells) == 2 and cells[0].isupper()) or cells[0].startswith("CUSTOM:"):
            rows[cells[0]] = set(cells[1].split(", "))
    return rows


def test_each_claimed_type_has_a_test(files):
    tested: dict[str, set[str]] = {}
    for table in TABLES:
        for name, kind in pairs(contents(table, files)):
            tested.setdefault(name, set()).add(kind)
    claimed = _claimed()
    assert {name: claimed.get(name, set()) ^ kinds for name, kinds in tested.items()} == {
        name: set() for name in tested
    }
    assert claimed.keys() == tested.keys()


def test_each_operator_of_the_list_is_claimed():
    assert _claimed().keys() | _ELSEWHERE == set(supported_operators())
    assert sum(not name.startswith("CUSTOM:") for name in supported_operators()) >= 120


@pytest.mark.parametrize("name", sorted(_ELSEWHERE))
def test_what_is_tested_elsewhere_is_there(name):
    tests = Path(__file__).parent.glob("test_*.py")
    assert any(name.removeprefix("CUSTOM:") in path.read_text() for path in tests
               if path.name != Path(__file__).name)  # fmt: skip
