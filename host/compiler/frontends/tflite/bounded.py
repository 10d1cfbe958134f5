"""How TensorFlow Lite operators treat rows of data-dependent count; for `common/bounded.py`."""

from __future__ import annotations

from edgekit.host.compiler.frontends.common.bounded import Rules

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
    unrelated=frozenset({"CALL", "CALL_ONCE", "RANK", "STABLEHLO_COMPOSITE", "WHILE"}),
)  # fmt: skip
