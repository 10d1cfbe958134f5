#!/usr/bin/env python3
"""Measures register tiles here, or estimates them, and fits their costs to the times.

    scripts/fit_tile_costs.py measure FILE [--board rpi4] [--seed 1] [--count 300] [--dtype s8]
                                  [--packed a] [--transposed] [--sample set] [--most 1000000]
    scripts/fit_tile_costs.py fit FILE ... [--board rpi4] [--dtype s8] [--steps 1500] [--seed 1]

`measure` appends random products typical of inference, or some of those that tables are searched
for, of at most --most operations, to FILE, one JSON line each, with the time of every tile that the
analytic rule may choose, and of lower ones.
`fit` perturbs the costs at random and keeps changes that lower the regret of the choice (its mean,
with extra weight above a tenth); it prints the costs and their worst-case regret. Costs of this
machine belong in kb/targets/simd, and the machine must be idle meanwhile; those of another board,
in simulated time, belong in the profile of its core in kb/targets/boards.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import structs

from edgekit.host.compiler.costs.methods.gemm import choices_of, method_of_tile
from edgekit.host.compiler.costs.methods.tile_cost import (
    Kind,
    TileCosts,
    cost_by,
    kind_of,
    kinds_of,
    parts,
    tile_costs_of,
)
from edgekit.host.deploy.connections import connect_to
from edgekit.host.lab.bench.gemm import measured
from edgekit.host.lab.bench.gemm_cases import distinct_cases, transposed
from edgekit.host.lab.tune.estimating import EstimatingMeasurer
from edgekit.host.lab.tune.measure import BoardMeasurer
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.shape_set import shape_set
from edgekit.host.lab.tune.tuner import Measurer, Question
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmShape, Packed, packed_of
from edgekit.kb.targets.board import LOCAL, BoardProfile, load_board

_SECONDS = 0.007  # per tile
_BATCH = 8  # products per call of the runtime
_FACTORS = (0.5, 0.7, 0.85, 1.15, 1.4, 2.0)
_ABOVE = 0.1  # regret with extra weight
Tile = tuple[int, int]


def _shapes(args: argparse.Namespace) -> Iterator[GemmShape]:
    if args.sample == "set":
        shapes = shape_set(args.most)
        random.Random(args.seed).shuffle(shapes)
        yield from shapes
        return
    for case in distinct_cases(args.seed):
        yield ((transposed(case) if args.transposed else None) or case).shape


def measure(args: argparse.Namespace) -> None:
    """Append products to a file."""
    board = load_board(args.board)
    packed = packed_of(args.packed)
    questions = []
    for shape in itertools.islice(_shapes(args), args.count):
        if 1 in (shape.m, shape.n) or shape.operations > args.most:
            continue
        tiles = {*choices_of(board, shape, args.dtype, packed)}
        tiles |= {(max(mr * 2 // 3, 1), nr) for mr, nr in tiles if nr % board.isa.vl == 0}
        made = (
            method_of_tile(board, *tile, shape, args.dtype, packed=packed) for tile in sorted(tiles)
        )
        first, *others = dict.fromkeys(method.cut(shape) for method in made)
        product = MatrixProduct(shape, args.dtype, 1, packed)
        seconds = _SECONDS * (len(others) + 1)
        questions.append(Question(product, first, tuple(others), seconds))
    measurer: Measurer
    if args.board == LOCAL:
        measurer = BoardMeasurer(connect_to(LOCAL, None), board, False)
    else:
        measurer = EstimatingMeasurer(target_of(board))
    with args.file[0].open("a") as file:
        for start in range(0, len(questions), _BATCH):
            asked = questions[start : start + _BATCH]
            for i, timed in measured(measurer, asked, lambda _: None).items():
                q = asked[i]
                methods = zip((q.default, *q.methods), (timed.default, *timed.methods), strict=True)
                times = [[method.mr, method.nr, cost.low] for method, cost in methods]
                head = {**asdict(q.product.shape), "dtype": q.product.dtype, "packed": packed}
                file.write(json.dumps({**head, "times": times}) + "\n")


@dataclass(frozen=True)
class _Known:
    """A product, and the regret of each candidate tile."""

    shape: GemmShape
    packed: Packed
    regret: dict[Tile, float]


def _panel_counts(tile: Tile, shape: GemmShape, vl: int) -> tuple[bool, int, int]:
    """Tiles that partition a product the same way take the same time."""
    mr, nr = tile
    if nr % vl:
        return True, parts(parts(shape.m, vl), mr // vl), parts(shape.n, nr)
    return False, parts(shape.m, mr), parts(parts(shape.n, vl), nr // vl)


def _read_known(files: list[Path], dtype: str, board: BoardProfile) -> Iterator[_Known]:
    vl = board.isa.vl
    for line in (line for file in files for line in file.read_text().splitlines()):
        found = json.loads(line)
        if found["dtype"] != dtype:
            continue
        shape = GemmShape(found["m"], found["k"], found["n"])
        times: dict[tuple[bool, int, int], float] = {}
        for mr, nr, cost in found["times"]:
            at = _panel_counts((mr, nr), shape, vl)
            times[at] = min(cost, times.get(at, cost))
        best = min(times.values())
        choices = choices_of(board, shape, dtype, packed_of(found["packed"]))
        tiles = ((tile, _panel_counts(tile, shape, vl)) for tile in choices)
        regret = {tile: times[at] / best - 1.0 for tile, at in tiles if at in times}
        yield _Known(shape, packed_of(found["packed"]), regret)


def _regrets(
    known: list[_Known], costs: dict[Kind, TileCosts], board: BoardProfile, dtype: str
) -> list[float]:
    def cost(tile: Tile, of: _Known) -> int:
        kind = kind_of(board, tile, of.shape, dtype)
        return cost_by(costs[kind], board, tile, of.shape, dtype, of.packed)

    return [each.regret[min(each.regret, key=lambda t: cost(t, each))] for each in known]


def _loss(regrets: list[float]) -> float:
    return statistics.fmean(regret + 2 * max(regret - _ABOVE, 0.0) for regret in regrets)


def fit(args: argparse.Namespace) -> None:
    """Search for better costs, starting from the current ones."""
    board = load_board(args.board)
    known = list(_read_known(args.file, args.dtype, board))
    costs = {kind: tile_costs_of(board, args.dtype, kind) for kind in kinds_of(board, args.dtype)}
    source, found = random.Random(args.seed), _regrets(known, costs, board, args.dtype)
    print(f"today {statistics.fmean(found):.4f} in the mean, {max(found):.3f} at worst")
    for _ in range(args.steps):
        tried = dict(costs)
        for _ in range(source.choice((1, 1, 2, 3))):
            kind = source.choice(list(tried))
            paid = [name for name, value in structs.asdict(tried[kind]).items() if value]
            name = source.choice(paid)
            value = getattr(tried[kind], name) * source.choice(_FACTORS)
            changed = max(round(value) + source.choice((-1, 0, 1)), 1)
            tried[kind] = structs.replace(tried[kind], **{name: changed})
        other = _regrets(known, tried, board, args.dtype)
        if _loss(other) < _loss(found):
            costs, found = tried, other
    print(f"now   {statistics.fmean(found):.4f} in the mean, {max(found):.3f} at worst")
    print(f"{len(known)} products")
    for kind, found_costs in costs.items():
        print(f"{kind:7} {found_costs}")


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("measure", "fit"))
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--board", default=LOCAL, help="estimate for this profile")
    parser.add_argument("--dtype", choices=("f32", "s8"), default="f32")
    parser.add_argument("--packed", choices=("none", "a", "b"), default="a")
    parser.add_argument("--transposed", action="store_true", help="activations as rows")
    parser.add_argument("--sample", choices=("random", "set"), default="random")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--most", type=int, default=1 << 62, help="operations of a product")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    (measure if args.action == "measure" else fit)(args)


if __name__ == "__main__":
    main()
