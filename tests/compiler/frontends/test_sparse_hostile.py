"""Inconsistent sparse tensors."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.schema import FileDimension, FileSparsity
from edgekit.host.compiler.frontends.tflite.sparse import to_dense
from edgekit.host.errors import InputError


def rows(segments, indices):
    return FileDimension(0, np.array(segments), np.array(indices))


def all_of(size):
    return FileDimension(size, None, None)


GOOD = rows([0, 2, 2, 3], [1, 3, 0])


@pytest.mark.parametrize(
    ("order", "blocks", "levels", "message"),
    [
        ((0,), (), (all_of(3), GOOD), "traversal"),
        ((0, 0), (), (all_of(3), GOOD), "traversal"),
        ((0, 1), (), (all_of(3),), "traversal"),
        ((0, 1, 2), (5,), (all_of(3), GOOD, all_of(1)), "block map"),
        ((0, 1, 2), (1,), (all_of(3), GOOD, all_of(3)), "blocks that divide 4"),
        ((0, 1, 2), (1,), (all_of(3), GOOD, GOOD), "blocks that divide 4"),
        ((0, 1), (), (all_of(4), GOOD), "dense level of 3"),
        ((0, 1), (), (all_of(3), rows([0, 2, 3], [1, 3, 0])), "4 rising segments"),
        ((0, 1), (), (all_of(3), rows([0, 2, 1, 3], [1, 3, 0])), "rising segments"),
        ((0, 1), (), (all_of(3), rows([0, 2, 2, 9], [1, 3, 0])), "rising segments"),
        ((0, 1), (), (all_of(3), rows([], [])), "rising segments"),
        ((0, 1), (), (all_of(3), rows([0, 2, 2, 3], [1, 4, 0])), "indices from 0 to 3"),
        ((0, 1), (), (all_of(3), rows([0, 2, 2, 3], [1, -1, 0])), "indices from 0 to 3"),
        ((0, 1), (), (all_of(3), rows([0, 1, 1, 2], [1, 0])), "expected 2 values"),
        ((0, 1), (), (all_of(3), all_of(4)), "at most 3 nodes"),
    ],
)
def test_inconsistent_levels_are_refused(order, blocks, levels, message):
    with pytest.raises(InputError, match=message):
        to_dense(np.float32([5, 6, 7]), (3, 4), FileSparsity(order, blocks, levels))


def test_a_bomb_of_dense_levels_is_refused():
    sparsity = FileSparsity((0, 1), (), (all_of(2**30), all_of(2**30)))
    with pytest.raises(InputError, match="nodes in a sparse level"):
        to_dense(np.float32([1]), (2**30, 2**30), sparsity)
