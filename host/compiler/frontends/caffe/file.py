"""Reads the two files of a Caffe network into plain records: TEST-phase layers and weights.

The files are untrusted: references between records are checked where they are used.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.caffe.schema import (
    PARAMETERS,
    V1_TYPES,
    binary_net,
    enum_name,
    protobuf,
    text_net,
)
from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.formats import CAFFE_WEIGHTS, caffe_files
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

_TEXT_LIMIT = 16 << 20
_LAYER_LIMIT = 1 << 16
_RANK_LIMIT = 8
_SHOWN = 120


@dataclass(frozen=True, eq=False)
class FileLayer:
    """`kind`: the type under its current name; `shown`: the layer as messages name it;
    `parameters`: the message with its attributes, None for a type without any."""

    name: str
    kind: str
    shown: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    parameters: Any


@dataclass(frozen=True)
class CaffeInput:
    """`shape` is None if the file does not give it."""

    name: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class FileNet:
    inputs: tuple[CaffeInput, ...]
    layers: tuple[FileLayer, ...]
    weights: Mapping[str, tuple[Array, ...]]
    weights_file: str  # as shown in messages


def read_caffe(path: Path) -> FileNet:
    """Raises `InputError` with one line if the files are not a readable Caffe network."""
    text, weights = caffe_files(path)
    with _name_file_in_errors(text, path):
        net = _read_text(text)
    wanted = _test_phase_layers(net)
    inputs = _legacy_inputs(net)
    layers = []
    for index, layer in enumerate(wanted):
        kind = _layer_type(layer)
        shown = f"{index} ({shown_name(kind)} {shown_name(layer.name)})"
        if kind == "Input":
            inputs += _layer_inputs(layer, shown)
            continue
        field = PARAMETERS.get(kind)
        parameters = getattr(layer, field) if field else None
        layers.append(
            FileLayer(layer.name, kind, shown, tuple(layer.bottom), tuple(layer.top), parameters)
        )
    with _name_file_in_errors(weights or text, path):
        blobs = {} if weights is None else _read_weights(weights)
    shown = text.with_suffix(CAFFE_WEIGHTS).name if weights is None else weights.name
    return FileNet(tuple(inputs), tuple(layers), blobs, shown)


@contextlib.contextmanager
def _name_file_in_errors(file: Path, given: Path) -> Iterator[None]:
    """Adds the name of `file` to errors unless it is `given`, which they already name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file.name}: {error}" if file != given else str(error)) from error


def _read_text(path: Path) -> Any:
    content = read_model_file(path)
    if len(content) > _TEXT_LIMIT:
        raise InputError(f"expected at most {_TEXT_LIMIT >> 20} MiB of text, found more")
    library, net = protobuf(), text_net()()
    try:
        text = content.decode()
        # Fields used only in training or by unsupported layers are not in the schema.
        library.text_format.Parse(text, net, allow_unknown_field=True)
    except (UnicodeDecodeError, RecursionError):
        raise InputError("expected the text of a Caffe network, found other bytes") from None
    except library.text_format.ParseError as error:
        raise InputError(
            f"expected the text of a Caffe network, found {_parser_message(error)}"
        ) from None
    if len(net.layer) + len(net.layers) > _LAYER_LIMIT:
        raise InputError(f"expected at most {_LAYER_LIMIT} layers, found more")
    if net.layer and net.layers:
        raise InputError("expected either `layer` or `layers`, found both")
    if not net.layer and not net.layers:
        raise InputError(
            "expected a network with layers, found none; give the network's text, not the solver's"
        )
    return net


def _parser_message(error: Any) -> str:
    """The parser's message without its source line."""
    reason = "".join(c if c.isprintable() else " " for c in str(error)).rpartition("': ")[2]
    return f"{reason[:_SHOWN].strip().rstrip('.')} (line {error.GetLine() or 'unknown'})"


