"""Protobuf schema of Caffe's two files, limited to the fields inference needs.

A .prototxt is text and identifies fields by name, so field numbers here only define an order. A
.caffemodel is binary: its numbers are those of caffe.proto, and values are kept as raw bytes. The
protobuf package is imported only here, on first use.
"""

from __future__ import annotations

import functools
from typing import Any

from edgekit.host.common.optional import optional

# Each field: name, type, default; a * after the type means repeated.
_ENUMS = {
    "Phase": "TRAIN TEST",
    "PoolMethod": "MAX AVE STOCHASTIC",
    "EltwiseOp": "PROD SUM MAX",
    "NormRegion": "ACROSS_CHANNELS WITHIN_CHANNEL",
    "RoundMode": "CEIL FLOOR",
    "ReductionOp": "SUM=1 ASUM SUMSQ MEAN",
    "CodeType": "CORNER=1 CENTER_SIZE CORNER_SIZE",
    "LayerType": "NONE ACCURACY BNLL CONCAT CONVOLUTION DATA DROPOUT EUCLIDEAN_LOSS FLATTEN "
    "HDF5_DATA HDF5_OUTPUT IM2COL IMAGE_DATA INFOGAIN_LOSS INNER_PRODUCT LRN "
    "MULTINOMIAL_LOGISTIC_LOSS POOLING RELU SIGMOID SOFTMAX SOFTMAX_LOSS SPLIT TANH WINDOW_DATA "
    "ELTWISE POWER SIGMOID_CROSS_ENTROPY_LOSS HINGE_LOSS MEMORY_DATA ARGMAX THRESHOLD DUMMY_DATA "
    "SLICE MVN ABSVAL SILENCE CONTRASTIVE_LOSS EXP DECONVOLUTION",
}
_WINDOW = "pad {0}, kernel_size {0}, stride {0}, pad_h int, pad_w int, kernel_h int, kernel_w int, "
_WINDOW += "stride_h int, stride_w int, "
_AFFINE = "axis int 1, num_axes int 1, "
_BASE = "base float -1, scale float 1, shift float 0"
_MESSAGES = {
    "Shape": "dim int*",
    "State": "phase Phase TEST, level int 0, stage str*",
    "Rule": "phase Phase, min_level int, max_level int, stage str*, not_stage str*",
    "ArgMax": "out_max_val bool false, top_k int 1, axis int",
    "BatchNorm": "use_global_stats bool, eps float 1e-5, scale_bias bool false",
    "Bias": _AFFINE,
    "Clip": "min float, max float",
    "Concat": "axis int 1, concat_dim int 1",
    "Convolution": "num_output int, bias_term bool true, group int 1, axis int 1, dilation int*, "
    + _WINDOW.format("int*"),
    "Crop": "axis int 2, offset int*",
    "NonMaximum": "nms_threshold float 0.3, top_k int, eta float 1",
    "DetectionOutput": "num_classes int, share_location bool true, background_label_id int 0, "
    "nms_param NonMaximum, code_type CodeType CORNER, variance_encoded_in_target bool false, "
    "keep_top_k int -1, confidence_threshold float",
    "Dropout": "dropout_ratio float 0.5, scale_train bool true",
    "ELU": "alpha float 1",
    "Eltwise": "operation EltwiseOp SUM, coeff float*",
    "Exp": _BASE,
    "Flatten": "axis int 1, end_axis int -1",
    "InnerProduct": "num_output int, bias_term bool true, axis int 1, transpose bool false",
    "Input": "shape Shape*",
    "Interp": "height int, width int, zoom_factor int 1, shrink_factor int 1, pad_beg int 0, "
    "pad_end int 0",
    "LRN": "local_size int 5, alpha float 1, beta float 0.75, norm_region NormRegion, k float 1",
    "Log": _BASE,
    "MVN": "normalize_variance bool true, across_channels bool false, eps float 1e-9",
    "Normalize": "across_spatial bool true, channel_shared bool true, eps float 1e-10",
    "PReLU": "channel_shared bool false",
    "Permute": "order int*",
    "Pooling": "pool PoolMethod, global_pooling bool false, ceil_mode bool true, "
    "round_mode RoundMode, " + _WINDOW.format("int"),
    "Power": "power float 1, scale float 1, shift float 0",
    "PriorBox": "min_size float*, max_size float*, aspect_ratio float*, flip bool true, "
    "clip bool false, variance float*, img_size int, img_h int, img_w int, step float, "
    "step_h float, step_w float, offset float 0.5",
    "ReLU": "negative_slope float 0",
    "Reduction": "operation ReductionOp SUM, axis int 0, coeff float 1",
    "Reshape": "shape Shape, axis int 0, num_axes int -1",
    "Scale": _AFFINE + "bias_term bool false",
    "ShuffleChannel": "group int 1",
    "Slice": "axis int 1, slice_point int*, slice_dim int 1",
    "Softmax": "axis int 1",
    "Swish": "beta float 1",
    "Threshold": "threshold float 0",
    "Tile": "axis int 1, tiles int",
    "Upsample": "scale int 2",
}
_PARTS = ("NonMaximum", "Rule", "Shape", "State")  # parts of other messages
_FIELDS = {
    "ArgMax": "argmax_param",
    "BatchNorm": "batch_norm_param",
    "DetectionOutput": "detection_output_param",
    "InnerProduct": "inner_product_param",
    "Normalize": "norm_param",
    "PriorBox": "prior_box_param",
    "ShuffleChannel": "shuffle_channel_param",
}
# The attribute field of each layer type.
PARAMETERS = {
    kind: _FIELDS.get(kind, f"{kind.lower()}_param") for kind in _MESSAGES if kind not in _PARTS
}
# V1 layer types whose current name is not the V1 name in title case without underscores.
_V1_NAMES = {
    "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "RELU": "ReLU", "TANH": "TanH",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
} | {n: n for n in ("BNLL", "LRN", "MVN")}  # fmt: skip
V1_TYPES = {
    name: _V1_NAMES.get(name, name.title().replace("_", "").replace("Hdf5", "HDF5"))
    for name in _ENUMS["LayerType"].split()
}
_LAYER = "name str, {}, bottom str*, top str*, include Rule*, exclude Rule*, " + ", ".join(
    f"{field} {kind}" for kind, field in PARAMETERS.items()
)
PARAMETERS |= dict.fromkeys(
    ("Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise"), "convolution_param"
)
_TEXT = _MESSAGES | {
    "V0Layer": "name str",
    "Layer": _LAYER.format("type str"),
    "V1Layer": _LAYER.format("type LayerType, layer V0Layer"),
    "Net": "name str, input str*, input_shape Shape*, input_dim int*, state State, "
    "layer Layer*, layers V1Layer*",
}
_BINARY_PACKAGE = "caffe_binary"
# Packed numbers are declared as bytes, their wire format, so that they never become Python numbers.
_BINARY = {
    "Shape": "dim int* 1",
    "Blob": "num int 1, channels int 2, height int 3, width int 4, data bytes* 5, shape Shape 7, "
    "double_data bytes* 8",
    "Layer": "name str 1, type str 2, blobs Blob* 7",
    "V1Layer": "layer bytes 1, name str 4, blobs Blob* 6",
    "Net": "name str 1, layers V1Layer* 2, layer Layer* 100",
}


