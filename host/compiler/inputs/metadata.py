"""Reads the metadata of .tflite files: pixel scaling and sample rates of inputs, labels of outputs,
and the quantization loss, which .onnx files have in their metadata_props.

The metadata is a separate flatbuffer inside the model's; associated files, like labels, are in a
zip archive appended to the model. The model runs without it, and it is not trusted: unreadable
parts are ignored.
"""

from __future__ import annotations

import itertools
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flatbuffers import encode, number_types
from flatbuffers.table import Table

from edgekit.device.runtime.agent.specs import LossSpec, loss_of
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.sidecars import is_label_file
from edgekit.host.errors import EdgekitError

_NAME = b"TFLITE_METADATA"
_LOSS = "edgekit.loss"
_SUBGRAPHS = 3  # field of ModelMetadata
_CUSTOM = 9  # field of SubGraphMetadata
_MOST_ENTRIES = 4096
_MOST_LABEL_BYTES = 4 << 20
_MOST_FILES = 16
_NORMALIZATION = 1  # value of ProcessUnitOptions
_AUDIO = 4  # value of ContentProperties
_LABELS = (2, 3)  # values of AssociatedFileType: axis labels, value labels
_ENGLISH = "en"
_OTHERS = itertools.repeat(False)
DAMAGED = (struct.error, LookupError, ValueError, TypeError, OverflowError, AttributeError)
BAD_ARCHIVE = (
    OSError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    zlib.error,
    *DAMAGED,
)


@dataclass(frozen=True)
class InputNotes:
    """Metadata of one input. A real value is (pixel - mean) / scale, with values per channel or a
    single one for all."""

    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    sample_rate: int | None = None


