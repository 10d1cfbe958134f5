"""Table rows that decide for several operators jointly: chains, regions, and pruned layers."""

from __future__ import annotations

import dataclasses

import pytest

from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.fit import fit
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.conv.chains import chain_for_time
from edgekit.host.compiler.lowering.groups import Group, MethodGroups, choices_of
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile, load_profile
from tests.support.group_graphs import WIDTH, expanded_block, pruned_blocks, pruned_layer
from tests.support.method_cases import table_of_operators

_BOARD = load_profile("a72")
_NONE = KnowledgeBase((_BOARD.platform,))


def _chained(
    graph: Graph, table: KnowledgeBase, board: BoardProfile = _BOARD
) -> tuple[Graph, Group]:
    groups = MethodGroups(board, table)
    graph = chain_for_time(graph, board, table, groups)
    (group,) = groups.made.values()
    return graph, group


def _in_layouts(graph: Graph, table: KnowledgeBase) -> tuple[Graph, Group]:
    fitted = fit(graph, None, _BOARD, DEFAULT_OPTIONS, table)
    (group,) = fitted.groups
    return fitted.graph, group


def _row(form: Form, method: OperatorMethod | None) -> KnowledgeBase:
    return table_of_operators(_BOARD, (form, method))


@pytest.mark.parametrize(
    ("members", "names"),
    [(3, [("expand", "depth", "project")]), (2, [None, ("depth", "project")])],
)
def test_row_of_a_chain_says_how_many_operators_are_one(members, names):
    plain, group = _chained(expanded_block(), _NONE)
    assert len(plain.nodes) == 3 and group.method.family == "depthwise"
    table = _row(group.form, OperatorMethod("chain", "f32", members=members))
    chained, _ = _chained(expanded_block(), table)
    assert [getattr(n.op, "names", None) for n in chained.nodes] == names


def test_row_takes_apart_what_would_be_a_chain():
    small = dataclasses.replace(load_profile("x86-64-v3"), l2_bytes=65536)
    table = KnowledgeBase((small.platform,))
    groups = MethodGroups(small, table)
    assert len(chain_for_time(expanded_block(), small, table, groups).nodes) == 1
    (group,) = groups.made.values()
    table = table_of_operators(small, (group.form, OperatorMethod("depthwise", "f32")))
    assert (
        len(chain_for_time(expanded_block(), small, table, MethodGroups(small, table)).nodes) == 3
    )


@pytest.mark.parametrize(("times", "operators"), [(1, 3), (1.2, 1)])
def test_row_of_another_shape_takes_no_chain_apart_where_it_is_dear(times, operators):
    """If images exceed the cache, separate operators cost much more than a chain."""
    small = dataclasses.replace(_BOARD, l2_bytes=65536)
    groups = MethodGroups(small, _NONE)
    assert len(chain_for_time(expanded_block(), small, _NONE, groups).nodes) == 1
    (group,) = groups.made.values()
    shape = group.form.shape
    other = dataclasses.replace(shape, m=round(times * shape.m))
    form = dataclasses.replace(group.form, shape=other)
    table = table_of_operators(small, (form, OperatorMethod("depthwise", "f32")))
    groups = MethodGroups(small, table)
    assert len(chain_for_time(expanded_block(), small, table, groups).nodes) == operators
    (group,) = groups.made.values()
    assert ("depthwise costs" in group.choice.why) == (operators == 1)


