"""Every model's arena is near what is alive at once, in the order it really runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import load_board
from tests.support.places import few_or_all

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_FOLDERS = [Path(__file__).parents[2] / "models", *([Path(_EXTRA) / "models"] if _EXTRA else [])]
_MODELS = {
    p.stem: p for f in _FOLDERS for p in sorted(f.rglob("*")) if p.suffix in (".tflite", ".onnx")
}
_OPEN_SHAPES = {"ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)}}
_ABOVE = 1.05


_SMALL = [name for name, path in _MODELS.items() if path.stat().st_size < 2_500_000]


@pytest.mark.slow
@pytest.mark.parametrize("name", few_or_all(sorted(_MODELS), _SMALL[::2]))
def test_the_arena_is_within_a_twentieth_of_its_lower_bound(name):
    options = CompileOptions(_OPEN_SHAPES.get(name, {}))
    board = load_board("local")
    made = prepare(_MODELS[name], board, options)
    memory = plan_of(made.graph, board, options)[1].memory
    assert memory.lower_bound <= memory.arena_bytes <= _ABOVE * memory.lower_bound
    again = plan_of(made.graph, board, options)[1].memory
    assert again.offsets == memory.offsets