@dataclass(frozen=True)
class ModelNotes:
    """Metadata of inputs, and labels of outputs, in the model's order; empty if unknown."""

    inputs: tuple[InputNotes, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Attached:
    """Raw metadata of a .tflite file, for `write_tflite` of a derived model: `metadata` by name,
    and the associated `files`."""

    metadata: Mapping[str, bytes] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def read_attached(path: Path) -> Attached:
    """Read the raw metadata of a .tflite file (files up to 4 MiB); empty for other formats."""
    if model_format(path) != "tflite":
        return Attached()
    try:
        root = _read_metadata(path.read_bytes())
    except DAMAGED:
        return Attached()
    return Attached(
        {} if root is None else {_NAME.decode(): bytes(root.Bytes)}, _read_small_files(path)
    )


def model_format(path: Path) -> str:
    """The format of a model file, whatever its name; empty for other files."""
    try:
        return format_of(path)
    except EdgekitError:
        return ""


def read_notes(path: Path) -> ModelNotes:
    """Read the metadata of a .tflite file, and the labels of an .onnx file; empty for other
    formats."""
    kind = model_format(path)
    if kind == "onnx":
        from edgekit.host.compiler.frontends.onnx.labels import onnx_labels

        return ModelNotes(labels=onnx_labels(path))
    if kind != "tflite":
        return ModelNotes()
    try:
        root = _read_metadata(path.read_bytes())
        if root is None:
            return ModelNotes(labels=_packed_labels(path))
        (graph,) = get_tables(root, _SUBGRAPHS)[:1]
        inputs = tuple(_input_notes(tensor) for tensor in get_tables(graph, 2))
        inputs = tuple(map(_of_type, inputs, itertools.chain(_takes_bytes(path), _OTHERS)))
        names = [_label_file(tensor) for tensor in get_tables(graph, 3)]
    except DAMAGED:
        return ModelNotes()
    return ModelNotes(inputs, tuple(_read_labels(path, name) for name in names))


def read_custom(path: Path, name: str) -> bytes | None:
    """Return the custom metadata of a .tflite file with the given name, or None."""
    if model_format(path) != "tflite":
        return None
    try:
        root = _read_metadata(path.read_bytes())
        if root is None:
            return None
        (graph,) = get_tables(root, _SUBGRAPHS)[:1]
        for entry in get_tables(graph, _CUSTOM):
            at = field_offset(entry, 1) if _get_string(entry, 0) == name else 0
            if at:
                start, count = entry.Vector(at - entry.Pos), entry.VectorLen(at - entry.Pos)
                return bytes(entry.Bytes[start : start + count])
    except DAMAGED:
        pass
    return None


def read_entry(path: Path, name: str) -> bytes | None:
    """Return the metadata buffer of a .tflite file with the given name, or None."""
    if model_format(path) != "tflite":
        return None
    try:
        return _find_entry(path.read_bytes(), name.encode())
    except DAMAGED:
        return None


def label_lines(data: bytes) -> tuple[str, ...]:
    """Return one label per line; raises ValueError if the data is not text."""
    return tuple(line.strip() for line in data.decode("utf-8-sig").splitlines())


def _read_metadata(data: bytes) -> Table | None:
    found = _find_entry(data, _NAME)
    if found is None:
        return None
    return Table(found, encode.Get(number_types.UOffsetTFlags.packer_type, found, 0))


def _find_entry(data: bytes, name: bytes) -> bytes | None:
    import tflite  # slow, and most commands read no metadata

    model = tflite.Model.GetRootAs(data)
    for i in range(min(model.MetadataLength(), _MOST_ENTRIES)):
        entry = model.Metadata(i)
        if entry.Name() == name:
            return bytes(model.Buffers(entry.Buffer()).DataAsNumpy().tobytes())
    return None


def _input_notes(tensor: Table) -> InputNotes:
    units = [_get_union(unit, 0, _NORMALIZATION) for unit in get_tables(tensor, 4)]
    scaling = next((unit for unit in units if unit is not None), None)
    content = get_table(tensor, 3)
    audio = _get_union(content, 0, _AUDIO) if content else None
    rate = get_scalar(audio, 0, number_types.Uint32Flags) if audio else 0
    if scaling is None:
        return InputNotes(sample_rate=rate or None)
    return InputNotes(_get_floats(scaling, 0), _get_floats(scaling, 1), rate or None)


def _takes_bytes(path: Path) -> Iterator[bool]:
    """Whether inputs are bytes, in order."""
    import tflite

    model = tflite.Model.GetRootAs(path.read_bytes())
    if not model.SubgraphsLength():
        return
    graph = model.Subgraphs(0)
    for i in range(min(graph.InputsLength(), _MOST_ENTRIES)):
        yield graph.Tensors(graph.Inputs(i)).Type() == tflite.TensorType.UINT8


def _of_type(notes: InputNotes, takes_bytes: bool) -> InputNotes:
    """Bytes are pixels as they are, as TensorFlow's and MediaPipe's programs take them: what
    metadata says of their scaling is how the network was trained."""
    return replace(notes, mean=(), scale=()) if takes_bytes else notes


def _label_file(tensor: Table) -> str:
    """Of several, that of an `_ENGLISH` locale or of any: those without one may list identifiers,
    as those of Google's classifiers of AIY do."""
    files = [
        (_get_string(file, 3), _get_string(file, 0))
        for file in get_tables(tensor, 6)
        if get_scalar(file, 2, number_types.Int8Flags) in _LABELS
    ]
    files.sort(key=lambda each: (not each[0].startswith(_ENGLISH), not each[0]))
    return files[0][1] if files else ""


def _read_labels(path: Path, name: str) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            data = file.read(_MOST_LABEL_BYTES + 1)
            return label_lines(data) if len(data) <= _MOST_LABEL_BYTES else ()
    except BAD_ARCHIVE:
        return ()


def _packed_labels(path: Path) -> tuple[tuple[str, ...], ...]:
    """Those of the only file in a model that has files, but no metadata to say what they are."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except BAD_ARCHIVE:
        return ()
    return (_read_labels(path, names[0]),) if len(names) == 1 and is_label_file(names[0]) else ()


def _read_small_files(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            small = [i for i in archive.infolist() if i.file_size <= _MOST_LABEL_BYTES]
            names = [i.filename for i in small[:_MOST_FILES] if not i.is_dir()]
            return {name: archive.read(name) for name in names}
    except BAD_ARCHIVE:
        return {}


def field_offset(table: Table, field: int) -> int:
    """Offset of a field's value; 0 if the field is absent."""
    offset = int(table.Offset(4 + 2 * field))
    return offset and offset + int(table.Pos)


def get_table(table: Table, field: int) -> Table | None:
    at = field_offset(table, field)
    return Table(table.Bytes, table.Indirect(at)) if at else None


def _get_union(table: Table, field: int, kind: int) -> Table | None:
    """Return the table of a union with its type in `field`, if it is of that kind."""
    if get_scalar(table, field, number_types.Uint8Flags) != kind:
        return None
    return get_table(table, field + 1)


def get_tables(table: Table, field: int) -> list[Table]:
    at = field_offset(table, field)
    if not at:
        return []
    offset = at - table.Pos
    start, count = table.Vector(offset), min(table.VectorLen(offset), _MOST_ENTRIES)
    return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]


def _get_floats(table: Table, field: int) -> tuple[float, ...]:
    at = field_offset(table, field)
    if not at:
        return ()
    offset = at - table.Pos
    start, count = table.Vector(offset), min(table.VectorLen(offset), _MOST_ENTRIES)
    return tuple(table.Get(number_types.Float32Flags, start + 4 * i) for i in range(count))


def get_scalar(table: Table, field: int, flags: Any) -> int:
    at = field_offset(table, field)
    return int(table.Get(flags, at)) if at else 0


def _get_string(table: Table, field: int) -> str:
    at = field_offset(table, field)
    return bytes(table.String(at)).decode() if at else ""


def loss_entry(loss: LossSpec) -> Mapping[str, bytes]:
    """Return the metadata entry for `write_tflite` and `write_onnx`."""
    return {_LOSS: json.dumps(asdict(loss), sort_keys=True).encode("ascii")}


def read_loss(path: Path) -> LossSpec | None:
    """Return the loss stored in a model file that could be imported, or None."""
    found = _read_loss_entry(path)
    try:
        return None if found is None else loss_of(json.loads(found), "loss")
    except (ValueError, RecursionError, InputError):
        return None


def _read_loss_entry(path: Path) -> str | bytes | None:
    if model_format(path) != "onnx":
        return read_entry(path, _LOSS)
    from edgekit.host.compiler.frontends.onnx.file import onnx_metadata

    return onnx_metadata(path).get(_LOSS)
