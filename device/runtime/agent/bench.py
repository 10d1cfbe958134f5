"""Times a model: warms up, then runs repeatedly; reports median and spread, not the mean."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.golden import golden_inputs
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.model import LoadedModel, RunTimes, open_model
from edgekit.device.runtime.agent.noise import NoiseMonitor
from edgekit.device.runtime.agent.placement import Placement
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.device.runtime.agent.variants import numbered, variant_for
from edgekit.device.runtime.record import Record, asdict

_MIN_COUNT = 10
_MAX_COUNT = 1000


class BenchPlan(Record):
    """`count` runs after `warmup`; 0 means as many as fit in `seconds`."""

    count: int = 0
    warmup: int = 3
    seconds: float = 2.0


def bench_release(
    current: Tuple[Manifest, ReleaseFiles],
    placement: Placement,
    plan: BenchPlan,
    given: Optional[Mapping[str, Any]],
    number: int,
) -> Dict[str, Any]:
    """Builds the document edgekit.runtime.bench/1 from a release and the inputs `given`; without
    them, uses the golden inputs of variant `number`."""
    manifest, files = current
    variants = manifest.every_variant()
    variant = numbered(variants, number) if given is None else variant_for(variants, given)
    inputs = golden_inputs(files, variant) if given is None else given
    watch = NoiseMonitor()
    start = time.perf_counter_ns()
    model = open_model(files, manifest, placement, variant)
    model.set_inputs(inputs)
    model.bench(1)
    load_ms = (time.perf_counter_ns() - start) / 1e6
    return {
        "schema": "edgekit.runtime.bench/1",
        "release": manifest.id,
        "model": manifest.model.name,
        "load_ms": load_ms,
        **bench(model, inputs, plan),
        "shapes": variant.shapes,
        "signature": variant.signature,
        "arena_bytes": variant.memory.arena_bytes,
        "weights_bytes": variant.memory.weights_bytes,
        "placement": asdict(placement),
        **watch.seen(),
    }


def bench(model: LoadedModel, inputs: Mapping[str, Any], plan: BenchPlan) -> Dict[str, Any]:
    """Returns `latency_ms` and `operators` of the document edgekit.runtime.bench/1."""
    model.set_inputs(inputs)
    each = min(model.bench(plan.warmup).totals) / 1e9
    # The first runs are cold; a tenth of the time also lets the core's clock ramp up.
    model.bench(_fit_run_count(plan.seconds / 10, each, low=1))
    times = model.bench(plan.count or _fit_run_count(plan.seconds, each, low=_MIN_COUNT))
    return {
        "threads": model.threads,
        "latency_ms": latency(times.totals),
        "operators": operator_shares(model.description.operators, times.operators),
    }


def _fit_run_count(seconds: float, each: float, low: int) -> int:
    """Returns how many runs of `each` seconds fit, within bounds."""
    return min(max(int(seconds / max(each, 1e-7)), low), _MAX_COUNT)


def latency(nanoseconds: Sequence[int]) -> Dict[str, Any]:
    """Returns the median, 10th and 90th percentile in milliseconds, and the number of runs."""
    ordered = sorted(nanoseconds)
    return {
        "median": percentile(ordered, 50) / 1e6,
        "p10": percentile(ordered, 10) / 1e6,
        "p90": percentile(ordered, 90) / 1e6,
        "n": len(ordered),
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns a percentile of a sorted sequence, linearly interpolated."""
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def operator_shares(
    specs: Sequence[OperatorSpec], rows: Sequence[Sequence[int]]
) -> List[Dict[str, Any]]:
    """Returns each operator's median in microseconds, and its share of the sum of medians."""
    medians = [percentile(sorted(row[i] for row in rows), 50) for i in range(len(specs))]
    total = sum(medians) or 1.0
    return [
        {"name": s.name, "op": s.op, "kernel": s.kernel, "median_us": m / 1e3, "share": m / total}
        for s, m in zip(specs, medians)
    ]


def run_times(specs: Sequence[OperatorSpec], times: RunTimes) -> Dict[str, Any]:
    """Returns one run's timings: the total in milliseconds, operators in microseconds."""
    return {
        "latency_ms": times.total / 1e6,
        "operators": [
            {"name": s.name, "op": s.op, "kernel": s.kernel, "us": ns / 1e3}
            for s, ns in zip(specs, times.operators)
        ],
    }
