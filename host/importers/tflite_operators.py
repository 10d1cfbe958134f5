"""One row per TensorFlow Lite operator: the function that emits its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, Tensor
from edgekit.host.importers import tflite_audio as audio
from edgekit.host.importers import tflite_conv as conv
from edgekit.host.importers import tflite_detection as detection
from edgekit.host.importers import tflite_index as index
from edgekit.host.importers import tflite_math as math
from edgekit.host.importers import tflite_mediapipe as mediapipe
from edgekit.host.importers import tflite_product as product
from edgekit.host.importers import tflite_random as random
from edgekit.host.importers import tflite_recurrent as recurrent
from edgekit.host.importers import tflite_reduce as reduce
from edgekit.host.importers import tflite_shape as shape
from edgekit.host.importers import tflite_signal as signal
from edgekit.host.importers import tflite_stablehlo as stablehlo
from edgekit.host.importers import tflite_stablehlo_index as stablehlo_index
from edgekit.host.importers import tflite_stream as stream
from edgekit.host.importers import tflite_volume as volume
from edgekit.host.importers.tflite_call import Call
from edgekit.host.importers.tflite_poses import poses


@dataclass(frozen=True)
class Row:
    """`build` gives the outputs, in the file's order; `options`: the schema's type of them."""

    build: Callable[[Call], Tensor | list[Tensor]]
    options: str = "NONE"


ROWS: dict[str, Row] = {
    # Convolutions, fully connected layers, pools
    "AVERAGE_POOL_2D": Row(conv.average_pool, "Pool2DOptions"),
    "BATCH_MATMUL": Row(product.batch_matmul, "BatchMatMulOptions"),
    "CONV_2D": Row(conv.conv_2d, "Conv2DOptions"),
    "CONV_3D": Row(volume.conv_3d, "Conv3DOptions"),
    "CONV_3D_TRANSPOSE": Row(volume.conv_3d_transpose, "Conv3DOptions"),
    "CUSTOM:Convolution2DTransposeBias": Row(conv.transpose_conv_bias),
    "DEPTHWISE_CONV_2D": Row(conv.depthwise_conv_2d, "DepthwiseConv2DOptions"),
    "FULLY_CONNECTED": Row(conv.fully_connected, "FullyConnectedOptions"),
    "L2_POOL_2D": Row(conv.l2_pool, "Pool2DOptions"),
    "MAX_POOL_2D": Row(conv.max_pool, "Pool2DOptions"),
    "TRANSPOSE_CONV": Row(conv.transpose_conv, "TransposeConvOptions"),
    # Functions of one operand
    "ABS": Row(math.unary(ops.Abs()), "AbsOptions"),
    "BITCAST": Row(math.bit_cast, "BitcastOptions"),
    "CEIL": Row(math.unary(ops.Ceil())),
    "COS": Row(math.unary(ops.Cos()), "CosOptions"),
    "ELU": Row(math.unary(ops.Elu())),
    "EXP": Row(math.unary(ops.Exp()), "ExpOptions"),
    "FLOOR": Row(math.unary(ops.Floor())),
    "GELU": Row(math.gelu, "GeluOptions"),
    "HARD_SWISH": Row(math.unary(ops.HardSwish()), "HardSwishOptions"),
    "LEAKY_RELU": Row(math.leaky_relu, "LeakyReluOptions"),
    "LOG": Row(math.unary(ops.Log())),
    "LOGICAL_NOT": Row(math.unary(ops.Not()), "LogicalNotOptions"),
    "LOGISTIC": Row(math.unary(ops.Logistic())),
    "NEG": Row(math.unary(ops.Neg()), "NegOptions"),
    "RELU": Row(math.unary(ops.Clamp(Activation.RELU))),
    "RELU6": Row(math.unary(ops.Clamp(Activation.RELU6))),
    "RELU_N1_TO_1": Row(math.unary(ops.Clamp(Activation.RELU_N1_TO_1))),
    "RELU_0_TO_1": Row(math.unary(ops.Clamp(Activation.RELU_0_TO_1))),
    "ROUND": Row(math.unary(ops.RoundEven())),
    "RSQRT": Row(math.rsqrt),
    "SIGN": Row(math.unary(ops.Sign()), "SignOptions"),
    "SIN": Row(math.unary(ops.Sin())),
    "SQRT": Row(math.unary(ops.Sqrt())),
    "SQUARE": Row(math.square, "SquareOptions"),
    "TANH": Row(math.unary(ops.Tanh())),
    # Functions of several operands
    "ADD": Row(math.add, "AddOptions"),
    "ADD_N": Row(math.add_n, "AddNOptions"),
    "ATAN2": Row(math.binary(ops.Atan2())),
    "BITWISE_XOR": Row(math.binary(ops.BitwiseXor()), "BitwiseXorOptions"),
    "DIV": Row(math.activated(ops.Div()), "DivOptions"),
    "EQUAL": Row(math.comparison(ops.Equal()), "EqualOptions"),
    "FLOOR_DIV": Row(math.binary(ops.FloorDiv()), "FloorDivOptions"),
    "FLOOR_MOD": Row(math.binary(ops.Modulo()), "FloorModOptions"),
    "GREATER": Row(math.comparison(ops.Less(), swapped=True), "GreaterOptions"),
    "GREATER_EQUAL": Row(math.comparison(ops.LessOrEqual(), swapped=True), "GreaterEqualOptions"),
    "LESS": Row(math.comparison(ops.Less()), "LessOptions"),
    "LESS_EQUAL": Row(math.comparison(ops.LessOrEqual()), "LessEqualOptions"),
    "LOGICAL_AND": Row(math.binary(ops.And()), "LogicalAndOptions"),
    "LOGICAL_OR": Row(math.binary(ops.Or()), "LogicalOrOptions"),
    "MAXIMUM": Row(math.binary(ops.Maximum()), "MaximumMinimumOptions"),
    "MINIMUM": Row(math.binary(ops.Minimum()), "MaximumMinimumOptions"),
    "MUL": Row(math.mul, "MulOptions"),
    "NOT_EQUAL": Row(math.negated(ops.Equal()), "NotEqualOptions"),
    "POW": Row(math.binary(ops.Pow()), "PowOptions"),
    "PRELU": Row(math.prelu),
    "RIGHT_SHIFT": Row(math.binary(ops.RightShift()), "RightShiftOptions"),
    "SELECT": Row(math.select, "SelectOptions"),
    "SELECT_V2": Row(math.select, "SelectV2Options"),
    "SQUARED_DIFFERENCE": Row(math.squared_difference, "SquaredDifferenceOptions"),
    "SUB": Row(math.activated(ops.Sub()), "SubOptions"),
    # Reductions, softmax, normalizations
    "ARG_MAX": Row(reduce.arg_extreme(False), "ArgMaxOptions"),
    "ARG_MIN": Row(reduce.arg_extreme(True), "ArgMinOptions"),
    "CUMSUM": Row(reduce.cumsum, "CumsumOptions"),
    "L2_NORMALIZATION": Row(reduce.l2_normalization, "L2NormOptions"),
    "LOCAL_RESPONSE_NORMALIZATION": Row(
        reduce.across_channels, "LocalResponseNormalizationOptions"
    ),
    "LOG_SOFTMAX": Row(reduce.log_softmax, "LogSoftmaxOptions"),
    "MEAN": Row(reduce.mean, "ReducerOptions"),
    "REDUCE_ALL": Row(reduce.total(ops.ReduceMin), "ReducerOptions"),
    "REDUCE_ANY": Row(reduce.total(ops.ReduceMax), "ReducerOptions"),
    "REDUCE_MAX": Row(reduce.total(ops.ReduceMax), "ReducerOptions"),
    "REDUCE_MIN": Row(reduce.total(ops.ReduceMin), "ReducerOptions"),
    "REDUCE_PROD": Row(reduce.product, "ReducerOptions"),
    "SOFTMAX": Row(reduce.softmax, "SoftmaxOptions"),
    "SUM": Row(reduce.sum_, "ReducerOptions"),
    "TOPK_V2": Row(reduce.top_k, "TopKV2Options"),
    # Picking and placing by index
    "BUCKETIZE": Row(index.bucketize, "BucketizeOptions"),
    "DYNAMIC_UPDATE_SLICE": Row(index.dynamic_update_slice, "DynamicUpdateSliceOptions"),
    "EMBEDDING_LOOKUP": Row(index.embedding_lookup),
    "EMBEDDING_LOOKUP_SPARSE": Row(index.embedding_lookup_sparse, "EmbeddingLookupSparseOptions"),
    "GATHER": Row(index.gather, "GatherOptions"),
    "GATHER_ND": Row(index.gather_nd, "GatherNdOptions"),
    "MATRIX_DIAG": Row(index.matrix_diag, "MatrixDiagOptions"),
    "MATRIX_SET_DIAG": Row(index.matrix_set_diag, "MatrixSetDiagOptions"),
    "ONE_HOT": Row(index.one_hot, "OneHotOptions"),
    "REVERSE_SEQUENCE": Row(index.reverse_sequence, "ReverseSequenceOptions"),
    "SCATTER_ND": Row(index.scatter_nd, "ScatterNdOptions"),
    "SEGMENT_SUM": Row(index.segment_sum, "SegmentSumOptions"),
    "SPARSE_TO_DENSE": Row(index.sparse_to_dense, "SparseToDenseOptions"),
    "UNIQUE": Row(index.unique, "UniqueOptions"),
    "UNSORTED_SEGMENT_MAX": Row(index.unsorted_segment("max"), "UnsortedSegmentMaxOptions"),
    "UNSORTED_SEGMENT_MIN": Row(index.unsorted_segment("min"), "UnsortedSegmentMinOptions"),
    "UNSORTED_SEGMENT_PROD": Row(index.unsorted_segment("mul"), "UnsortedSegmentProdOptions"),
    "UNSORTED_SEGMENT_SUM": Row(index.unsorted_segment("add"), "UnsortedSegmentSumOptions"),
    "WHERE": Row(index.where, "WhereOptions"),
    # StableHLO's
    "DILATE": Row(stablehlo.dilate, "DilateOptions"),
    "REDUCE_WINDOW": Row(stablehlo.reduce_window, "ReduceWindowOptions"),
    "STABLEHLO_ADD": Row(math.plain(ops.Add())),
    "STABLEHLO_GATHER": Row(stablehlo_index.gather, "StablehloGatherOptions"),
    "STABLEHLO_MAXIMUM": Row(math.plain(ops.Maximum())),
    "STABLEHLO_MINIMUM": Row(math.plain(ops.Minimum())),
    "STABLEHLO_MULTIPLY": Row(math.plain(ops.Mul())),
    "STABLEHLO_PAD": Row(stablehlo.pad, "StablehloPadOptions"),
    "STABLEHLO_REDUCE_WINDOW": Row(stablehlo.reduce_region, "StablehloReduceWindowOptions"),
    "STABLEHLO_RNG_BIT_GENERATOR": Row(random.bits, "StablehloRngBitGeneratorOptions"),
    "STABLEHLO_SCATTER": Row(stablehlo_index.scatter, "StablehloScatterOptions"),
    "STABLEHLO_SHIFT_LEFT": Row(math.binary(ops.LeftShift()), "StablehloShiftLeftOptions"),
    # Types
    "CAST": Row(math.cast, "CastOptions"),
    "FAKE_QUANT": Row(math.fake_quant, "FakeQuantOptions"),
    "DEQUANTIZE": Row(math.dequantize, "DequantizeOptions"),
    "QUANTIZE": Row(math.quantize, "QuantizeOptions"),
    # Recurrent
    "BIDIRECTIONAL_SEQUENCE_LSTM": Row(
        recurrent.bidirectional_lstm, "BidirectionalSequenceLSTMOptions"
    ),
    "BIDIRECTIONAL_SEQUENCE_RNN": Row(
        recurrent.bidirectional_rnn, "BidirectionalSequenceRNNOptions"
    ),
    "LSTM": Row(recurrent.lstm, "LSTMOptions"),
    "RNN": Row(recurrent.rnn, "RNNOptions"),
    "SVDF": Row(recurrent.svdf, "SVDFOptions"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Row(
        recurrent.sequence_lstm, "UnidirectionalSequenceLSTMOptions"
    ),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Row(recurrent.sequence_rnn, "SequenceRNNOptions"),
    # Boxes
    "NON_MAX_SUPPRESSION_V4": Row(detection.non_max_suppression_v4, "NonMaxSuppressionV4Options"),
    "NON_MAX_SUPPRESSION_V5": Row(detection.non_max_suppression_v5, "NonMaxSuppressionV5Options"),
    "CUSTOM:PosenetDecoderOp": Row(poses),
    "CUSTOM:TFLite_Detection_PostProcess": Row(detection.detections),
    # Speech front ends
    "CUSTOM:AudioSpectrogram": Row(audio.audio_spectrogram),
    "CUSTOM:Mfcc": Row(audio.mfcc),
    "CUSTOM:SignalDelay": Row(stream.delay),
    "CUSTOM:SignalEnergy": Row(signal.energy),
    "CUSTOM:SignalFftAutoScale": Row(signal.auto_scale),
    "CUSTOM:SignalFilterBank": Row(signal.filter_bank),
    "CUSTOM:SignalFilterBankLog": Row(signal.logarithm),
    "CUSTOM:SignalFilterBankSpectralSubtraction": Row(stream.spectral_subtraction),
    "CUSTOM:SignalFilterBankSquareRoot": Row(signal.square_root),
    "CUSTOM:SignalFramer": Row(stream.framer),
    "CUSTOM:SignalIrfft": Row(signal.fourier(True)),
    "CUSTOM:SignalOverlapAdd": Row(stream.overlap_add),
    "CUSTOM:SignalPCAN": Row(signal.automatic_gain),
    "CUSTOM:SignalRfft": Row(signal.fourier(False)),
    "CUSTOM:SignalStacker": Row(stream.stacker),
    "CUSTOM:SignalWindow": Row(signal.window),
    # MediaPipe's
    "CUSTOM:Landmarks2TransformMatrix": Row(mediapipe.transform_matrix),
    "CUSTOM:MaxPoolingWithArgmax2D": Row(mediapipe.max_pool_with_argmax),
    "CUSTOM:MaxUnpooling2D": Row(mediapipe.max_unpool),
    "CUSTOM:TransformLandmarks": Row(mediapipe.transform_landmarks),
    "CUSTOM:TransformTensorBilinear": Row(mediapipe.transform_tensor),
    # Moving data
    "BATCH_TO_SPACE_ND": Row(shape.batch_to_space, "BatchToSpaceNDOptions"),
    "BROADCAST_ARGS": Row(shape.broadcast_args),
    "BROADCAST_TO": Row(shape.broadcast_to, "BroadcastToOptions"),
    "CONCATENATION": Row(shape.concatenation, "ConcatenationOptions"),
    "DEPTH_TO_SPACE": Row(shape.depth_to_space, "DepthToSpaceOptions"),
    "EXPAND_DIMS": Row(shape.expand_dims, "ExpandDimsOptions"),
    "FILL": Row(shape.fill, "FillOptions"),
    "MIRROR_PAD": Row(shape.mirror_pad, "MirrorPadOptions"),
    "PACK": Row(shape.pack, "PackOptions"),
    "PAD": Row(shape.pad, "PadOptions"),
    "PADV2": Row(shape.pad_v2, "PadV2Options"),
    "RANGE": Row(shape.arange, "RangeOptions"),
    "RANK": Row(shape.rank_of, "RankOptions"),
    "RESHAPE": Row(shape.reshape, "ReshapeOptions"),
    "RESIZE_BILINEAR": Row(shape.resize_bilinear, "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": Row(shape.resize_nearest, "ResizeNearestNeighborOptions"),
    "REVERSE_V2": Row(shape.reverse, "ReverseV2Options"),
    "SHAPE": Row(shape.shape_of, "ShapeOptions"),
    "SLICE": Row(shape.slice_, "SliceOptions"),
    "SPACE_TO_BATCH_ND": Row(shape.space_to_batch, "SpaceToBatchNDOptions"),
    "SPACE_TO_DEPTH": Row(shape.space_to_depth, "SpaceToDepthOptions"),
    "SPLIT": Row(shape.split, "SplitOptions"),
    "SPLIT_V": Row(shape.split_v, "SplitVOptions"),
    "SQUEEZE": Row(shape.squeeze, "SqueezeOptions"),
    "STRIDED_SLICE": Row(shape.strided_slice, "StridedSliceOptions"),
    "TILE": Row(shape.tile, "TileOptions"),
    "TRANSPOSE": Row(shape.transpose, "TransposeOptions"),
    "UNPACK": Row(shape.unpack, "UnpackOptions"),
    "ZEROS_LIKE": Row(shape.zeros_like, "ZerosLikeOptions"),
}
