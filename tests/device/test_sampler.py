"""The sampler: low overhead per inference, and only allowlisted fields leave the board."""

from __future__ import annotations

import json
import threading

import pytest

from edgekit.device.runtime.agent.batch import Batch, MeasuredRelease, batch_bytes, bodies
from edgekit.device.runtime.agent.call_sampler import ProductSampler
from edgekit.device.runtime.agent.model import RunTimes
from edgekit.device.runtime.agent.sampler import MOST_SAMPLES, Sampler, SamplingPace
from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.device.runtime.arrays.calls import Call
from edgekit.device.runtime.arrays.sampling import TimedCall

SUBJECT = MeasuredRelease("0" * 16, "tiny", "1" * 64, "a57", "1.0", 0, 1)
OPERATORS = (OperatorSpec("twice", "Mul", "mul"), OperatorSpec("plus", "Add", "add"))


class Clocks:
    """A clock on which each reading of the cost timer takes `cost_ns`."""

    def __init__(self, cost_ns: int = 0) -> None:
        self.now = 0
        self.cost_ns = cost_ns

    def cost(self) -> int:
        self.now += self.cost_ns
        return self.now

    def boot(self) -> int:
        return self.now


def run(sampler: Sampler, clocks: Clocks, count: int, step_ns: int = 1_000_000) -> int:
    """Simulates `count` inferences of `step_ns`; returns the number sampled."""
    sampled = 0
    for i in range(count):
        clocks.now += step_ns
        if sampler.due():
            sampler.record(RunTimes(step_ns, (step_ns // 4 + i, step_ns // 2)))
            sampled += 1
    return sampled


def test_a_batch_holds_count_median_90th_percentile_and_maximum() -> None:
    batches: list[Batch] = []
    clocks = Clocks()
    sampler = Sampler(SUBJECT, OPERATORS, batches.append, SamplingPace(every=1), clocks)
    assert run(sampler, clocks, 12) == 11  # the first is skipped: cold caches
    sampler.close()
    (batch,) = batches
    first = 250_001
    assert batch.operators[0][3:] == (11, first + 5, first + 9, first + 10)
    assert batch.operators[1] == ("plus", "Add", "add", 11, 500_000, 500_000, 500_000)
    assert (batch.inferences, batch.whole.samples, batch.whole.max_ns) == (12, 11, 1_000_000)
    assert batch.environment.available_bytes


def test_every_tenth_is_sampled_and_a_batch_closes_after_its_period() -> None:
    batches: list[Batch] = []
    clocks = Clocks()
    sampler = Sampler(SUBJECT, OPERATORS, batches.append, SamplingPace(period_seconds=1), clocks)
    run(sampler, clocks, 2)
    assert run(sampler, clocks, 200) == 20
    run(sampler, clocks, 1000)
    sampler._join_writer()
    assert len(batches) == 1
    sampler.close()
    assert sum(batch.inferences for batch in batches) == 1202


@pytest.mark.parametrize("cost_ns", [1_000, 50_000, 5_000_000])
def test_what_sampling_costs_stays_in_its_budget(cost_ns: int) -> None:
    clocks = Clocks(cost_ns)
    sampler = Sampler(SUBJECT, OPERATORS, lambda batch: None, SamplingPace(every=1), clocks)
    run(sampler, clocks, 20_000, step_ns=100_000)
    spent = sampler.cost
    assert 0 < spent <= 0.011 + cost_ns / (20_000 * 100_000)


def test_a_batch_has_samples_of_its_whole_period_and_not_too_many() -> None:
    batches: list[Batch] = []
    clocks = Clocks()
    sampler = Sampler(SUBJECT, OPERATORS, batches.append, None, clocks)
    sampled = run(sampler, clocks, 590_000)
    sampler.close()
    assert MOST_SAMPLES // 2 < sampled <= MOST_SAMPLES + 40
    assert batches[0].whole.samples <= MOST_SAMPLES


def test_a_full_disk_is_no_matter_for_the_model_and_is_counted() -> None:
    batches: list[Batch] = []
    fails = [OSError(28, "No space left on device")] * 2

    def write(batch: Batch) -> None:
        if fails:
            raise fails.pop()
        batches.append(batch)

    clocks = Clocks()
    sampler = Sampler(SUBJECT, OPERATORS, write, SamplingPace(1, 1e9, 1), clocks)
    for _ in range(3):
        run(sampler, clocks, 5)
        sampler.close()
    assert [batch.lost for batch in batches] == [2]


class WaitingClocks(Clocks):
    """Reading the cost timer waits for the writer, as a busy core may make it."""

    def cost(self) -> int:
        for thread in threading.enumerate():
            if thread.name == "edgekit-profile":
                thread.join()
        return super().cost()


def test_what_the_writer_spends_meanwhile_is_counted() -> None:
    clocks = WaitingClocks()
    sampler = Sampler(SUBJECT, OPERATORS, lambda batch: None, SamplingPace(1, 1e9, 0.001), clocks)
    run(sampler, clocks, 3)
    assert sampler.cost > 0


def test_nothing_leaves_but_what_is_on_the_list() -> None:
    batches: list[Batch] = []
    clocks = Clocks()
    sampler = Sampler(SUBJECT, OPERATORS, batches.append, None, clocks)
    run(sampler, clocks, 2)
    sampler.close()
    (body,) = bodies(batch_bytes(batches[0], "f" * 32, 1, 0, 0))
    document = json.loads(body)
    assert set(document) == {
        *("schema", "spool", "sequence", "dropped", "quarantined", "uuid", "boot", "began_ns"),
        *("ended_ns", "clock", "lost", "subject", "inferences", "every", "whole", "operators"),
        "environment",
    }
    assert set(document["subject"]) == {
        *("release", "model", "model_sha256", "profile", "kit", "variant", "threads")
    }
    assert set(document["environment"]) == {
        *("cluster", "governor", "frequency_mhz", "temperature_c", "throttled", "others"),
        *("load", "available_bytes", "resident_bytes"),
    }
    assert document["environment"]["resident_bytes"] % 1024 == 0  # Linux counts KiB


def test_trials_of_other_methods_stay_in_the_budget() -> None:
    """Each adds as much as ten products, and is made when the calls so far have earned that."""
    batches: list[Batch] = []
    clocks = Clocks()
    sampler = ProductSampler(SUBJECT, batches.append, True, SamplingPace(every=1), clocks)
    call, tried, most = Call("gemm", "f32 8x8x8", "8x8"), 0, 0.0
    usual = TimedCall(call, 1_000_000)
    trial = TimedCall(call, 1_000_000, 0, (("8x8", 9), ("4x4", 7)), 10_000_000)
    for _ in range(50_000):
        clocks.now += 1_000_000
        if sampler.due():
            again = sampler.tries(call)
            clocks.now += trial.added if again else 0
            sampler.record(trial if again else usual)
            tried += again
            most = max(most, sampler.cost if tried > 1 else 0.0)
    assert tried > 25 and most < 0.0101
    sampler.close()
    assert 0.005 < sampler.cost < 0.0101
    rows = {(row.op, row.kernel): row.median_ns for row in batches[0].operators}
    assert rows == {
        ("gemm", "8x8"): 1_000_000,
        ("gemm-trial", "8x8"): 9,
        ("gemm-trial", "4x4"): 7,
    }


def test_a_product_with_nothing_to_try_does_not_hold_up_others() -> None:
    clocks = Clocks()
    sampler = ProductSampler(SUBJECT, lambda batch: None, True, SamplingPace(every=1), clocks)
    calls = [Call("gemm", name, "8x8") for name in ("f32 1x8x8", "f32 8x8x8")]
    tried = dict.fromkeys(calls, 0)
    for i in range(200_000):
        clocks.now += 1_000_000
        if sampler.due():
            call, trials = calls[i % 2], ()
            if sampler.tries(call):
                tried[call] += 1
                trials = (("8x8", 9), ("4x4", 7)) if call is calls[1] else ()
            sampler.record(TimedCall(call, 1_000_000, 0, trials, 1_000_000 * bool(trials)))
    assert tried[calls[1]] > 25


def test_trials_are_made_though_samples_cost_more_than_they_do() -> None:
    clocks, tried = Clocks(10_000_000), 0
    sampler = ProductSampler(SUBJECT, lambda batch: None, True, SamplingPace(every=1), clocks)
    call = Call("gemm", "f32 8x8x8", "8x8")
    for _ in range(100_000):
        clocks.now += 1_000_000
        if sampler.due():
            again = sampler.tries(call)
            sampler.record(TimedCall(call, 1_000_000, 0, (), 1_000_000 * again))
            tried += again
    assert tried > 25 and sampler.cost < 0.0111
