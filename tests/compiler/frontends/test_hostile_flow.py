"""Endless subgraphs: each is rejected in one line, in bounded time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.errors import InputError


def _call(files, number, source="x", target="y"):
    return files.op("CALL", [source], [target], "CallOptions", {"Subgraph": number})


def _graph(files, ops, outputs=("y",)):
    tensors = [files.tensor(n, [2]) for n in ("x", "m", "y")]
    tensors.append(files.tensor("c", [1], "BOOL", np.array([True])))
    return files.graph(tensors, ops, ["x"], list(outputs))


def _loop(files, condition, body):
    fields = {"CondSubgraphIndex": condition, "BodySubgraphIndex": body}
    return files.op("WHILE", ["x"], ["y"], "WhileOptions", fields)


def _refused(content, match, **limits):
    with pytest.raises(InputError, match=match) as error:
        graph_from_tflite(content, "m", **limits)
    assert "\n" not in str(error.value)


def test_a_subgraph_that_calls_itself(files):
    _refused(files.model(*[_graph(files, [_call(files, 1)])] * 2), "a recursion")
    _refused(files.model(_graph(files, [_call(files, 0)])), "expected a subgraph from 1")


@pytest.mark.parametrize("computes", [True, False])
def test_calls_that_double_at_each_level(files, computes):
    """A billion calls: an importer without a work limit would not return."""
    levels = [
        _graph(files, [_call(files, i + 1, "x", "m"), _call(files, i + 1, "m", "y")])
        for i in range(30)
    ]
    relu = files.op("RELU", ["x"], ["y"])
    last = _graph(files, [relu]) if computes else _graph(files, [], ["x"])
    _refused(files.model(*levels, last), "in all runs of subgraphs", work_limit=1 << 13)


def test_branches_that_double_at_each_level(files):
    """Both branches of a computed condition are imported, 2^31 of them here."""
    tensors = [files.tensor("c", [], "BOOL"), *(files.tensor(n, [2]) for n in ("x", "m", "y"))]
    levels = []
    for i in range(30):
        both = {"ThenSubgraphIndex": i + 1, "ElseSubgraphIndex": i + 1}
        ops = [files.op("IF", ["c", "c", "x"], ["y"], "IfOptions", both)]
        levels.append(files.graph(tensors, ops, ["c", "x"], ["y"]))
    last = files.graph(tensors, [files.op("RELU", ["x"], ["y"])], ["c", "x"], ["y"])
    start = time.process_time()
    _refused(files.model(*levels, last), "smaller loops or fewer branches")
    assert time.process_time() - start < 4


def test_a_loop_without_end(files):
    forever = _graph(files, [], ["c"])
    relu = files.op("RELU", ["x"], ["y"])
    for body in (_graph(files, [relu]), _graph(files, [], ["x"])):
        content = files.model(_graph(files, [_loop(files, 1, 2)]), forever, body)
        _refused(content, "loop of at most 1024 iterations")


def test_one_name_for_everything_takes_no_longer():
    taken = _Asked()
    names = [fresh_name("same", taken) for _ in range(5_000)]
    assert len(set(names)) == len(names)
    assert names[:3] == ["same", "same_2", "same_3"]
    assert taken.times < len(names) * 30  # restarting from 1 would take 2,500 lookups each


class _Asked(set[str]):
    """A set of names that counts lookups."""

    times = 0

    def __contains__(self, name: object) -> bool:
        self.times += 1
        return super().__contains__(name)
