"""Plans networks of the kinds people run in less memory than they need unsplit.

    python -m tests.long.memory_limits --seeds 3 [--kinds yolo unet] [--shares 0.9 0.75 0.5]

Even seeds are f32, odd ones quantized to 8 bits. Each network that fits is evaluated and compared
with the unsplit one: quantized outputs must be equal, floats within 1e-5 of the largest. Prints for
each share what each network needs and what the split costs, then how many of each kind fit. Exit
code 1 if a result differs, a plan exceeds its limit, planning takes more than 30 CPU seconds, or
fewer than 60% of the networks fit into half.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.field_networks import FIELD_KINDS, field_network
from tests.support.op_graphs import inputs_of

_CPU_SECONDS = 30.0
_LEAST = 0.6  # of the networks fit into half of their arena


@dataclass(frozen=True)
class _Try:
    """A network under a limit: the fraction of the unsplit arena that it needs, or needed at least
    when it was refused; and what is wrong with it, or ''."""

    fits: bool
    needs: float
    note: str
    wrong: str


def _arena(made: PreparedGraph, options: CompileOptions) -> int:
    _, plan = plan_of(made.graph, load_board("rpi4"), options)
    return plan.memory.arena_bytes


def _results(made: PreparedGraph) -> dict[str, Array]:
    return dict(evaluate(made.graph, inputs_of(made.imported)).outputs)


def _differs(wanted: dict[str, Array], found: dict[str, Array]) -> bool:
    for name, want in wanted.items():
        limit = 1e-5 * np.abs(want).max() if want.dtype.kind == "f" else 0
        apart = np.abs(found[name].astype(np.float64) - want.astype(np.float64))
        if not apart.max() <= limit:
            return True
    return False


def _try(whole: PreparedGraph, wanted: dict[str, Array], share: float) -> _Try:
    unsplit = _arena(whole, DEFAULT_OPTIONS)
    options = CompileOptions(memory_limit=int(unsplit * share))
    begin = time.process_time()
    try:
        made = prepare_graph(whole.imported, load_board("rpi4"), options)
    except InputError as error:
        found = re.search(r"found (\d+)", str(error))
        slow = time.process_time() - begin > _CPU_SECONDS
        needs = int(found[1]) / unsplit if found else 1.0
        return _Try(False, needs, "refused", "slow" if slow else "")
    seconds = time.process_time() - begin
    needs = _arena(made, options) / unsplit
    wrong = "slow" if seconds > _CPU_SECONDS else ""
    if needs > share:
        wrong = "exceeds its limit"
    elif _differs(wanted, _results(made)):
        wrong = "differs"
    return _Try(True, needs, "; ".join(made.notes), wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="networks per kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", default=list(FIELD_KINDS), choices=list(FIELD_KINDS))
    parser.add_argument("--shares", nargs="+", type=float, default=[0.9, 0.75, 0.5])
    args = parser.parse_args()
    fits: dict[float, dict[str, list[bool]]] = {s: defaultdict(list) for s in args.shares}
    wrong = 0
    for kind in args.kinds:
        for seed in range(args.first, args.first + args.seeds):
            dtype = DType.I8 if seed % 2 else DType.F32
            whole = prepare_graph(field_network(kind, seed, dtype), load_board("rpi4"))
            wanted = _results(whole)
            for share in args.shares:
                made = _try(whole, wanted, share)
                fits[share][kind].append(made.fits)
                wrong += bool(made.wrong)
                line = f"{kind} {seed} {dtype.name}, limit {share}: {made.needs:.2f} {made.note}"
                print(line, made.wrong, flush=True)
    enough = True
    for share, kinds in fits.items():
        counts = ", ".join(f"{kind} {sum(of)}/{len(of)}" for kind, of in kinds.items())
        every = [fit for of in kinds.values() for fit in of]
        print(f"limit {share}: {sum(every)} of {len(every)} fit: {counts}")
        enough = enough and not (share == 0.5 and sum(every) < _LEAST * len(every))
    print(f"{len(args.kinds) * args.seeds} networks, {wrong} wrong")
    return int(bool(wrong) or not enough)


if __name__ == "__main__":
    sys.exit(main())
