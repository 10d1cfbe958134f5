#!/usr/bin/env python3
"""Estimates what matrix products lose to the best method of a search: docs/results/gemm_regret.csv.

    scripts/gemm_regret.py [--boards rpi4,rpi5,...] [--dtype s8] [--packed b] [--count 30]
        [--most 2000000] [--seed 77] [--write]

Regret is the time of the chosen method over that of the best one found, minus 1, in simulated board
time, of random products that no row of the board's table was made from: for the table's answer, for
the analytic rule alone, and for the kit's one fixed method (the rule's for a large square). --most
limits the operations of a product. Everything estimated is kept in regret.sqlite next to this
user's history, separate from it, and the same command resumes. --write records the means.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from results import record

from edgekit.device.version import VERSION
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.lab.bench.gemm import fixed_method
from edgekit.host.lab.bench.gemm_cases import Case
from edgekit.host.lab.bench.gemm_regret import REGRET_COUNT, REGRET_SEED, unseen_cases
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.estimate import EstimatedMeasurer
from edgekit.host.lab.tune.products import COUNTED_OPERATIONS, Product
from edgekit.host.lab.tune.propose import default_method
from edgekit.host.lab.tune.tuner import Tuner, TuningPlan
from edgekit.host.simulator.products import ProductTimer
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import packed_of
from edgekit.kb.targets.board import BoardProfile, load_board

_BOARDS = "rpi4,rpi5,rk3566,rpi3,jetson-nano,orangepi-pc,visionfive2,bpi-f3"
_SEARCH_SECONDS = 86400.0
_CHOICES = ("table", "rule", "fixed")


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default=_BOARDS)
    parser.add_argument("--dtype", choices=("f32", "s8", "u8"), default="f32")
    parser.add_argument("--packed", choices=("none", "a", "b"), default="none")
    parser.add_argument("--count", type=int, default=REGRET_COUNT, help="products per board")
    parser.add_argument("--most", type=int, default=COUNTED_OPERATIONS)
    parser.add_argument("--seed", type=int, default=REGRET_SEED)
    parser.add_argument("--write", action="store_true", help="into docs/results/gemm_regret.csv")
    options = parser.parse_args()
    for board in options.boards.split(","):
        found = _regrets_of_board(load_board(board), options)
        means = {name: statistics.fmean(r[name] for r in found) for name in _CHOICES}
        print(board, *(f"{name} {mean:.3f}" for name, mean in means.items()), flush=True)
        if options.write:
            _record(board, means, len(found), options)


def _regrets_of_board(
    board: BoardProfile, options: argparse.Namespace
) -> Sequence[Mapping[str, float]]:
    """The regrets of each product by name of the choice."""
    table, packed = table_of(board), packed_of(options.packed)
    measurer = EstimatedMeasurer(ProductTimer(target_of(board)), board.isa.vl)
    cases = unseen_cases(table, board.platform, 20 * options.count, options.most, options.seed)
    inner = [case for case in cases if 1 not in (case.shape.m, case.shape.n)]
    found = []
    with History(data_folder() / "regret.sqlite") as history:
        for case in inner[: options.count]:
            product = Product(case.shape, options.dtype, 1, packed)
            answer = table.choose(board, case.shape, options.dtype, 1, packed)
            fixed = fixed_method(board, options.dtype, 1, Case(case.shape, case.group, "b"))
            chosen = (answer.method, default_method(board, product), fixed)
            methods = dict(zip(_CHOICES, (m.cut(case.shape) for m in chosen), strict=True))
            ratios = _search(board, product, methods.values(), measurer, history)
            best = min(ratios.values())
            found.append({name: ratios[m] / best - 1.0 for name, m in methods.items()})
            s, how = case.shape, methods["rule"]
            texts = (f"{name} {regret:.3f}" for name, regret in found[-1].items())
            print(board.name, f"{s.m},{s.k},{s.n} rule {how.mr}x{how.nr}", *texts, flush=True)
    return found


def _search(
    board: BoardProfile,
    product: Product,
    chosen: Collection[Method],
    measurer: EstimatedMeasurer,
    history: History,
) -> dict[Method, float]:
    """The ratio to the rule's method of every method that a search tried, and of those chosen."""
    for given in ({}, *({product: method} for method in chosen)):
        plan = TuningPlan(board.name, board, (product,), _SEARCH_SECONDS, VERSION, given)
        Tuner(plan, measurer, history, time.monotonic, _now).run(lambda _: None)
    known = history.read(board.platform).measurements
    usual = default_method(board, product)
    # Costs, not ratios: the default of earlier runs may have been another rule's.
    costs = {
        m.method: m.cost
        for m in known
        if (m.board, m.shape, m.dtype, m.packed, m.threads)
        == (board.name, product.shape, product.dtype, product.packed, product.threads)
    }
    return {method: cost / costs[usual] for method, cost in costs.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _record(
    board: str, means: Mapping[str, float], count: int, options: argparse.Namespace
) -> None:
    core = load_board(board).timing[0].core
    kind = {"core": core, "dtype": options.dtype, "packed": options.packed}
    figures = {f"{name}_regret": f"{mean:.3f}" for name, mean in means.items()}
    command = f"scripts/gemm_regret.py --dtype {options.dtype} --packed {options.packed}"
    command += f" --count {options.count} --most {options.most} --seed {options.seed} --write"
    row = {**kind, "shapes": str(count), **figures}
    record("gemm_regret.csv", [row], tuple(kind), ("estimated, 1 thread", command))


if __name__ == "__main__":
    main()