def _test_phase_layers(net: Any) -> list[Any]:
    """The layers of the TEST phase."""
    found = []
    for layer in (*net.layer, *net.layers):
        rules, excluded = layer.include, layer.exclude
        if rules and excluded:
            raise InputError(
                f"layer {shown_name(layer.name)}: expected include or exclude rules, found both"
            )
        if rules and not any(_matches_state(r, net.state) for r in rules):
            continue
        if not any(_matches_state(r, net.state) for r in excluded):
            found.append(layer)
    return found


def _matches_state(rule: Any, state: Any) -> bool:
    if rule.HasField("phase") and enum_name(rule, "phase") != "TEST":
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)


def _layer_type(layer: Any) -> str:
    """The type under its current name."""
    if layer.DESCRIPTOR.name == "Layer":
        return str(layer.type)
    if layer.HasField("layer"):
        raise InputError(
            f"layer {shown_name(layer.layer.name)}: expected a network of 2014 or newer, found "
            "Caffe's V0 format (layers { layer { ... } }); upgrade it with upgrade_net_proto_text"
        )
    return V1_TYPES[enum_name(layer, "type")]


def _legacy_inputs(net: Any) -> list[CaffeInput]:
    """Inputs declared by the network itself rather than by Input layers."""
    names, dims = list(net.input), [int(d) for d in net.input_dim]
    shapes = [tuple(int(d) for d in s.dim) for s in net.input_shape]
    if dims:
        shapes = [tuple(dims[i : i + 4]) for i in range(0, len(dims), 4)]
    if shapes and (len(shapes) != len(names) or (dims and len(dims) != 4 * len(names))):
        raise InputError(
            f"expected a shape for each of {len(names)} inputs, found {len(shapes)}"
            + (f" ({len(dims)} dimensions)" if dims else "")
        )
    return [CaffeInput(n, shapes[i] if shapes else None) for i, n in enumerate(names)]


def _layer_inputs(layer: Any, shown: str) -> list[CaffeInput]:
    shapes = [tuple(int(d) for d in s.dim) for s in layer.input_param.shape]
    if len(shapes) not in (0, 1, len(layer.top)):
        raise InputError(
            f"layer {shown}: expected 1 shape or {len(layer.top)}, found {len(shapes)}"
        )
    of_all = shapes[0] if len(shapes) == 1 else None
    return [CaffeInput(n, of_all or (shapes[i] if shapes else None))
            for i, n in enumerate(layer.top)]  # fmt: skip


def _read_weights(path: Path) -> dict[str, tuple[Array, ...]]:
    """The blobs of each layer, by layer name."""
    net = binary_net()()
    try:
        net.ParseFromString(read_model_file(path))
    except protobuf().message.DecodeError as error:
        raise InputError(
            f"expected the weights of a Caffe network, found bytes that cannot be "
            f"decoded ({type(error).__name__}); fetch the file again"
        ) from None
    found: dict[str, tuple[Array, ...]] = {}
    for layer in (*net.layer, *net.layers):
        if len(layer.blobs):
            shown = f"layer {shown_name(layer.name)}, blob"
            blobs = (_read_blob(b, f"{shown} {i}") for i, b in enumerate(layer.blobs))
            found[layer.name] = tuple(blobs)
    if not net.layer and not net.layers:
        raise InputError(
            "expected the weights of a Caffe network, found none; fetch the file again"
        )
    return found


def _read_blob(blob: Any, shown: str) -> Array:
    """A blob's values as f32."""
    parts, kind = (blob.data, "<f4") if len(blob.data) else (blob.double_data, "<f8")
    content = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(content) % np.dtype(kind).itemsize:
        raise InputError(f"{shown}: expected whole numbers of {kind}, found {len(content)} bytes")
    values = np.frombuffer(content, kind)
    if blob.HasField("shape"):
        shape = tuple(int(d) for d in blob.shape.dim)
    else:
        shape = (blob.num, blob.channels, blob.height, blob.width)
    if len(shape) > _RANK_LIMIT or min(shape, default=1) < 0 or math.prod(shape) != values.size:
        raise InputError(
            f"{shown}: expected {list(shape)[:_RANK_LIMIT]} values, found {values.size}"
        )
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False).reshape(shape)
