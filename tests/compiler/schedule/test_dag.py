"""Key nodes against all paths of small graphs, and the rules for merging subgraphs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.schedule.dag import Dag, dag_of, key_positions, subgraph_ends
from tests.support.schedule_graphs import graph_of, random_edges


def _paths(dag: Dag, node: int) -> list[frozenset[int]]:
    if not dag.after[node]:
        return [frozenset({node})]
    return [path | {node} for end in dag.after[node] for path in _paths(dag, end)]


@given(random_edges(9))
def test_key_nodes_are_those_of_all_paths(edges):
    """Against the definition: nodes shared by all paths from inputs to outputs."""
    graph = graph_of(*edges)
    dag = dag_of(graph)
    paths = [p for i in range(dag.size) if not dag.before[i] for p in _paths(dag, i)]
    assert key_positions(graph, dag) == sorted(frozenset.intersection(*paths))


def test_an_input_that_skips_a_node_leaves_it_out_of_a_path():
    graph = graph_of(3, [(0, 1), (1, 2)], late_inputs=(2,))
    assert key_positions(graph, dag_of(graph)) == [2]


def test_an_early_output_ends_a_path():
    graph = graph_of(3, [(0, 1), (1, 2)], early_outputs=(0,))
    assert key_positions(graph, dag_of(graph)) == [0]


@given(st.data())
def test_subgraphs_end_at_key_nodes_and_none_is_small(data):
    size = data.draw(st.integers(1, 60))
    keys = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    merge_below = data.draw(st.integers(1, 9))
    ends = subgraph_ends(size, keys, merge_below)
    assert ends[-1] == size
    assert {end - 1 for end in ends[:-1]} <= set(keys)
    sizes = [end - start for start, end in zip((0, *ends), ends, strict=False)]
    assert min(sizes) >= min(merge_below, size)


def test_small_subgraphs_merge_into_the_one_before_and_the_first_into_the_next():
    chain = range(20)
    assert subgraph_ends(20, chain, 1) == list(range(1, 21))
    assert subgraph_ends(20, chain, 8) == [8, 20]
    assert subgraph_ends(30, [0, 1, 20, 21, 22], 8) == [21, 30]
    assert subgraph_ends(24, [9, 10, 11], 8) == [12, 24]
