"""Methods tuned on a virtual board are shown with their estimated time on a real core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_table import Key, Row
from edgekit.host.deploy import connections
from edgekit.host.deploy.api import Device
from edgekit.host.errors import InputError
from edgekit.host.lab.tune import session, spmv_board
from edgekit.host.lab.tune import spmv as tune_spmv
from edgekit.host.lab.tune.products import Product
from edgekit.host.lab.tune.spmv import TunedMatrix
from edgekit.host.lab.tune.tuner import Best, Outcome
from edgekit.host.simulator import model, products, spmv
from edgekit.host.simulator.run import Cost
from edgekit.kb.features import GemmShape
from edgekit.kb.tables.method import Method

_HOW = Method(48, 64, 32, pack_a=False, pack_b=False, mr=4, nr=8)
_BEST = Best(Product(GemmShape(48, 64, 32)), _HOW, 0.5)


class _Timer:
    """1.8 million cycles for the tuned method, twice as many for the default."""

    def __init__(self, target: object, seconds: float) -> None:
        pass

    def costs(self, product: object, methods: tuple[Method, Method]) -> tuple[Cost, Cost]:
        assert methods[0] == _HOW
        return Cost(1_800_000, 1, {}), Cost(3_600_000, 1, {})


@pytest.fixture(autouse=True)
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual board whose tuning is faked."""
    transport = SimpleNamespace(close=lambda: None)
    board = Device(transport, profile="a72", emulated=True)  # type: ignore[arg-type]
    outcome = Outcome((_BEST,), 1, 0, finished=True, refused=())
    monkeypatch.setattr(connections, "connect_to", lambda *_: board)
    monkeypatch.setattr(session, "tune", lambda *_: outcome)
    monkeypatch.setattr(model, "is_quick", lambda _: True)
    monkeypatch.setattr(products, "ProductTimer", _Timer)


def test_the_best_methods_stand_beside_their_estimates(edgekit: Any) -> None:
    out = edgekit("lab", "tune", "gemm", "--board", "a72").out
    assert "estimated µs on a72" in out
    assert "1000.0" in out and "2000.0" in out and "± " in out
    (found,) = edgekit("lab", "tune", "gemm", "--board", "a72", "--json").document["estimates"]
    assert found["estimated_us"] == 1000.0 and found["default_estimated_us"] == 2000.0
    assert found["validated"] and found["error"]["median_percent"] > 0


def test_an_estimate_that_fails_fails_no_tuning(edgekit: Any, monkeypatch: Any) -> None:
    def fails(*_: object) -> None:
        raise InputError("no")

    monkeypatch.setattr(products, "ProductTimer", fails)
    done = edgekit("lab", "tune", "gemm", "--board", "a72", "--json")
    assert done.code == 0 and done.document["estimates"] == []


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix tuned on a virtual board to settings that take half the cycles of its rule's."""

    def tune(_: object, __: object, name: str, *more: object) -> TunedMatrix:
        rule = BlockSettings(8)
        key = Key("f32", 0, 0, "even", "narrow")
        return TunedMatrix(Row(key, BlockSettings(16), name, 0.5), rule, 12)

    def costs(_: object, matrix: Csr, forms: tuple[BlockSettings, ...], *more: object) -> Any:
        assert matrix.shape == (400, 400) and [how.width for how in forms] == [16, 8]
        return Cost(1_800_000, 1, {}), Cost(3_600_000, 1, {})

    monkeypatch.setattr(spmv_board, "SpmvMeasurer", lambda *_: None)
    monkeypatch.setattr(tune_spmv, "tune_matrix", tune)
    monkeypatch.setattr(spmv, "spmv_costs", costs)


def test_settings_of_sparse_matrices_stand_beside_their_estimates(
    edgekit: Any, sparse: Any
) -> None:
    command = (
        "lab",
        "tune",
        "spmv",
        "--board",
        "a72",
        "--matrix",
        "banded:400:3",
        "--output",
        "t.json",
    )
    out = edgekit(*command).out
    assert "estimated µs on a72" in out and "1000.0" in out and "± " in out
    (found,) = edgekit(*command, "--json").document["estimates"]
    assert found["matrix"] == "banded:400:3"
    assert found["estimated_us"] == 1000.0 and found["default_estimated_us"] == 2000.0
