"""The operators of a model with a choice of methods, in place, and the methods worth trying."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod, candidates_of
from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model, model_hash
from edgekit.host.compiler.ir.ops import RowChain
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.groups import Group
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase, OperatorRow
from edgekit.kb.features import GemmKey, key_of
from edgekit.kb.targets.board import BoardProfile

WORTH = 1.4  # try methods up to this multiple of the least estimated cost
_MOST = 9  # methods per key, not counting those that differ only in band


@dataclass(frozen=True)
class TunableOp:
    """An operator, or a group of them: `default` is its method without a row, `current` the one
    compiled today, `costs` the estimated cost of each method over the least of a proven one,
    `steps` the names of the steps that may run for it."""

    name: str
    key: GemmKey
    form: Form
    default: OperatorMethod
    current: OperatorMethod
    costs: Mapping[OperatorMethod, float]
    steps: frozenset[str]

    @property
    def is_group(self) -> bool:
        """Whether its method decides which operators the model has."""
        return self.steps != {self.name}

    def cost_in(self, operators: Mapping[str, float]) -> float:
        """Its cost given the costs of steps by name; 0 if unknown."""
        return sum(operators.get(name, 0.0) for name in self.steps)


@dataclass(frozen=True, eq=False)
class TuningTask:
    """A model that is ready to compile for a number of threads with varying tables. `table`: the
    board's table without operator rows; `source`: the graph as imported."""

    name: str
    threads: int
    source: Graph
    digest: str
    board: BoardProfile
    options: CompileOptions
    table: KnowledgeBase
    operators: tuple[TunableOp, ...]

    def table_with(self, methods: Mapping[GemmKey, OperatorMethod]) -> KnowledgeBase:
        """The table with a row for each of the model's keys: one of these methods, or none."""
        shapes = {each.key: each.form.shape for each in self.operators}
        rows = (OperatorRow(k, methods.get(k), s, "tuner") for k, s in sorted(shapes.items()))
        return replace(self.table, operators=tuple(rows))


def tuning_task_of(
    model: Path, board: BoardProfile, options: CompileOptions, threads: int = 1
) -> TuningTask:
    """Raises InputError if the model cannot be compiled for the board."""
    current = table_of(board)
    table = replace(current, operators=())
    source = import_model(model, options.shapes, options.signature, max_rows=options.max_rows)
    options = replace(options, threads=threads)
    today, usual = (prepare_graph(source, board, options, each) for each in (current, table))
    compiled = _compiled_methods(today, board, options, current)
    methods = {group.name: group.method for group in today.groups}
    groups = tuple(
        _tunable_group(group, methods.get(group.name, group.method), board, table, threads)
        for group in usual.groups
        if len(group.candidates) > 1
    )
    operators = tuple(
        _tunable_operator(name, form, method, compiled.get(name, method), board, table, threads)
        for name, (form, method) in _chosen_methods(usual, board, options, table).items()
    )
    digest = model_hash(model)
    every = (*groups, *operators)
    return TuningTask(model.stem, threads, source, digest, board, options, table, every)


def _chosen_methods(
    made: PreparedGraph, board: BoardProfile, options: CompileOptions, table: KnowledgeBase
) -> dict[str, tuple[Form, OperatorMethod]]:
    """Form and method of each operator that has several methods and is timed on its own."""
    _, plan = plan_of(made.graph, board, options, table=table)
    return {
        step.name: (step.compiled.choice.form, step.compiled.method)
        for step in plan.lowered.steps
        if step.compiled is not None and step.compiled.choice.form is not None
    }


def _compiled_methods(
    made: PreparedGraph, board: BoardProfile, options: CompileOptions, table: KnowledgeBase
) -> dict[str, OperatorMethod]:
    """The method of each operator, including members of chains."""
    _, plan = plan_of(made.graph, board, options, table=table)
    steps = {step.name: step.compiled for step in plan.lowered.steps if step.compiled is not None}
    found = {name: compiled.method for name, compiled in steps.items()}
    for node in made.graph.nodes:
        if isinstance(node.op, RowChain) and node.name in steps:
            members = (member.method for member in steps[node.name].members)
            found.update(zip(node.op.names, members, strict=False))
    return found


def _tunable_operator(
    name: str,
    form: Form,
    default: OperatorMethod,
    current: OperatorMethod,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
) -> TunableOp:
    isa = board.isa.of_half if form.dtype == "f16" else board.isa
    found = candidates_of(form, isa, board, threads)
    cheapest = min((c for c in found if c.proven), key=lambda c: c.cost)
    least = cheapest.cost or 1.0
    costs = {
        c.method: c.cost / least
        for c in found
        if _may_matter(c.method, cheapest.method, form, board)
    }
    key = _gemm_key(form, board, table, threads)
    return TunableOp(name, key, form, default, current, costs, frozenset({name}))


def _tunable_group(
    group: Group,
    current: OperatorMethod,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
) -> TunableOp:
    least = min(c.cost for c in group.candidates if c.proven) or 1.0
    costs = {c.method: c.cost / least for c in group.candidates}
    key = _gemm_key(group.form, board, table, threads)
    return TunableOp(group.name, key, group.form, group.method, current, costs, group.steps)


def _gemm_key(form: Form, board: BoardProfile, table: KnowledgeBase, threads: int) -> GemmKey:
    index = table.platforms.index(board.platform)
    return key_of(form.shape, index, table.for_operators, form.dtype, threads, "b", form.name)


def changed_steps(
    operators: Iterable[TunableOp], methods: Mapping[GemmKey, OperatorMethod]
) -> set[str]:
    """Names of the steps that `methods` may change from the default."""
    return {
        step
        for each in operators
        if methods.get(each.key, each.default) != each.default and methods[each.key] in each.costs
        for step in each.steps
    }


def _may_matter(
    method: OperatorMethod, cheapest: OperatorMethod, form: Form, board: BoardProfile
) -> bool:
    """Whether trying a method could help. Weights that stay in L1 can be traversed any number of
    times; bands other than the rule's are only tried with the tile of the `cheapest` method."""
    if method.band is not None and (method.mr, method.nr) != (cheapest.mr, cheapest.nr):
        return False
    return form.weight_bytes > board.l1d_bytes or method.split == "m"


def methods_to_try(
    operators: Iterable[TunableOp], worth: float = WORTH
) -> dict[GemmKey, list[OperatorMethod]]:
    """For each key, the methods that its operators may gain from: those with an estimated cost up
    to `worth` times the least, most promising first."""
    by_key: dict[GemmKey, list[TunableOp]] = defaultdict(list)
    for each in operators:
        by_key[each.key].append(each)
    return {key: _promising_methods(operators, worth) for key, operators in by_key.items()}


def _promising_methods(operators: Sequence[TunableOp], most: float) -> list[OperatorMethod]:
    defaults = {each.default for each in operators}
    least: dict[OperatorMethod, float] = {}
    for each in operators:
        for method, cost in each.costs.items():
            least[method] = min(cost, least.get(method, cost))
    worth = sorted(least, key=lambda m: least[m])
    if not operators[0].is_group:  # group costs are less certain, and there are few candidates
        worth = [m for m in worth if least[m] <= most]
    # The default of all operators is already known; the default of some may help the others.
    worth = [m for m in worth if defaults != {m}]
    by_rule = [m for m in worth if m.band is None][:_MOST]
    return [m for m in worth if m.band is not None or m in by_rule]