@pytest.mark.parametrize(
    ("name", "columns", "fits"),
    [("a72", WIDTH, True), ("a72", 64, True), ("generic-aarch64", 64, False)],
)
def test_a_chain_that_a_member_s_row_leaves_no_room_for_is_by_the_rule(name, columns, fits):
    """Rows are measured on single operators: their tiles may not divide any image that the buffer
    holds. Strips for known cores may then have some of the columns."""
    block, board = expanded_block(columns=columns), load_profile(name)
    none = KnowledgeBase((board.platform,))
    _, group = _chained(block, none, board)
    three = (group.form, OperatorMethod("chain", "f32", members=3))
    *_, project = lower(block, board, none).lowered.steps
    form, usual = project.compiled.choice.form, project.compiled.method
    uneven = (form, OperatorMethod("in_place", "f32", mr=5, nr=16))

    def made(*rows: tuple[Form, OperatorMethod]) -> list[OperatorMethod]:
        table = table_of_operators(board, *rows)
        graph, _ = _chained(block, table, board)
        return [s.compiled.members[-1].method for s in lower(graph, board, table).lowered.steps]

    assert made(three) == [usual]
    found = made(three, uneven)
    assert ([(m.mr, m.nr) for m in found] == [(5, 16)]) is fits
    assert fits or found == [usual]


def test_a_plan_says_which_row_made_a_chain():
    _, group = _chained(expanded_block(), _NONE)
    table = _row(group.form, OperatorMethod("chain", "f32", members=3))
    graph, group = _chained(expanded_block(), table)
    (step,) = lower(graph, _BOARD, table, choices=choices_of((group,))).lowered.steps
    assert step.compiled is not None and step.compiled.method.family == "chain"
    choice = step.compiled.choice
    assert choice.rule == "exact" and choice.row is not None
    assert choice.runner_up is not None and choice.runner_up.method.family == "depthwise"


def test_row_says_whether_a_region_is_sparse():
    chosen, region = _in_layouts(pruned_blocks(0.1), _NONE)
    assert region.method.family == "sparse"
    assert any(isinstance(n.op, ops.ChannelsFirstConv2D) for n in chosen.nodes)
    dense = _row(region.form, OperatorMethod("in_place", "f32"))
    graph, group = _in_layouts(pruned_blocks(0.1), dense)
    assert [n.op.kind for n in graph.nodes] == [n.op.kind for n in pruned_blocks(0.1).nodes]
    steps = lower(graph, _BOARD, dense, choices=choices_of((group,))).lowered.steps
    made = next(s.compiled for s in steps if s.name == "point_b")
    assert made is not None and "kept separate by the row of tuner" in made.choice.why


def test_row_makes_a_region_sparse_that_costs_more():
    plain, region = _in_layouts(pruned_blocks(0.9), _NONE)
    assert region.method.family == "in_place"
    assert not any(isinstance(n.op, ops.ChannelsFirst) for n in plain.nodes)
    table = _row(region.form, OperatorMethod("sparse", "f32"))
    graph, _ = _in_layouts(pruned_blocks(0.9), table)
    assert any(isinstance(n.op, ops.ChannelsFirstConv2D) for n in graph.nodes)


def test_rows_of_other_densities_say_nothing():
    _, region = _in_layouts(pruned_blocks(0.9), _NONE)
    other = dataclasses.replace(region.form, zeros=9)
    table = _row(other, OperatorMethod("sparse", "f32"))
    _, group = _in_layouts(pruned_blocks(0.9), table)
    assert group.method.family == "in_place" and group.choice.rule == "analytic"


def test_row_says_whether_a_pruned_layer_is_sparse():
    chosen, layer = _in_layouts(pruned_layer(0.03), _NONE)
    assert isinstance(chosen.nodes[0].op, ops.PrunedFullyConnected)
    table = _row(layer.form, OperatorMethod("in_place", "f32"))
    graph, _ = _in_layouts(pruned_layer(0.03), table)
    assert type(graph.nodes[0].op) is ops.FullyConnected


def test_a_family_that_a_form_does_not_have_is_not_taken():
    _, region = _in_layouts(pruned_blocks(0.9), _NONE)
    table = _row(region.form, OperatorMethod("winograd", "f32"))
    _, group = _in_layouts(pruned_blocks(0.9), table)
    assert group.method.family == "in_place" and "does not apply here" in group.choice.why
    with pytest.raises(InputError):
        fit(pruned_blocks(0.9), 10, _BOARD, DEFAULT_OPTIONS, table)
