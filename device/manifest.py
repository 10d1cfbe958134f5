"""The manifest of a bundle: the one definition that host and board share.

Parsing is strict: unknown or missing keys, wrong types, unsafe paths, sizes that do not fit
together and a wrong id are refused, because everything after it trusts these values.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from edgekit.device.dtypes import BY_NAME, count
from edgekit.device.errors import InputError

SCHEMA = "edgekit.bundle/1"
SCHEMA_MARGINS = "edgekit.bundle/2"  # the same with golden.margins
MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
LIBRARY = "model.so"
WEIGHTS = "weights.bin"
RUNTIME = "runtime.pyz"

NOT_COMPARED = 255  # in a file of margins

MAX_MANIFEST_BYTES = 4 << 20
_MAX_BYTES = 1 << 40
_MAX_RANK = 8
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{16}")

_DESCRIPTION_KEYS = (
    "name",
    "inputs",
    "outputs",
    "operators",
    "arena_bytes",
    "state_bytes",
    "weights_bytes",
    "simd",
)

T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """One input or output; `scale` and `zero_point` are None if it is not quantized."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    scale: Optional[float]
    zero_point: Optional[int]

    @property
    def bytes(self) -> int:
        return BY_NAME[self.dtype].bytes * count(self.shape)


@dataclass(frozen=True)
class OperatorSpec:
    """One operator of the compiled model, in running order."""

    name: str
    op: str
    kernel: str


@dataclass(frozen=True)
class ModelRef:
    name: str
    sha256: str


@dataclass(frozen=True)
class BoardNeeds:
    """What a board must have: `machine` as uname prints it; `vlen_bits` 0 if no RVV is used."""

    profile: str
    machine: str
    features: Tuple[str, ...]
    vlen_bits: int


@dataclass(frozen=True)
class Memory:
    arena_bytes: int
    state_bytes: int
    weights_bytes: int

    @property
    def total(self) -> int:
        return self.arena_bytes + self.state_bytes + self.weights_bytes


@dataclass(frozen=True)
class Description:
    """What a compiled model says of itself through ek_describe."""

    name: str
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    operators: Tuple[OperatorSpec, ...]
    memory: Memory
    simd: str


@dataclass(frozen=True)
class GoldenFiles:
    """Raw little-endian arrays; tolerances[i] = allowed max |difference| of output i.

    `margins` are empty, or per output None or a file of one byte per element: a code c allows it
    2^-c of the tolerance, and NOT_COMPARED anything.
    """

    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    tolerances: Tuple[float, ...]
    margins: Tuple[Optional[str], ...] = ()

    def margin(self, output: int) -> Optional[str]:
        return self.margins[output] if self.margins else None


@dataclass(frozen=True)
class FileEntry:
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    id: str
    kit_version: str
    counter: int
    model: ModelRef
    board: BoardNeeds
    memory: Memory
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    operators: Tuple[OperatorSpec, ...]
    simd: str
    golden: GoldenFiles
    files: Tuple[FileEntry, ...]

    def to_json(self) -> bytes:
        """The canonical text: sorted keys, one line, the same bytes on every machine."""
        return _canonical(self._document())

    def with_id(self) -> Manifest:
        """The same manifest carrying the id that its content asks for."""
        return replace(self, id=content_id(self._document()))

    def _document(self) -> Dict[str, Any]:
        """Without margins it is what runtimes that know of none can read."""
        document = {"schema": SCHEMA_MARGINS if self.golden.margins else SCHEMA, **asdict(self)}
        if not self.golden.margins:
            del document["golden"]["margins"]
        return document

    def file(self, path: str) -> FileEntry:
        return next(f for f in self.files if f.path == path)


