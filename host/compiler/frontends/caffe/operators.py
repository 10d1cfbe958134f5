"""Maps each Caffe layer type to the function that emits its nodes."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.host.compiler.frontends.caffe import boxes, conv, math, shape
from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Tensor

Row = Callable[[CaffeCall], Tensor | list[Tensor]]

ROWS: dict[str, Row] = {
    # Windows
    "Convolution": conv.convolution,
    "ConvolutionDepthwise": conv.convolution,
    "Deconvolution": conv.deconvolution,
    "DepthwiseConvolution": conv.convolution,
    "LRN": conv.lrn,
    "Pooling": conv.pooling,
    # Unary functions
    "AbsVal": math.function(ops.Abs()),
    "BNLL": math.function(ops.Softplus()),
    "Clip": math.clip,
    "Dropout": math.dropout,
    "ELU": math.elu,
    "Exp": math.exp,
    "Log": math.log,
    "PReLU": math.prelu,
    "Power": math.power,
    "ReLU": math.relu,
    "ReLU6": math.function(ops.Clamp(Activation.RELU6)),
    "Sigmoid": math.function(ops.Logistic()),
    "Swish": math.swish,
    "TanH": math.function(ops.Tanh()),
    "Threshold": math.threshold,
    # Functions of several operands
    "Axpy": math.axpy,
    "Bias": math.bias,
    "Eltwise": math.eltwise,
    "InnerProduct": math.inner_product,
    "Scale": math.scale,
    # Normalizations and reductions
    "ArgMax": math.arg_max,
    "BatchNorm": math.batch_norm,
    "MVN": math.mvn,
    "Normalize": math.normalize,
    "Reduction": math.reduction,
    "Softmax": math.softmax,
    # Moving data
    "Concat": shape.concat,
    "Crop": shape.crop,
    "Flatten": shape.flatten,
    "Interp": shape.interp,
    "Permute": shape.permute,
    "Reshape": shape.reshape,
    "ShuffleChannel": shape.shuffle_channel,
    "Slice": shape.slice_,
    "Split": shape.identity,
    "Tile": shape.tile,
    "Upsample": shape.upsample,
    # Detectors
    "DetectionOutput": boxes.detection_output,
    "PriorBox": boxes.prior_box,
}

# Layers used only in training: their inputs become outputs of the network.
DROPPED = frozenset({
    "Accuracy", "ContrastiveLoss", "DetectionEvaluate", "EuclideanLoss", "HingeLoss",
    "InfogainLoss", "MultiBoxLoss", "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss",
    "SmoothL1Loss", "SoftmaxWithLoss",
})  # fmt: skip
# Layers whose inputs are discarded.
SWALLOWED = frozenset({"HDF5Output", "Silence"})
# Layers that read files of a training set.
DATA = frozenset({
    "AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "MemoryData", "VideoData",
    "WindowData",
})  # fmt: skip


def caffe_operators() -> frozenset[str]:
    """The supported Caffe layer types."""
    return frozenset({*ROWS, "Input"})
