"""`edgekit bench model --hotspots`: where and why a model spends time on a board, with advice."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.hotspots import HotFunction, HotInstruction
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import Benchmark
    from edgekit.host.lab.bench.hotspots import ProgramVerdict
    from edgekit.host.simulator.model import ModelEstimate

_FEW = 100  # samples below which shares are imprecise
_DEPLOYED = "MODEL"  # placeholder for the file of the deployed model, which is not known here


def check_hotspots(count: int, every: bool) -> None:
    """Raises InputError for several models: each takes seconds to sample and prints many lines."""
    if every or count > 1:
        found = "--all" if every else str(count)
        raise InputError(
            f"expected one model with --hotspots, found {found}; measure them one by one"
        )


def verdict_of(
    device: Board, timing: Benchmark, file: Path | None, estimate: ModelEstimate | None
) -> ProgramVerdict | None:
    """The verdict on a benchmark; None if hot spots were not requested."""
    from edgekit.host.deploy.explanations import recall
    from edgekit.host.lab.bench.advice import BenchTarget
    from edgekit.host.lab.bench.hotspots import estimated, judge
    from edgekit.kb.targets.board import load_board

    if timing.hotspots is None:
        return None
    target = BenchTarget(
        str(file) if file else _DEPLOYED,
        device.name,
        load_board(device.profile),
        recall(timing.release),
    )
    if device.emulated:
        return estimated(estimate, target)
    return judge(timing, timing.hotspots, target)


def hotspots_document(timing: Benchmark, verdict: ProgramVerdict | None) -> dict[str, Any] | None:
    """The `hotspots` part of edgekit.bench.model/1; None if they were not requested."""
    if timing.hotspots is None or verdict is None:
        return None
    seen = asdict(timing.hotspots.seen)
    rate = timing.hotspots.memory_bytes_per_second
    return {
        **asdict(verdict),
        **seen,
        "operators": [asdict(o) for o in verdict.operators],
        "memory_bytes_per_second": rate,
    }


def hotspot_lines(timing: Benchmark, verdict: ProgramVerdict | None) -> list[str]:
    """Hot spots as text lines; empty if they were not requested."""
    if timing.hotspots is None or verdict is None:
        return []
    seen = timing.hotspots.seen
    lines = [f"hotspots {verdict.kind}: {verdict.why}", f"try      {verdict.advice}"]
    for i, thread in enumerate(seen.threads):
        who = "caller" if i == 0 else f"worker {i}"
        delayed = "" if thread.delayed is None else f", {thread.delayed:.0f}% without a core"
        busy = f"{thread.running:.0f}% on a core{delayed}, {thread.asleep:.0f}% asleep"
        waits = f"; {thread.waiting:.0f}% of {thread.samples} samples waiting for tasks"
        several = thread.samples and len(seen.threads) > 1
        lines.append(f"thread   {who}: {busy}{waits if several else ''}")
    said = {verdict.advice}
    for operator in verdict.operators:
        share = f"{100 * operator.share:5.1f}%"
        lines.append(f"  {share}  {operator.name} ({operator.op}): {operator.why}")
        if operator.advice not in said:
            lines.append(f"           try {operator.advice}")
        said.add(operator.advice)
    lines.append(f"samples  {_format_sampling(timing)}")
    return lines + place_lines(seen.functions, seen.instructions, seen.missing)


def _format_sampling(timing: Benchmark) -> str:
    from edgekit.host.cli.compile import threads_text

    assert timing.hotspots is not None
    seen = timing.hotspots.seen
    count = sum(thread.samples for thread in seen.threads)
    if not seen.sampler:
        return "not allowed; operators are ranked by time, threads by Linux's accounting"
    rough = "; too few for precise shares" if count < _FEW else ""
    return f"{count} of {threads_text(len(seen.threads))}, by {seen.sampler}{rough}"


def place_lines(
    functions: tuple[HotFunction, ...],
    instructions: tuple[HotInstruction, ...],
    missing: tuple[str, ...],
) -> list[str]:
    """Functions and instructions with their shares, and the data that is missing."""
    return [
        *(f"  {function.percent:5.1f}%  {function.name}" for function in functions),
        *(f"    {each.percent:5.1f}%  {each.text}" for each in instructions),
        *(f"  missing   {reason}" for reason in missing),
    ]
