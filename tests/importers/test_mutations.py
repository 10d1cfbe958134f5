"""Damaged copies of real models: a graph or one line, never another exception.

`tests/long/fuzz_importer.py` does the same ten thousand times.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_ROOT = Path(__file__).parents[2]


def _load_fuzzer():
    path = _ROOT / "tests" / "long" / "fuzz_importer.py"
    spec = importlib.util.spec_from_file_location("fuzz_importer", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzzer = _load_fuzzer()
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
    for sixteenth in range(1, 16):
        cut = content[: len(content) * sixteenth // 16]
        assert fuzzer.outcome(cut) != "graph", f"{sixteenth}/16 of {model.name}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
def test_random_damage_is_survived(smallest, edits):
    assert fuzzer.outcome(fuzzer.apply(smallest, edits))


def test_damage_to_the_structure_is_survived():
    assert fuzzer.run(MODELS, 60, 12345) == []
