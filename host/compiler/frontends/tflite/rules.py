"""How operators of TensorFlow Lite treat rows whose number depends on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.rows import Cut, Rules
from edgekit.host.compiler.ir.types import Tensor


def _cut_of(ins: Sequence[Any], axis: int, x: Tensor, y: Tensor) -> Cut | None:
    """The slice by SLICE or STRIDED_SLICE, where it is sure whatever the masks of the latter
    say."""
    begin, end, strides = (*(getattr(t, "data", None) for t in ins[1:]), None, None)[:3]
    if begin is None or np.any(begin != 0) or (strides is not None and np.any(strides != 1)):
        return None
    from_end = end is not None and strides is not None and np.any(end < 0)
    if from_end or len(y.shape) != len(x.shape):
        return None
    return Cut(0, y.shape[axis], 1)


RULES = Rules(
    across_rows=frozenset({
        "ARG_MAX", "ARG_MIN", "ASSIGN_VARIABLE", "AVERAGE_POOL_2D", "BATCH_MATMUL",
        "BATCH_TO_SPACE_ND", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN",
        "CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE", "CUMSUM", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE",
        "DILATE", "DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP_SPARSE", "FULLY_CONNECTED", "IF",
        "L2_NORMALIZATION",
        "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION", "LOG_SOFTMAX", "LSTM", "MATRIX_DIAG",
        "MATRIX_SET_DIAG", "MAX_POOL_2D", "MEAN", "MIRROR_PAD", "NON_MAX_SUPPRESSION_V4",
        "NON_MAX_SUPPRESSION_V5", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN",
        "REDUCE_PROD", "REDUCE_WINDOW", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_SEQUENCE", "REVERSE_V2", "RFFT2D", "RNN", "SCATTER_ND", "SEGMENT_SUM", "SOFTMAX",
        "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPARSE_TO_DENSE",
        "STABLEHLO_GATHER", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_RNG_BIT_GENERATOR",
        "STABLEHLO_SCATTER", "SUM",
        "SVDF", "TOPK_V2",
        "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
        "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD",
        "UNSORTED_SEGMENT_SUM", "WHERE",
    }),
    counts=frozenset({"SHAPE"}),
    sized_by={"BROADCAST_TO": 1, "FILL": 0, "RESHAPE": 1, "SLICE": 2},
    picks=frozenset({
        "CAST", "CONCATENATION", "EXPAND_DIMS", "GATHER", "PACK", "RESHAPE", "SLICE", "SPLIT",
        "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "UNPACK",
    }),
    computing=frozenset({"IF", "WHILE"}),
    cuts=frozenset({"SLICE", "STRIDED_SLICE"}),
    cut_of=_cut_of,
    joins=frozenset({
        "CONCATENATION", "MIRROR_PAD", "PAD", "PADV2", "SPLIT", "SPLIT_V", "TILE",
    }),
    unrelated=frozenset({"CALL", "CALL_ONCE", "RANK", "STABLEHLO_COMPOSITE", "WHILE"}),
)  # fmt: skip