def protobuf() -> Any:
    """The protobuf modules in use."""
    names = ("descriptor_pb2", "descriptor_pool", "message", "message_factory", "text_format")
    return optional("google.protobuf", *(f"google.protobuf.{name}" for name in names))[0]


@functools.cache
def text_net() -> Any:
    """The message type of a .prototxt."""
    return _build_net_class("caffe_text", _TEXT)


@functools.cache
def binary_net() -> Any:
    """The message type of a .caffemodel."""
    return _build_net_class(_BINARY_PACKAGE, _BINARY)


_SCALARS = {"int": "TYPE_INT64", "float": "TYPE_FLOAT", "bool": "TYPE_BOOL"}
_SCALARS |= {"str": "TYPE_STRING", "bytes": "TYPE_BYTES"}


def _build_net_class(package: str, messages: dict[str, str]) -> Any:
    library = protobuf()
    file = library.descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto2"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for index, words in enumerate(filter(None, (f.split() for f in fields.split(",")))):
            _add_field(library.descriptor_pb2, package, message, words, index + 1)
    pool = library.descriptor_pool.DescriptorPool()
    pool.Add(file)
    return library.message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Net"))


def _add_field(records: Any, package: str, message: Any, words: list[str], number: int) -> None:
    """`words`: name, type, default; in binary messages the field number instead of a default."""
    name, kind, *rest = words
    types, repeated = records.FieldDescriptorProto, kind.endswith("*")
    kind = kind.rstrip("*")
    field = message.field.add(name=name, number=number)
    field.label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
    if package == _BINARY_PACKAGE:
        field.number = int(rest.pop())
    if rest:
        field.default_value = rest[0]
    if kind in _SCALARS:
        field.type = getattr(types, _SCALARS[kind])
    elif kind in _ENUMS:
        # Nested in the message, because enum value names must be unique only there.
        field.type, field.type_name = types.TYPE_ENUM, f".{package}.{message.name}.{kind}"
        _add_enum(message, kind)
    else:
        field.type, field.type_name = types.TYPE_MESSAGE, f".{package}.{kind}"


def _add_enum(message: Any, kind: str) -> None:
    enum, number = message.enum_type.add(name=kind), 0
    for value in _ENUMS[kind].split():
        label, _, given = value.partition("=")
        number = int(given or number)
        enum.value.add(name=label, number=number)
        number += 1


def enum_name(record: Any, field: str) -> str:
    """The name of an enum field's value."""
    values = record.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(record, field)].name)
