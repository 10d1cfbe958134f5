"""edgekit lab tune model on a fake clock: results are kept, resumed, used by the next compile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.version import VERSION
from edgekit.host.compiler.driver import prepare, prepare_graph
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.groups import choices_of
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm import user_table
from edgekit.host.compiler.tables.gemm_file import load_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import UnreachableError
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import TuningTask
from edgekit.host.lab.tune.lock import tuning_alone
from edgekit.host.lab.tune.model_session import ModelSearch
from edgekit.host.lab.tune.operators import ModelCosts
from edgekit.kb.targets.board import load_board
from tests.support.lab_app import lab_with
from tests.support.order_clockwork import OrderClockwork

pytestmark = pytest.mark.slow

_BOARD = "rpi3"


class Clockwork:
    """A fake core: every step takes 1000 cycles, adjusted by these attributes. `factor` scales
    tiles of five rows, `beside` all other steps if there is such a tile, `chained` each operator
    of a chain, `channels_first` those on such images. With `crowd`, twelve-row tiles take a
    tenth and, if there are any, all other steps `crowd` times as long. `beyond` cycles are added
    to steps without a matrix product. The board is unreachable after `left` answers."""

    unit, source, per_ms, least, worth = "cycles", "estimate", 1e6, 1.0, 1.4
    left = 1000
    builds = 0
    beside = chained = channels_first = 1.0
    crowd = beyond = 0.0
    factor = 0.5

    def __init__(self, subject: TuningTask, *_: object) -> None:
        self._subject = subject
        self._default: ModelCosts | None = None

    def measure(
        self, table: KnowledgeBase, default: KnowledgeBase
    ) -> tuple[ModelCosts, ModelCosts]:
        if Clockwork.left == 0:
            raise UnreachableError("board 'here': expected an answer, found the link cut")
        Clockwork.left -= 1
        Clockwork.builds += 1
        self._default = self._default or self._times(default)
        return self._times(table), self._default

    def _times(self, table: KnowledgeBase) -> ModelCosts:
        s = self._subject
        made = prepare_graph(s.source, s.board, s.options, table)
        _, plan = plan_of(made.graph, s.board, s.options, table=table)
        steps = plan.lowered.steps
        fast = sum("_5x" in x.kernel for x in steps)
        usual = 1000.0 * (Clockwork.beside if fast else 1.0)
        costs = {x.name: 1e3 * Clockwork.factor if "_5x" in x.kernel else usual for x in steps}
        for step in steps:
            costs[step.name] += Clockwork.beyond if step.compiled is None else 0.0
            if step.compiled is not None and step.compiled.members:
                costs[step.name] = 1000.0 * len(step.compiled.members) * Clockwork.chained
            if step.op.startswith("channels_first"):
                costs[step.name] *= Clockwork.channels_first
        crowded = {
            x.name for x in steps if Clockwork.crowd and x.kernel.startswith("ek_f32_conv_12x")
        }
        for name in costs if crowded else ():
            costs[name] *= 0.1 if name in crowded else Clockwork.crowd
        return ModelCosts(costs, sum(costs.values()))


_METHODS = ModelSearch(Clockwork, orders_wanted=lambda job: False)
_AND_ORDERS = ModelSearch(Clockwork, OrderClockwork)


@pytest.fixture
def clockwork() -> type[Clockwork]:
    Clockwork.left, Clockwork.builds, Clockwork.factor = 1000, 0, 0.5
    Clockwork.beside = Clockwork.chained = Clockwork.channels_first = 1.0
    Clockwork.crowd = Clockwork.beyond = 0.0
    return Clockwork


@pytest.fixture
def tune(clockwork: type[Clockwork], edgekit: Any, face_model: Path) -> Callable[..., Any]:
    command = ("lab", "tune", "model", face_model, "--board", _BOARD, "--json")
    return lambda *more, search=_METHODS: edgekit(*command, *more, app=lab_with(search))


def _explained(model: Path, threads: int | None = None) -> dict[str, Any]:
    """The `compile --explain` entry of each operator with a matrix product, by name."""
    options = replace(DEFAULT_OPTIONS, threads=threads)
    board = load_board(_BOARD)
    made = prepare(model, board, options)
    choices = choices_of(made.groups)
    scheduled, plan = plan_of(made.graph, board, options, choices=choices)
    story = explain(scheduled, plan, board, made.counts, made.origin, made.limit, scheduled.costs)
    return {each["name"]: each for each in story["operators"] if each["method"]}


def test_the_next_compile_does_what_was_found(tune: Any, face_model: Path) -> None:
    before = _explained(face_model)
    done = tune()
    assert done.code == 0, done.err
    found = done.document
    assert found["schema"] == "edgekit.tune.model/1" and found["estimated"]
    assert found["finished"] and found["measured"] > 0 and found["known"] == 0
    assert found["after_ms"] < found["before_ms"] and found["gain"] > 1.1
    won = {each["name"]: each for each in found["operators"]}
    after = _explained(face_model)
    assert any(before[name]["kernel"] != after[name]["kernel"] for name in won)
    for name, each in won.items():
        assert "_5x" in after[name]["kernel"] and after[name]["method"] == each["method"]
        assert after[name]["rule"] == "exact" and after[name]["row"]["source"] == "estimate"
        assert after[name]["row"]["ratio"] == 0.5
    with History() as history:
        rows = history.read_operators().measurements
    assert len(rows) == found["measured"]
    assert {(r.board, r.kit_version, r.source) for r in rows} == {(_BOARD, VERSION, "estimate")}


@pytest.mark.exhaustive
def test_what_lost_in_another_model_is_not_measured_again(
    tune: Any, clockwork: type[Clockwork], edgekit: Any, face_model: Path, tmp_path: Path
) -> None:
    twin = shutil.copy(face_model, tmp_path / "twin.tflite")
    first, builds = tune().document, clockwork.builds
    command = ("lab", "tune", "model", twin, "--board", _BOARD, "--json")
    found = edgekit(*command, app=lab_with(_METHODS)).document
    assert found["known"] > 0 and clockwork.builds - builds < builds / 2
    assert found["operators"] == first["operators"] and found["after_ms"] == first["after_ms"]


@pytest.fixture
def tune_small(clockwork: type[Clockwork], edgekit: Any, face_model: Path) -> Callable[..., Any]:
    """Tunes a model that has many valid orders."""
    small = face_model.with_name("okay_nabu.tflite")
    OrderClockwork.left = 1000
    command = ("lab", "tune", "model", small, "--board", _BOARD, "--json")
    return lambda search=_AND_ORDERS: edgekit(*command, app=lab_with(search))


def test_orders_are_tried_once_as_the_last_step(tune_small: Any) -> None:
    done = tune_small()
    assert done.code == 0, done.err
    found = done.document
    assert found["finished"] and found["orders_tried"] >= 2
    assert found["orders_kept"] and all(each["ratio"] < 0.98 for each in found["orders_kept"])
    with History() as history:
        kept = history.read_orders(load_board(_BOARD).platform).measurements
    assert {(m.board, m.model, m.source) for m in kept} == {(_BOARD, "okay_nabu", "estimate")}
    again = tune_small()
    assert again.document["finished"] and again.document["orders_tried"] == 0


def test_orders_wait_for_a_budget_that_is_long_enough(tune_small: Any) -> None:
    done = tune_small(replace(_AND_ORDERS, order_runs=1 << 30))
    assert done.code == 0 and not done.document["finished"]
    assert done.document["orders_tried"] == 0 and done.document["measured"] > 0


def test_a_board_that_is_lost_while_orders_run_leaves_the_methods(tune_small: Any) -> None:
    OrderClockwork.left = 0
    done = tune_small()
    assert done.code == 3 and "the same command resumes" in done.complaint
    with History() as history:
        assert history.read_operators().measurements


@pytest.mark.exhaustive
def test_methods_of_several_threads_are_those_of_releases_that_run_on_as_many(
    tune: Any, clockwork: type[Clockwork], edgekit: Any, face_model: Path
) -> None:
    done = tune("--threads", "4")
    assert done.code == 0, done.err
    assert done.document["threads"] == 4 and done.document["gain"] > 1.1
    with History() as history:
        assert {r.threads for r in history.read_operators().measurements} == {4}
    together = _explained(face_model, threads=4)
    for each in done.document["operators"]:
        assert together[each["name"]]["rule"] == "exact"
    clockwork.factor = 4.0  # these tiles are slow on one thread
    assert tune("--threads", "1").code == 0
    alone, together = (_explained(face_model, threads=n) for n in (1, 4))
    assert any("_5x" in each["kernel"] for each in together.values())
    single = [e["kernel"] for e in alone.values() if not e["kernel"].startswith("ek_chain")]
    # Chains are excluded: their members are not timed separately.
    assert single and not any("_5x" in kernel for kernel in single)


def test_a_model_with_like_shapes_gains_too(tune: Any, face_model: Path) -> None:
    other = face_model.with_name("face_detection_front.tflite")
    before = _explained(other)
    assert tune().code == 0
    after = _explained(other)
    kernels = [(before[name]["kernel"], after[name]["kernel"]) for name in before.keys() & after]
    assert any("_5x" in new and "_5x" not in old for old, new in kernels)


def test_the_same_command_goes_on(tune: Any, clockwork: type[Clockwork]) -> None:
    assert tune("--budget", "1s").document["measured"] > 0
    again = tune()
    assert again.code == 0 and again.document["finished"]
    assert again.document["known"] > 0
    builds = clockwork.builds
    last = tune().document
    assert last["finished"] and last["known"] >= again.document["known"]
    assert clockwork.builds - builds <= 3  # the current methods, and the best ones combined
    assert last["after_ms"] == again.document["after_ms"]


def test_a_round_is_not_worth_it_for_operators_that_take_nothing(
    tune: Any, clockwork: type[Clockwork]
) -> None:
    clockwork.beyond = 1e7
    found = tune().document
    assert found["finished"] and found["gain"] == pytest.approx(1.0, abs=1e-3)
    assert clockwork.builds <= 2  # the current methods, and the best ones combined


def test_a_board_that_vanishes_loses_nothing(tune: Any, clockwork: type[Clockwork]) -> None:
    clockwork.left = 3
    done = tune()
    assert done.code == 3 and "the same command resumes" in done.complaint
    assert "here" in done.complaint
    with History() as history:
        kept = len(history.read_operators().measurements)
    assert kept > 0
    clockwork.left = 1000
    again = tune()
    assert again.code == 0 and again.document["finished"] and again.document["known"] > 0
    with History() as history:
        assert len(history.read_operators().measurements) == kept + again.document["measured"]


def test_what_costs_its_neighbors_more_than_it_gains_is_dropped(
    tune: Any, clockwork: type[Clockwork]
) -> None:
    clockwork.beside = 3.0
    found = tune().document
    assert found["finished"] and found["operators"] == []
    assert found["after_ms"] == found["default_ms"]


@pytest.mark.exhaustive
def test_methods_that_lose_together_are_given_up_where_none_can_be_blamed(
    tune: Any, clockwork: type[Clockwork], face_model: Path
) -> None:
    clockwork.beside = 3.0
    found = tune(search=replace(_METHODS, most_combinations=0)).document
    assert found["after_ms"] == found["default_ms"] and found["gain"] == 1.0
    assert not any(each["method"]["mr"] == 5 for each in _explained(face_model).values())


@pytest.mark.exhaustive
def test_what_was_compiled_before_stays_where_what_was_found_is_slower_together(
    tune: Any, clockwork: type[Clockwork], face_model: Path
) -> None:
    clockwork.chained = 0.2  # keeps the chains chosen by edgekit's rows
    first = tune("--threads", "1").document
    before = _explained(face_model, threads=2)
    clockwork.crowd = 2.5
    found = tune("--threads", "2", search=replace(_METHODS, most_combinations=0)).document
    assert found["finished"] and found["measured"] > 0
    assert found["after_ms"] == pytest.approx(found["before_ms"])
    assert found["after_ms"] < found["default_ms"]
    after = _explained(face_model, threads=2)
    made = [{n: len(e["members"]) or e["kernel"] for n, e in s.items()} for s in (before, after)]
    assert made[0] == made[1]
    assert first["gain"] > 1.1


def test_the_table_can_be_built_anew_from_the_history(tune: Any, edgekit: Any) -> None:
    assert tune().code == 0
    path = user_table(load_board(_BOARD))
    made = path.read_bytes()
    path.unlink()
    done = edgekit("lab", "kb", "build", "--board", _BOARD, "--json")
    assert done.code == 0 and done.document["operator_measurements"] > 0
    assert path.read_bytes() == made
    table = load_table(path)
    assert any(row.method and row.ratio == 0.5 for row in table.operators)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "0m"), "--budget: expected a time above 0"),
        (("--budget=-5m",), "--budget: expected a time above 0"),
        (("--board", "rpi3", "--threads", "8"), "expected at most 4, the cores of"),
        (("--board", "nosuch"), "nosuch"),
        (("--threads", "0"), "--threads"),
    ],
)
def test_bad_options_are_one_line(
    options: tuple[str, ...], words: str, edgekit: Any, face_model: Path
) -> None:
    done = edgekit("lab", "tune", "model", face_model, "--allow-noise", *options)
    assert done.code == 2 and words in done.err and done.out == ""
    assert "Traceback" not in done.err


def test_an_invalid_model_is_one_line(edgekit: Any, home: Path) -> None:
    (home / "b.ekb").write_bytes(b"PK\x03\x04")
    done = edgekit("lab", "tune", "model", "b.ekb", "--board", _BOARD)
    assert done.code == 2 and "found a bundle" in done.complaint


def test_a_core_without_a_timing_model_is_named(edgekit: Any, face_model: Path) -> None:
    done = edgekit("lab", "tune", "model", face_model, "--board", "rv64gcv-zvl512b")
    assert done.code == 2 and "expected a board whose core has a timing model" in done.complaint


def test_a_second_tuner_learns_who_tunes(tune: Any) -> None:
    with tuning_alone(_BOARD, "ann@desk, process 7"):
        done = tune()
    assert done.code == 6 and "ann@desk, process 7" in done.complaint


@pytest.mark.exhaustive
def test_on_this_machine_it_measures_time(edgekit: Any, face_model: Path) -> None:
    app = lab_with(ModelSearch(least=0.0))  # operators of this model fall below the usual limit
    model = face_model.with_name("okay_nabu.tflite")
    command = ("lab", "tune", "model", model, "--allow-noise", "--budget", "1s", "--json")
    done = edgekit(*command, app=app)
    assert done.code == 0, done.err
    found = done.document
    assert not found["estimated"] and found["measured"] > 0 and found["before_ms"] > 0
    with History() as history:
        rows = history.read_operators().measurements
    assert {(r.source, r.unit) for r in rows} == {("tuner", "seconds")}
    assert load_table(user_table(load_board("local"))).skipped == ()


@pytest.mark.cross
@pytest.mark.exhaustive
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="needs Debian's qemu-user")
def test_tuning_in_the_simulator_is_reproducible(edgekit: Any, face_model: Path) -> None:
    command = ("lab", "tune", "model", face_model.with_name("okay_nabu.tflite"), "--json")
    first, again = (edgekit(*command, "--board", "rpi4").document for _ in range(2))
    assert first["finished"] and first["estimated"] and first["known"] == 0 < again["known"]
    assert again["after_ms"] == first["after_ms"] <= first["default_ms"]
    assert first["operators"] == again["operators"]


def test_operators_become_chains_where_that_was_measured_to_gain(
    tune: Any, clockwork: type[Clockwork], face_model: Path
) -> None:
    clockwork.chained = 0.6

    def chains() -> list[dict[str, Any]]:
        return [o for o in _explained(face_model).values() if o["method"]["family"] == "chain"]

    before = len(chains())
    found = tune().document
    won = [o for o in found["operators"] if o["method"]["family"] == "chain"]
    assert won and found["after_ms"] < found["before_ms"]
    by_row = [o for o in chains() if (row := o["row"]) is not None and row["ratio"] < 1]
    assert by_row and len(chains()) > before
    for chain in by_row:
        assert chain["rule"].split(":")[0] in ("exact", "relaxed") and chain["runner_up"]
        assert chain["method"]["members"] == len(chain["members"]) > 1
    user_table(load_board(_BOARD)).unlink()
    assert len(chains()) == before


@pytest.mark.exhaustive
def test_sparse_operators_that_were_measured_to_be_slower_are_dense(
    edgekit: Any, clockwork: type[Clockwork]
) -> None:
    pruned = Path(__file__).parents[2] / "models" / "face_detection_full_range_sparse.tflite"

    def families() -> set[str]:
        return {o["method"]["family"] for o in _explained(pruned).values()}

    clockwork.channels_first = 3.0
    assert "sparse" in families()
    command = ("lab", "tune", "model", pruned, "--board", _BOARD, "--json", "--budget", "1s")
    done = edgekit(*command, app=lab_with(_METHODS))
    assert done.code == 0, done.err
    (won,) = (o for o in done.document["operators"] if o["name"].endswith(":region"))
    assert won["method"]["family"] == "in_place" and won["ratio"] < 0.6
    assert "sparse" not in families()
    user_table(load_board(_BOARD)).unlink()  # drop the row again
    assert "sparse" in families()
