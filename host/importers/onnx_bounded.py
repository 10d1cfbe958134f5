"""Buffers of a bound: what operators leave whose results are as long as the data say.

Behind the last row of a result such a buffer holds rows of -1, and whatever is made of them row by
row has rows behind its last one too. An operator that looks across rows would count those as well,
and one that computes with a length read from the buffer's shape would take the bound for it: both
are refused. The graph gets the length itself as an output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgekit.host.errors import InputError
from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Tensor
from edgekit.host.importers.builder import Builder
from edgekit.host.importers.names import shown_name
from edgekit.host.importers.onnx_types import Value

_MAKERS = {"NonMaxSuppression": 0, "NonZero": 1}  # the axis of their results that has a bound
_ACROSS_ROWS = {
    "ArgMax", "ArgMin", "Attention", "AveragePool", "Conv", "ConvInteger", "ConvTranspose",
    "CumProd", "CumSum", "DFT", "Einsum", "GRU", "Gemm", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "Hardmax", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization",
    "LogSoftmax", "LpNormalization", "MatMul", "MatMulInteger", "MaxPool",
    "MeanVarianceNormalization", "NonMaxSuppression", "NonZero", "QLinearConv", "QLinearMatMul",
    "RMSNormalization", "RNN", "Resize", "STFT", "Scan", "ScatterElements", "ScatterND", "Softmax",
    "SplitToSequence", "TopK",
}  # fmt: skip
_TO_SHAPE = ("ConstantOfShape", "Expand", "Range", "Reshape", "Slice", "Split", "Tile")


class Bounded:
    """Which tensors of an import have rows behind their last one, by name."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        # What each was made of: the result of a maker, and the axis of rows there.
        self._rows: dict[str, tuple[Tensor, int]] = {}
        self._bounds: set[str] = set()  # constants that were read from shapes of these

    def follow(self, op: str, ins: Sequence[Value | None], outs: Iterable[Value | None]) -> None:
        """After each node."""
        given = [t for t in ins if isinstance(t, Tensor)]
        made = [t for t in outs if isinstance(t, Tensor)]
        computed = any(t.data is None for t in given)
        if op in _MAKERS and computed and made:
            self._rows.update((t.name, (made[-1], _MAKERS[op])) for t in made)
        known = [self._rows[t.name] for t in given if t.name in self._rows]
        sources = {source.name: (source, axis) for source, axis in known}
        by_bound = any(t.name in self._bounds for t in given)
        if not sources and not by_bound:
            return
        if op in ("Shape", "Size") or (by_bound and not computed and op not in _TO_SHAPE):
            self._bounds.update(t.name for t in made)
            return
        if computed and (op in _ACROSS_ROWS or op.startswith("Reduce") or len(sources) > 1):
            raise InputError(
                "expected only operators that work row by row on boxes or indices whose number "
                f"the data say, found {op}; end the model before it, the application goes on"
            )
        if by_bound and op not in _TO_SHAPE:
            raise InputError(
                f"expected no arithmetic with a number of boxes or indices that the data say, "
                f"found {op}; end the model before it, the application goes on"
            )
        for source in sources.values():
            self._rows.update((t.name, source) for t in made)

    def lengths(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The number of rows [1], by the first of the outputs that have these rows."""
        found: dict[str, tuple[str, Tensor]] = {}
        for name, output in outputs.items():
            if output.name in self._bounds:
                raise InputError(
                    f"output {shown_name(name)}: expected rows of boxes or indices, found their "
                    "number, which the data say: it becomes an output of its own with the rows"
                )
            if output.name in self._rows:
                source, axis = self._rows[output.name]
                if source.name not in found:
                    found[source.name] = name, self._length(source, axis)
        return dict(found.values())

    def _length(self, source: Tensor, axis: int) -> Tensor:
        count = source.shape[axis]
        if not source.elements:
            return self._builder.constant(np.zeros(1, np.int64))
        extent = tuple(count if i == axis else 1 for i in range(2))
        first = self._builder.emit(ops.StridedSlice((0, 0), (1, 1), extent, (count,)), source)
        zero = self._builder.constant(np.array(0, np.int64))
        there = self._builder.emit(ops.LessOrEqual(), zero, first)
        numbers = self._builder.emit(ops.Convert(DType.I64), there)
        return self._builder.emit(ops.ReduceSum((0,), True), numbers)
