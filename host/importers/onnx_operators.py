"""One row per ONNX operator: the function that emits its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgekit.host.graph import ops
from edgekit.host.importers import onnx_attention as attention
from edgekit.host.importers import onnx_cache as cache
from edgekit.host.importers import onnx_control as control
from edgekit.host.importers import onnx_conv as conv
from edgekit.host.importers import onnx_einsum as einsum
from edgekit.host.importers import onnx_fourier as fourier
from edgekit.host.importers import onnx_functions as functions
from edgekit.host.importers import onnx_fused as fused
from edgekit.host.importers import onnx_fused_attention as fused_attention
from edgekit.host.importers import onnx_index as index
from edgekit.host.importers import onnx_lengths as lengths
from edgekit.host.importers import onnx_loss as loss
from edgekit.host.importers import onnx_math as math
from edgekit.host.importers import onnx_order as order
from edgekit.host.importers import onnx_place as place
from edgekit.host.importers import onnx_pool as pool
from edgekit.host.importers import onnx_product as product
from edgekit.host.importers import onnx_qlinear as qlinear
from edgekit.host.importers import onnx_quant as quant
from edgekit.host.importers import onnx_recurrent as recurrent
from edgekit.host.importers import onnx_reduce as reduce
from edgekit.host.importers import onnx_resize as resize
from edgekit.host.importers import onnx_sample as sample
from edgekit.host.importers import onnx_sequence as sequence
from edgekit.host.importers import onnx_shape as shape
from edgekit.host.importers import onnx_signal as signal
from edgekit.host.importers import onnx_volume as volume
from edgekit.host.importers.onnx_call import Call
from edgekit.host.importers.onnx_dynamic import FUSED_CONV, dynamic_conv
from edgekit.host.importers.onnx_types import TensorList, Value

Row = Callable[[Call], Value | Sequence[Value | None] | None]

ROWS: dict[str, Row] = {
    # Convolutions and pools
    "AveragePool": pool.average_pool,
    "BatchNormalization": conv.batch_normalization,
    "Conv": volume.conv,
    "ConvTranspose": volume.conv_transpose,
    "DeformConv": sample.deform_conv,
    "GlobalAveragePool": pool.global_average_pool,
    "GlobalLpPool": pool.global_lp_pool,
    "GlobalMaxPool": pool.global_max_pool,
    "LpPool": pool.lp_pool,
    "MaxPool": quant.of_codes(pool.max_pool),
    "MaxUnpool": pool.max_unpool,
    # Products
    "Attention": attention.attention,
    "CausalConvWithState": cache.causal_conv_with_state,
    "LinearAttention": cache.linear_attention,
    "RotaryEmbedding": cache.rotary_embedding,
    "TensorScatter": cache.tensor_scatter,
    "Einsum": einsum.einsum,
    "Gemm": product.gemm,
    "MatMul": product.matmul,
    # Control flow, sequences
    "ConcatFromSequence": sequence.concat,
    "If": control.if_,
    "Loop": control.loop,
    "Optional": sequence.optional,
    "OptionalGetElement": sequence.get_element,
    "OptionalHasElement": sequence.has_element,
    "Scan": control.scan,
    "SequenceAt": sequence.at,
    "SequenceConstruct": sequence.construct,
    "SequenceEmpty": lambda _: TensorList(()),
    "SequenceErase": sequence.erase,
    "SequenceInsert": sequence.insert,
    "SequenceLength": sequence.length,
    "SequenceMap": sequence.sequence_map,
    "SplitToSequence": sequence.split,
    # Recurrent
    "GRU": recurrent.gru,
    "LSTM": recurrent.lstm,
    "RNN": recurrent.rnn,
    # Quantized
    "ConvInteger": quant.conv_integer,
    "DequantizeLinear": quant.dequantize_linear,
    "DynamicQuantizeLinear": quant.dynamic_quantize_linear,
    "MatMulInteger": quant.matmul_integer,
    "QLinearConv": quant.qlinear_conv,
    "QLinearMatMul": quant.qlinear_matmul,
    "QuantizeLinear": quant.quantize_linear,
    # Functions of one operand
    "Abs": math.function(ops.Abs()),
    "Acos": math.function(ops.Acos()),
    "Acosh": math.function(ops.Acosh()),
    "Asin": math.function(ops.Asin()),
    "Asinh": math.function(ops.Asinh()),
    "Atan": math.function(ops.Atan()),
    "Atanh": math.function(ops.Atanh()),
    "BitwiseNot": math.function(ops.BitwiseNot()),
    "Ceil": math.function(ops.Ceil()),
    "Celu": math.celu,
    "Clip": math.clip,
    "Cos": math.function(ops.Cos()),
    "Cosh": math.function(ops.Cosh()),
    "Elu": math.elu,
    "Erf": math.function(ops.Erf()),
    "Exp": math.function(ops.Exp()),
    "Floor": math.function(ops.Floor()),
    "Gelu": math.gelu,
    "HardSigmoid": math.hard_sigmoid,
    "HardSwish": math.hard_swish,
    "IsInf": functions.is_inf,
    "IsNaN": functions.is_nan,
    "LeakyRelu": math.leaky_relu,
    "Log": math.function(ops.Log()),
    "Mish": math.mish,
    "Neg": math.function(ops.Neg()),
    "Not": math.function(ops.Not()),
    "Reciprocal": math.function(ops.Reciprocal()),
    "Relu": math.relu,
    "Round": math.function(ops.RoundEven()),
    "Selu": math.selu,
    "Shrink": functions.shrink,
    "Sigmoid": math.function(ops.Logistic()),
    "Sign": math.function(ops.Sign()),
    "Sin": math.function(ops.Sin()),
    "Sinh": math.function(ops.Sinh()),
    "Softplus": math.function(ops.Softplus()),
    "Softsign": math.softsign,
    "Sqrt": math.function(ops.Sqrt()),
    "Swish": math.swish,
    "Tan": math.function(ops.Tan()),
    "Tanh": math.function(ops.Tanh()),
    "ThresholdedRelu": math.thresholded_relu,
    # Functions of several operands
    "Add": math.binary(ops.Add()),
    "And": math.logical(ops.And(), False),
    "BitShift": functions.bit_shift,
    "BitwiseAnd": math.binary(ops.BitwiseAnd()),
    "BitwiseOr": math.binary(ops.BitwiseOr()),
    "BitwiseXor": math.binary(ops.BitwiseXor()),
    "Div": math.div,
    "Equal": math.binary(ops.Equal()),
    "Greater": math.binary(ops.Less(), swapped=True),
    "GreaterOrEqual": math.binary(ops.LessOrEqual(), swapped=True),
    "Less": math.binary(ops.Less()),
    "LessOrEqual": math.binary(ops.LessOrEqual()),
    "Max": math.variadic(ops.Maximum()),
    "Mean": math.mean_of,
    "Min": math.variadic(ops.Minimum()),
    "Mod": math.modulo,
    "Mul": math.binary(ops.Mul()),
    "Or": math.logical(ops.Or(), True),
    "PRelu": math.prelu,
    "Pow": math.power,
    "Sub": math.sub,
    "Sum": math.variadic(ops.Add()),
    "SwiGLU": functions.swiglu,
    "Where": math.where,
    "Xor": math.binary(ops.Xor()),
    # Softmax, normalizations
    "GroupNormalization": reduce.group_normalization,
    "Hardmax": reduce.hardmax,
    "InstanceNormalization": reduce.instance_normalization,
    "LRN": reduce.lrn,
    "LayerNormalization": reduce.layer_normalization,
    "LogSoftmax": reduce.log_softmax,
    "LpNormalization": reduce.lp_normalization,
    "MeanVarianceNormalization": reduce.mean_variance_normalization,
    "RMSNormalization": reduce.rms_normalization,
    "Softmax": reduce.softmax,
    # Losses
    "NegativeLogLikelihoodLoss": loss.negative_log_likelihood_loss,
    "SoftmaxCrossEntropyLoss": loss.softmax_cross_entropy_loss,
    # Reductions
    "ArgMax": reduce.arg_extreme(False),
    "ArgMin": reduce.arg_extreme(True),
    "CumSum": reduce.cum_sum,
    "CumProd": functions.cum_prod,
    "Det": functions.determinant,
    "NonMaxSuppression": lengths.non_max_suppression,
    "NonZero": lengths.non_zero,
    "TopK": order.top_k,
    "Unique": lengths.unique,
    "ReduceL1": reduce.reduce_by(ops.ReduceSum, "abs"),
    "ReduceL2": reduce.reduce_by(ops.ReduceSum, "square", "sqrt"),
    "ReduceLogSum": reduce.reduce_by(ops.ReduceSum, after="log"),
    "ReduceLogSumExp": reduce.reduce_log_sum_exp,
    "ReduceMax": reduce.reduce_by(ops.ReduceMax),
    "ReduceMean": reduce.reduce_mean,
    "ReduceMin": reduce.reduce_by(ops.ReduceMin),
    "ReduceProd": reduce.reduce_by(ops.ReduceProduct),
    "ReduceSum": reduce.reduce_by(ops.ReduceSum),
    "ReduceSumSquare": reduce.reduce_by(ops.ReduceSum, "square"),
    # Constants
    "DFT": fourier.dft,
    "STFT": fourier.stft,
    "BlackmanWindow": signal.blackman_window,
    "HammingWindow": signal.hamming_window,
    "HannWindow": signal.hann_window,
    "MelWeightMatrix": signal.mel_weight_matrix,
    # Types
    "BitCast": functions.bit_cast,
    "Cast": math.cast,
    "CastLike": math.cast_like,
    # Moving data
    "AffineGrid": sample.affine_grid,
    "CenterCropPad": place.center_crop_pad,
    "Col2Im": place.columns_to_image,
    "Compress": lengths.compress,
    "Concat": quant.of_codes(shape.concat, every=True),
    "Constant": shape.constant,
    "ConstantOfShape": shape.constant_of_shape,
    "DepthToSpace": quant.of_codes(shape.depth_to_space),
    "Dropout": shape.dropout,
    "Expand": quant.of_codes(shape.expand),
    "EyeLike": shape.eye_like,
    "Flatten": quant.of_codes(shape.flatten),
    "Gather": index.gather,
    "GatherElements": index.gather_elements,
    "GatherND": index.gather_nd,
    "GridSample": sample.grid_sample,
    "Identity": shape.identity,
    "OneHot": index.one_hot,
    "Pad": quant.pad_of_codes(shape.pad),
    "Range": lengths.arange,
    "Reshape": quant.of_codes(shape.reshape),
    "Resize": resize.resize,
    "ReverseSequence": place.reverse_sequence,
    "RoiAlign": sample.roi_align,
    "Scatter": index.scatter_elements,
    "ScatterElements": index.scatter_elements,
    "ScatterND": index.scatter_nd,
    "Shape": shape.shape_of,
    "Size": shape.size_of,
    "Slice": quant.of_codes(lengths.slice_),
    "SpaceToDepth": quant.of_codes(shape.space_to_depth),
    "Split": shape.split,
    "Squeeze": quant.of_codes(shape.squeeze),
    "Tile": quant.of_codes(shape.tile),
    "Transpose": quant.of_codes(shape.transpose),
    "Trilu": shape.trilu,
    "Unsqueeze": quant.of_codes(shape.unsqueeze),
    "Upsample": resize.upsample,
    # ONNX Runtime's own
    "SimplifiedLayerNormalization": fused.simplified_layer_norm,
    **{f"com.microsoft:{kind}": row for kind, row in qlinear.QLINEAR.items()},
    **{f"com.microsoft:{kind}": row for kind, row in fused.FUSED.items()},
    **{f"com.microsoft:{kind}": row for kind, row in fused_attention.ATTENTION.items()},
}


MADE: dict[str, Row] = {FUSED_CONV: dynamic_conv}  # operators that stand in no file


def onnx_operators() -> frozenset[str]:
    """ONNX operators that models may use."""
    return frozenset(ROWS)