def content_id(document: Mapping[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of the canonical manifest without its id."""
    content = {key: value for key, value in document.items() if key != "id"}
    import hashlib  # whoever only runs a model does without OpenSSL

    return hashlib.sha256(_canonical(content)).hexdigest()[:16]


def is_release_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def safe_path(path: str) -> bool:
    """Whether `path` stays inside a release: plain relative names, no `..`, at most 4 deep."""
    parts = path.split("/")
    return len(parts) <= 4 and all(_PART.fullmatch(part) for part in parts)


def parse_manifest(data: bytes) -> Manifest:
    """Parses and checks `data`; InputError names the key, what was expected and what is there."""
    try:
        return _parse(data)
    except InputError as error:
        raise InputError(
            f"manifest: {error}; build the bundle again with: edgekit compile"
        ) from None


def parse_description(raw: object) -> Description:
    """Checks what ek_describe returns, parsed as JSON."""
    keys = _keys(raw, "", _DESCRIPTION_KEYS)
    return Description(
        _text(keys["name"], "name"),
        _each(keys["inputs"], "inputs", _tensor),
        _each(keys["outputs"], "outputs", _tensor),
        _each(keys["operators"], "operators", _operator),
        _memory({k: keys[k] for k in Memory.__dataclass_fields__}, "memory"),
        _text(keys["simd"], "simd"),
    )


def _parse(data: bytes) -> Manifest:
    if len(data) > MAX_MANIFEST_BYTES:
        raise _bad("size", f"at most {MAX_MANIFEST_BYTES} bytes", f"{len(data)} bytes")
    try:
        raw = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise _bad("document", "JSON", error) from None
    root = _keys(raw, "", ("schema", *Manifest.__dataclass_fields__))
    if root["schema"] not in (SCHEMA, SCHEMA_MARGINS):
        raise _bad("schema", f"{SCHEMA} or {SCHEMA_MARGINS}", root["schema"])
    parsed = _manifest(root)
    _check_files(parsed)
    if (expected := content_id(root)) != parsed.id:
        raise _bad("id", expected, parsed.id)
    return parsed


def _canonical(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def _bad(where: str, expected: str, found: object) -> InputError:
    return InputError(f"{where}: expected {expected}, found {_short(found)}")


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object with the same key twice")
    return result


def _constant(name: str) -> float:
    raise ValueError(f"the number {name}")


def _keys(raw: object, where: str, names: Tuple[str, ...]) -> Dict[str, Any]:
    if not isinstance(raw, dict):
        raise _bad(where or "document", "an object", type(raw).__name__)
    if set(raw) != set(names):
        odd = sorted(set(raw) ^ set(names))
        word = "unknown" if odd[0] in raw else "missing"
        raise _bad(where or "document", "keys " + ", ".join(names), f"{word} '{odd[0]}'")
    return raw


def _text(raw: object, where: str) -> str:
    if not isinstance(raw, str) or len(raw) > 512 or not raw.isprintable():
        raise _bad(where, "printable text of at most 512 characters", repr(raw))
    return raw


def _matching(raw: object, where: str, pattern: "re.Pattern[str]", what: str) -> str:
    if not isinstance(raw, str) or not pattern.fullmatch(raw):
        raise _bad(where, what, repr(raw))
    return raw


def _whole(raw: object, where: str, low: int = 0, high: int = _MAX_BYTES) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= high:
        raise _bad(where, f"a whole number from {low} to {high}", repr(raw))
    return raw


def _number(raw: object, where: str) -> float:
    if not isinstance(raw, (int, float)) or isinstance(raw, bool) or not abs(raw) < 1e300:
        raise _bad(where, "a finite number", repr(raw))
    return float(raw)


def _each(raw: object, where: str, parse: Callable[[Any, str], T]) -> Tuple[T, ...]:
    if not isinstance(raw, (list, tuple)) or len(raw) > 65536:
        raise _bad(where, "a list of at most 65536 entries", type(raw).__name__)
    return tuple(parse(item, f"{where}[{i}]") for i, item in enumerate(raw))


def _path(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not safe_path(raw):
        raise _bad(where, "a plain relative path", repr(raw))
    return raw


def _optional_path(raw: object, where: str) -> Optional[str]:
    return None if raw is None else _path(raw, where)


def _tensor(raw: object, where: str) -> TensorSpec:
    keys = _keys(raw, where, ("name", "dtype", "shape", "scale", "zero_point"))
    if not isinstance(keys["dtype"], str) or keys["dtype"] not in BY_NAME:
        raise _bad(f"{where}.dtype", "one of " + ", ".join(BY_NAME), keys["dtype"])
    shape = _each(keys["shape"], f"{where}.shape", _whole)
    if len(shape) > _MAX_RANK or count(shape) > _MAX_BYTES:
        raise _bad(f"{where}.shape", f"at most {_MAX_RANK} axes and {_MAX_BYTES} elements", shape)
    scale, zero = keys["scale"], keys["zero_point"]
    return TensorSpec(
        _text(keys["name"], f"{where}.name"),
        keys["dtype"],
        shape,
        None if scale is None else _number(scale, f"{where}.scale"),
        None if zero is None else _whole(zero, f"{where}.zero_point", -(1 << 31), 1 << 31),
    )


def _operator(raw: object, where: str) -> OperatorSpec:
    keys = _keys(raw, where, tuple(OperatorSpec.__dataclass_fields__))
    return OperatorSpec(**{k: _text(v, f"{where}.{k}") for k, v in keys.items()})


def _memory(raw: object, where: str) -> Memory:
    keys = _keys(raw, where, tuple(Memory.__dataclass_fields__))
    return Memory(**{k: _whole(v, f"{where}.{k}") for k, v in keys.items()})


def _file(raw: object, where: str) -> FileEntry:
    keys = _keys(raw, where, tuple(FileEntry.__dataclass_fields__))
    return FileEntry(
        _path(keys["path"], f"{where}.path"),
        _whole(keys["bytes"], f"{where}.bytes"),
        _matching(keys["sha256"], f"{where}.sha256", _SHA256, "64 hex digits"),
    )


def _board(raw: object) -> BoardNeeds:
    keys = _keys(raw, "board", tuple(BoardNeeds.__dataclass_fields__))
    return BoardNeeds(
        _text(keys["profile"], "board.profile"),
        _text(keys["machine"], "board.machine"),
        _each(keys["features"], "board.features", _text),
        _whole(keys["vlen_bits"], "board.vlen_bits", 0, 1 << 16),
    )


def _golden(raw: object, schema: str) -> GoldenFiles:
    names = list(GoldenFiles.__dataclass_fields__)
    if schema == SCHEMA:
        names.remove("margins")
    keys = _keys(raw, "golden", tuple(names))
    return GoldenFiles(
        _each(keys["inputs"], "golden.inputs", _path),
        _each(keys["outputs"], "golden.outputs", _path),
        _each(keys["tolerances"], "golden.tolerances", _number),
        _each(keys.get("margins", ()), "golden.margins", _optional_path),
    )


def _manifest(root: Dict[str, Any]) -> Manifest:
    model = _keys(root["model"], "model", ("name", "sha256"))
    return Manifest(
        id=_matching(root["id"], "id", _ID, "16 hex digits"),
        kit_version=_text(root["kit_version"], "kit_version"),
        counter=_whole(root["counter"], "counter"),
        model=ModelRef(
            _text(model["name"], "model.name"),
            _matching(model["sha256"], "model.sha256", _SHA256, "64 hex digits"),
        ),
        board=_board(root["board"]),
        memory=_memory(root["memory"], "memory"),
        inputs=_each(root["inputs"], "inputs", _tensor),
        outputs=_each(root["outputs"], "outputs", _tensor),
        operators=_each(root["operators"], "operators", _operator),
        simd=_text(root["simd"], "simd"),
        golden=_golden(root["golden"], root["schema"]),
        files=_each(root["files"], "files", _file),
    )


def _check_files(m: Manifest) -> None:
    """Every named file is listed once, nothing else is, and the sizes fit the tensors."""
    sizes = {f.path: f.bytes for f in m.files}
    if len(sizes) != len(m.files):
        raise _bad("files", "every path once", "a path twice")
    margins = [path for path in m.golden.margins if path is not None]
    known = {LIBRARY, WEIGHTS, RUNTIME, *m.golden.inputs, *m.golden.outputs, *margins}
    if odd := sorted(known ^ set(sizes)):
        raise _bad("files", ", ".join(sorted(known)), f"'{odd[0]}' not in both")
    if sizes[WEIGHTS] != m.memory.weights_bytes:
        raise _bad(f"size of {WEIGHTS}", f"{m.memory.weights_bytes} bytes", sizes[WEIGHTS])
    if len(m.golden.tolerances) != len(m.outputs):
        raise _bad("golden.tolerances", f"{len(m.outputs)} numbers", len(m.golden.tolerances))
    for paths, specs in ((m.golden.inputs, m.inputs), (m.golden.outputs, m.outputs)):
        found = [sizes[path] for path in paths]
        if len(set(paths)) != len(paths) or found != [spec.bytes for spec in specs]:
            raise _bad("golden", "one file per tensor, of its size", f"sizes {found}")
    _check_margins(m, sizes)


def _check_margins(m: Manifest, sizes: Mapping[str, int]) -> None:
    if len(m.golden.margins) not in (0, len(m.outputs)):
        raise _bad("golden.margins", f"{len(m.outputs)} entries", len(m.golden.margins))
    for path, spec in zip(m.golden.margins, m.outputs):
        if path is not None and sizes[path] != count(spec.shape):
            raise _bad(path, f"{count(spec.shape)} bytes", sizes[path])
