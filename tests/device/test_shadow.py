"""The shadow check: which inferences are repeated, at what cost, and what is sent home."""

from __future__ import annotations

import json
import mmap
import threading
from collections.abc import Callable, Sequence

import pytest

from edgekit.device.runtime.agent.batch import (
    Batch,
    MeasuredRelease,
    RangeSketch,
    batch_bytes,
    bodies,
)
from edgekit.device.runtime.agent.float_model import Comparison
from edgekit.device.runtime.agent.sampler import SamplingPace
from edgekit.device.runtime.agent.shadow import Shadow
from edgekit.device.runtime.agent.shadow_spec import ShadowSpec
from edgekit.device.runtime.agent.specs import BoardMemory
from edgekit.device.runtime.errors import IncompatibleError
from tests.device.test_sampler import Clocks

SUBJECT = MeasuredRelease("0" * 16, "tiny", "1" * 64, "a57", "1.0", 0, 1)
FREE = 1e9  # a budget


class Model:
    """A float model whose inferences take `ns` of the idle class."""

    def __init__(self, ns: int = 0, noises: Sequence[float] = (0.0,), same: bool = True) -> None:
        self.ns, self.noises, self.same, self.calls = ns, noises, same, 0
        self.states: list[bytes] = []

    def compare(
        self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes
    ) -> Comparison:
        assert (inputs, outputs) == ([b"in"], [b"out"])
        self.states.append(state)
        self.calls += 1
        return Comparison(self.noises[(self.calls - 1) % len(self.noises)], self.same, self.ns)

    def take_ranges(self) -> tuple[RangeSketch, ...]:
        return (RangeSketch("t", -1.0, 1.0, 0, None, None, "A" * 48),)

    def close(self) -> None:
        self.calls = -1


def shadow_of(
    model: Callable[[], Model],
    batches: list[Batch],
    every: int = 1,
    budget: float = FREE,
    measure: str = "difference",
    state_bytes: int = 0,
) -> Shadow:
    memory = BoardMemory(0, state_bytes, 0)
    spec = ShadowSpec("float/model.so", memory, every, measure, "2" * 64, ())
    pace = SamplingPace(every, budget, 3600)
    return Shadow(spec, SUBJECT, model, batches.append, pace, Clocks())


def run(shadow: Shadow, count: int, ns: int = 1_000_000) -> int:
    """Simulates inferences; returns how many were repeated, each before the next inference."""
    repeated = 0
    for _ in range(count):
        if shadow.due(ns):
            shadow.repeat([b"in"], [b"out"], b"")
            shadow.write_results()
            repeated += 1
    return repeated


def test_one_in_n_is_repeated_at_irregular_distances() -> None:
    model, batches = Model(), list[Batch]()
    repeated = run(shadow_of(lambda: model, batches, every=10), 10_000)
    assert repeated == model.calls
    assert 800 < repeated < 1200
    assert 9_900 < sum(batch.inferences for batch in batches) <= 10_000


@pytest.mark.parametrize("ns", [2_000_000, 50_000_000])
def test_what_repeating_costs_stays_in_its_budget(ns: int) -> None:
    model = Model(ns)
    repeated = run(shadow_of(lambda: model, [], budget=0.005), 20_000)
    most = 0.005 * 20_000 * 1_000_000 / ns
    assert most / 2 <= repeated <= most + 1


def test_results_are_counted_by_class_of_difference() -> None:
    model, batches = Model(7, [0.0, 0.02, 0.09, 0.11, float("inf")]), list[Batch]()
    shadow = shadow_of(lambda: model, batches)
    for _ in range(6):
        if shadow.due(1):
            shadow.repeat([b"in"], [b"out"], b"")
            assert shadow._thread is not None
            shadow._thread.join()
    shadow.close()
    (batch,) = batches
    assert batch.field is not None
    assert (batch.field.agreed, batch.field.noises) == (3, (1, 1, 1, 1, 1))
    assert (batch.whole.samples, batch.whole.median_ns, batch.inferences) == (5, 7, 6)
    assert model.calls == -1
    assert not shadow.due(1)


def test_of_classifiers_the_largest_value_counts() -> None:
    for same in (True, False):
        batches: list[Batch] = []
        run(shadow_of(lambda: Model(0, [5.0], same), batches, measure="class"), 2)  # noqa: B023
        assert batches[0].field is not None
        assert batches[0].field.agreed == same


def test_a_board_that_cannot_load_the_float_model_goes_on_without() -> None:
    tried = []

    def fail() -> Model:
        tried.append(1)
        raise IncompatibleError("expected more memory")

    batches: list[Batch] = []
    assert run(shadow_of(fail, batches), 100) == 1
    assert (len(tried), batches) == (1, [])


def test_nothing_leaves_but_what_is_on_the_list() -> None:
    batches: list[Batch] = []
    run(shadow_of(Model, batches), 2)
    (body,) = bodies(batch_bytes(batches[0], "f" * 32, 1, 0, 0))
    document = json.loads(body)
    assert document["schema"] == "edgekit.profile.batch/2"
    assert set(document["field"]) == {"float_sha256", "measure", "agreed", "noises", "ranges"}
    assert document["field"]["ranges"] == [["t", -1.0, 1.0, 0, None, None, "A" * 48]]
    assert document["operators"] == []


def test_states_are_copied_before_inferences_that_may_be_repeated() -> None:
    model, copied = Model(), 0
    shadow, block = shadow_of(lambda: model, [], every=10, state_bytes=3), mmap.mmap(-1, 4096)
    for number in range(1000):
        block[:3] = b"%03d" % number
        state = shadow.state_before(block)
        copied += state is not None
        block[:3] = b"new"
        if shadow.due(1_000_000, state is not None):
            shadow.repeat([b"in"], [b"out"], state)
            shadow.write_results()
            assert model.states[-1] == b"%03d" % number
    assert 50 < model.calls == copied < 200
    shadow.close()
    assert shadow.state_before(block) is None


class Interrupted(Model):
    """Another thread infers while results are written."""

    shadow: Shadow
    overlaps = False

    def __init__(self) -> None:
        super().__init__()
        self.compared = threading.Event()

    def compare(
        self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes
    ) -> Comparison:
        self.compared.set()
        return super().compare(inputs, outputs, state)

    def take_ranges(self) -> tuple[RangeSketch, ...]:
        self.compared.clear()
        if self.shadow.due(1):
            self.shadow.repeat([b"in"], [b"out"], b"")
        self.overlaps |= self.compared.wait(0.1)
        return super().take_ranges()


def test_no_inference_is_repeated_while_results_are_written() -> None:
    model, batches = Interrupted(), list[Batch]()
    model.shadow = shadow_of(lambda: model, batches)
    assert run(model.shadow, 2) == 1
    assert not model.overlaps
    model.shadow.close()
    assert sum(batch.whole.samples for batch in batches) == 2
