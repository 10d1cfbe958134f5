"""Estimated cycles of one inference on one thread match cycles.json.

A change of more than 2% fails and names the model and the core. Possible causes are our code,
its compiler, the plugin, or a core's figures. If intended, record it in the same commit with
EDGEKIT_RECORD=1 (and -n 0). By default, a small model runs on every kind of core and a float
model on one; --all runs the rest.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.deploy.bundle.build import build_bundle
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.homes import home_over_the_cache

pytestmark = [
    pytest.mark.cross,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-aarch64", "qemu-arm", "qemu-riscv64"))),
        reason="QEMU's user emulators are not installed: apt-get install qemu-user",
    ),
]

_RECORD = Path(__file__).with_name("cycles.json")
_RECORDING = os.environ.get("EDGEKIT_RECORD") == "1"
_ALLOWED = 0.02
_ZOO = extended_zoo(Path(__file__).parents[2] / "models")
_MODELS = {path.stem: path for path in (*_ZOO.models, *_ZOO.onnx)}
# Profile of each core: a virtual board that represents it, or a board with its vector length.
_BOARDS = {
    **{core: core for core in ("a53", "a55", "a57", "a7", "a72", "a76")},
    "u74": "rv64gc",
    "x60": "bpi-f3",
}
_SMALL = (  # 8-bit, float
    *((core, "okay_nabu") for core in _BOARDS),
    *((core, "vww_96_float") for core in ("a53", "a7", "a72", "x60")),
)
_FEW_BITS = tuple(
    (core, f"ad01_fp32 {bits}")  # rows by matrices
    for core in _BOARDS
    for bits in ("int4", "int2")
)


@pytest.fixture(scope="module", autouse=True)
def _no_tables_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with home_over_the_cache(tmp_path_factory.mktemp("home")):
        yield


def _others() -> list[tuple[str, str]]:
    """All other recorded pairs; when recording, all possible pairs."""
    known = json.loads(_RECORD.read_text())
    return [
        (core, model)
        for core in _BOARDS
        for model in sorted(_MODELS)
        if (core, model) not in (*_SMALL, *_FEW_BITS) and (_RECORDING or model in known[core])
    ]


def _small() -> Iterator[Any]:
    """The 8-bit model on a core of each kind (in order, with the dot product, of 32 bits, with
    vectors of any length), the float model on one; the other cores are exhaustive."""
    for core, model in _SMALL:
        by_default = core in (("a53", "a76", "a7", "x60") if model == "okay_nabu" else ("a72",))
        yield pytest.param(core, model, marks=() if by_default else pytest.mark.exhaustive)


@pytest.mark.parametrize(("core", "model"), list(_small()))
def test_cycles_of_a_small_model_are_as_recorded(core, model):
    if model not in _MODELS:
        pytest.skip(f"{model} is in EDGEKIT_EXTRA_DATA")
    _check(core, model)


@pytest.mark.parametrize(
    ("core", "model"),
    [
        pytest.param(core, model, marks=() if core in ("a72", "x60") else pytest.mark.exhaustive)
        for core, model in _FEW_BITS
    ],
)
def test_cycles_of_weights_of_few_bits_are_as_recorded(core, model):
    if "ad01_fp32" not in _MODELS:
        pytest.skip("ad01_fp32 is in EDGEKIT_EXTRA_DATA")
    _check(core, model)


@pytest.mark.long
@pytest.mark.parametrize(("core", "model"), _others())
def test_cycles_of_other_models_are_as_recorded(core, model):
    _check(core, model)


def _check(core: str, model: str) -> None:
    name, _, bits = model.partition(" ")
    board, path = load_board(_BOARDS[core]), _MODELS[name]
    options = dataclasses.replace(zoo_options(path), threads=1, weights=bits or None)
    made = build_bundle(compile_artifact(path, board, options=options), board)
    found = estimate_model(made.manifest, made.files, target_of(board))
    assert found.core == core
    if _RECORDING:
        _record(core, model, found.cost.cycles)
    recorded = json.loads(_RECORD.read_text())[core][model]
    change = found.cost.cycles / recorded - 1
    assert abs(found.cost.cycles - recorded) <= _ALLOWED * recorded, (
        f"{model} on {core}: {found.cost.cycles:,} cycles, recorded {recorded:,} ({change:+.1%}); "
        "if it is meant, EDGEKIT_RECORD=1 records it"
    )


def _record(core: str, model: str, cycles: int) -> None:
    record = json.loads(_RECORD.read_text())
    record[core][model] = cycles
    _RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
