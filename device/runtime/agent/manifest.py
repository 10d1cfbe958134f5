"""The manifest of a bundle: its single definition, shared by host and board.

Parsing is strict: it rejects unknown or missing keys, wrong types, unsafe paths, inconsistent sizes
and a wrong id, because all later code trusts these values.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from edgekit.device.runtime.agent.application import OPTIONAL, ApplicationSpec, application_of
from edgekit.device.runtime.agent.kernels import KernelsSpec, ReferenceProduct, kernels_of
from edgekit.device.runtime.agent.shadow_spec import ShadowSpec, shadow_of
from edgekit.device.runtime.agent.specs import (
    MOST_PLACEMENTS,
    BoardMemory,
    GoldenFiles,
    LossSpec,
    OperatorSpec,
    PlacementSpec,
    TensorSpec,
    golden_of,
    loss_of,
    memory_of,
    operator_of,
    path_of,
    placement_of,
    tensor_of,
)
from edgekit.device.runtime.agent.strict import (
    bad,
    distinct_keys,
    each,
    integer,
    keys_of,
    matching,
    no_constant,
    text,
)
from edgekit.device.runtime.agent.task import TaskSpec, task_of
from edgekit.device.runtime.dtypes import count
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record, asdict, replace

SCHEMA = "edgekit.bundle/1"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
LIBRARY = "model.so"
WEIGHTS = "weights.bin"
RUNTIME = "runtime.pyz"

MAX_MANIFEST_BYTES = 4 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
RELEASE_ID = re.compile(r"[0-9a-f]{16}")

_SIGNATURE = ("signature",)  # a key that entries without a name lack
_OPTIONAL = (*_SIGNATURE, "kernels", "task", "shadow", *OPTIONAL)


class ModelRef(Record):
    name: str
    sha256: str


class BoardNeeds(Record):
    """A board's required properties: `machine` as in uname; `vlen_bits` is 0 if RVV is not used."""

    profile: str
    machine: str
    features: Tuple[str, ...]
    vlen_bits: int


class FileEntry(Record):
    path: str
    bytes: int
    sha256: str


class Variant(Record):
    """The model for one set of input shapes, or one signature of a model that has several. All
    variants share one weights file, and each reads its first `memory.weights_bytes` bytes."""

    library: str
    memory: BoardMemory
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    operators: Tuple[OperatorSpec, ...]
    golden: GoldenFiles
    signature: str = ""

    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """The input shapes by name, which distinguish the variants of a signature."""
        return {spec.name: spec.shape for spec in self.inputs}


class Manifest(Record):
    """`variants` are those for further input shapes and signatures; the manifest itself describes
    the first variant. `application` is the program that runs with the model. `placements` are the
    best thread counts on each of the board's clusters, best cluster first; empty: one thread, on
    any core. `loss` is the quantization loss relative to f32, if the model is quantized. `task` is
    what the first variant is for, if known; `shadow` is its float model.

    A release of `kernels` has no model: no tensors, operators, weights and variants; its name is
    that of its core, and its memory that of its library."""

    id: str
    kit_version: str
    counter: int
    model: ModelRef
    board: BoardNeeds
    memory: BoardMemory
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    operators: Tuple[OperatorSpec, ...]
    simd: str
    golden: GoldenFiles
    files: Tuple[FileEntry, ...]
    variants: Tuple[Variant, ...] = ()
    application: Optional[ApplicationSpec] = None
    placements: Tuple[PlacementSpec, ...] = ()
    loss: Optional[LossSpec] = None
    signature: str = ""
    kernels: Optional[KernelsSpec] = None
    task: Optional[TaskSpec] = None
    shadow: Optional[ShadowSpec] = None

    def to_json(self) -> bytes:
        """Returns the canonical text: sorted keys, one line, identical on every machine."""
        return _canonical_json(self._to_dict())

    def with_id(self) -> Manifest:
        """Returns the manifest with the id computed from its content."""
        return replace(self, id=content_id(self._to_dict()))

    def every_variant(self) -> Tuple[Variant, ...]:
        """One per signature and set of input shapes, the manifest's own first. InputError for a
        release of kernels."""
        if self.kernels:
            raise InputError(
                f"release {self.id}: expected a model, found {self.model.name}; "
                "use the release or the file of a model"
            )
        own = (self.memory, self.inputs, self.outputs, self.operators, self.golden, self.signature)
        return (Variant(LIBRARY, *own), *self.variants)

    def most_memory(self) -> BoardMemory:
        """The memory of a process: that of the largest variant of each signature."""
        if self.kernels:
            return self.memory
        every = self.every_variant()
        of_each = [
            max((v.memory for v in every if v.signature == name), key=lambda m: m.total)
            for name in dict.fromkeys(v.signature for v in every)
        ]
        return BoardMemory(
            sum(m.arena_bytes for m in of_each),
            sum(m.state_bytes for m in of_each),
            max(m.weights_bytes for m in of_each),
        )

    def _to_dict(self) -> Dict[str, Any]:
        return _without_unused({"schema": SCHEMA, **asdict(self)})

    def file(self, path: str) -> FileEntry:
        return next(f for f in self.files if f.path == path)


def _without_unused(document: Dict[str, Any]) -> Dict[str, Any]:
    """The document without what most models lack, such as a task or names of signatures."""
    if document["application"]:
        document["application"] = _without_empty(document["application"])
    document["variants"] = [_without_empty(variant) for variant in document["variants"]]
    return _without_empty(document)


def _without_empty(entry: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _OPTIONAL or value}


def content_id(document: Mapping[str, Any]) -> str:
    """Returns the first 16 hex digits of the SHA-256 of the canonical manifest without its id."""
    content = {key: value for key, value in document.items() if key != "id"}
    import hashlib  # running a model does not need OpenSSL

    return hashlib.sha256(_canonical_json(content)).hexdigest()[:16]


def is_release_id(text: str) -> bool:
    return RELEASE_ID.fullmatch(text) is not None


@functools.lru_cache(maxsize=2)  # a command reads a release's manifest several times
def parse_manifest(data: bytes) -> Manifest:
    """Parses and checks `data`; InputError names the key, the expected and the actual value."""
    try:
        return _parse(data)
    except InputError as error:
        raise InputError(
            f"manifest: {error}; build the bundle again with: edgekit compile"
        ) from None


def _parse(data: bytes) -> Manifest:
    if len(data) > MAX_MANIFEST_BYTES:
        raise bad("size", f"at most {MAX_MANIFEST_BYTES} bytes", f"{len(data)} bytes")
    try:
        raw = json.loads(
            data.decode("utf-8"), object_pairs_hook=distinct_keys, parse_constant=no_constant
        )
    except (ValueError, RecursionError) as error:
        raise bad("document", "JSON", error) from None
    # Checked before the keys: with another schema, unknown keys are not the actual error.
    if isinstance(raw, dict) and "schema" in raw and raw["schema"] != SCHEMA:
        raise bad("schema", SCHEMA, raw["schema"])
    root = keys_of(raw, "", ("schema", *_required(Manifest)), _OPTIONAL)
    parsed = _build_manifest(root)
    if len(parsed.placements) > MOST_PLACEMENTS:
        raise bad("placements", f"at most {MOST_PLACEMENTS}", len(parsed.placements))
    if parsed.kernels:
        _check_kernels(parsed, parsed.kernels)
    else:
        _check_variants(parsed)
        _check_files(parsed)
    if (expected := content_id(root)) != parsed.id:
        raise bad("id", expected, parsed.id)
    return parsed


def _canonical_json(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def _parse_file(raw: object, where: str) -> FileEntry:
    keys = keys_of(raw, where, FileEntry.field_names)
    return FileEntry(
        path_of(keys["path"], f"{where}.path"),
        integer(keys["bytes"], f"{where}.bytes"),
        matching(keys["sha256"], f"{where}.sha256", _SHA256, "64 hex digits"),
    )


def _parse_board(raw: object) -> BoardNeeds:
    keys = keys_of(raw, "board", BoardNeeds.field_names)
    return BoardNeeds(
        text(keys["profile"], "board.profile"),
        text(keys["machine"], "board.machine"),
        each(keys["features"], "board.features", text),
        integer(keys["vlen_bits"], "board.vlen_bits", 0, 1 << 16),
    )


def _parse_variant(raw: object, where: str) -> Variant:
    keys = keys_of(raw, where, _required(Variant), _SIGNATURE)
    return Variant(
        path_of(keys["library"], f"{where}.library"),
        memory_of(keys["memory"], f"{where}.memory"),
        each(keys["inputs"], f"{where}.inputs", tensor_of),
        each(keys["outputs"], f"{where}.outputs", tensor_of),
        each(keys["operators"], f"{where}.operators", operator_of),
        golden_of(keys["golden"], f"{where}.golden"),
        text(keys.get("signature", ""), f"{where}.signature"),
    )


def _build_manifest(root: Dict[str, Any]) -> Manifest:
    model = keys_of(root["model"], "model", ("name", "sha256"))
    application, loss = root["application"], root["loss"]
    return Manifest(
        id=matching(root["id"], "id", RELEASE_ID, "16 hex digits"),
        kit_version=text(root["kit_version"], "kit_version"),
        counter=integer(root["counter"], "counter"),
        model=ModelRef(
            text(model["name"], "model.name"),
            matching(model["sha256"], "model.sha256", _SHA256, "64 hex digits"),
        ),
        board=_parse_board(root["board"]),
        memory=memory_of(root["memory"], "memory"),
        inputs=each(root["inputs"], "inputs", tensor_of),
        outputs=each(root["outputs"], "outputs", tensor_of),
        operators=each(root["operators"], "operators", operator_of),
        simd=text(root["simd"], "simd"),
        golden=golden_of(root["golden"], "golden"),
        files=each(root["files"], "files", _parse_file),
        variants=each(root["variants"], "variants", _parse_variant),
        application=None if application is None else application_of(application),
        placements=each(root["placements"], "placements", placement_of),
        loss=None if loss is None else loss_of(loss, "loss"),
        signature=text(root.get("signature", ""), "signature"),
        kernels=kernels_of(root["kernels"], "kernels") if "kernels" in root else None,
        task=task_of(root["task"], "task") if "task" in root else None,
        shadow=shadow_of(root["shadow"], "shadow") if "shadow" in root else None,
    )


def _required(kind: Any) -> Tuple[str, ...]:
    return tuple(name for name in kind.field_names if name not in _OPTIONAL)


def _check_variants(m: Manifest) -> None:
    """Checks that variants of a signature differ in shapes only, and that each occurs once."""
    every = m.every_variant()
    ends: Dict[str, List[Tuple[str, str]]] = {}
    if m.shadow and m.variants:
        raise bad("shadow", "a model with one variant", len(every))
    if len({bool(v.signature) for v in every}) > 1:
        raise bad("variants", "a signature for each, or for none", "some")
    for v in every:
        found = [(s.name, s.dtype) for s in (*v.inputs, *v.outputs)]
        if ends.setdefault(v.signature, found) != found:
            raise bad(
                "variants", "the names and types of inputs and outputs of the first", "others"
            )
    if len({(v.signature, *v.shapes.items()) for v in every}) != len(every):
        raise bad("variants", "each set of input shapes once", "one twice")


def _check_kernels(m: Manifest, kernels: KernelsSpec) -> None:
    """Checks that a release of kernels has no model, and a result for each of its products."""
    if (
        m.inputs
        or m.outputs
        or m.operators
        or m.variants
        or m.golden.paths
        or m.placements
        or m.shadow
    ):
        raise bad("kernels", "kernels or a model", "both")
    sizes = _listed(m, (RUNTIME, *kernels.paths))
    for product in kernels.products:
        _check_golden(product, sizes)


def _listed(m: Manifest, named: Tuple[str, ...]) -> Dict[str, int]:
    """Returns the size of each file; checks that exactly the named ones are listed, once each, and
    those of the application."""
    sizes = {f.path: f.bytes for f in m.files}
    if len(sizes) != len(m.files):
        raise bad("files", "every path once", "a path twice")
    wanted = (*named, *(m.application.files if m.application else ()))
    known = set(wanted)
    if odd := sorted(known ^ set(sizes)):
        raise bad("files", ", ".join(sorted(known)), f"'{odd[0]}' not in both")
    if len(known) != len(wanted):
        raise bad("files", "one file per library and tensor", "one of several uses")
    return sizes


def _check_files(m: Manifest) -> None:
    """Checks that exactly the referenced files are listed, once each, and that sizes match the
    tensors."""
    every, shadows = m.every_variant(), (m.shadow,) if m.shadow else ()
    named = (path for v in every for path in (v.library, *v.golden.paths))
    others = (*(s.library for s in shadows), *(m.task.files if m.task else ()))
    sizes = _listed(m, (WEIGHTS, RUNTIME, *named, *others))
    weights = max(one.memory.weights_bytes for one in (*every, *shadows))
    if sizes[WEIGHTS] != weights:
        raise bad(f"size of {WEIGHTS}", f"{weights} bytes", sizes[WEIGHTS])
    for v in every:
        _check_golden(v, sizes)


def _check_golden(v: Union[Variant, ReferenceProduct], sizes: Mapping[str, int]) -> None:
    if len(v.golden.tolerances) != len(v.outputs):
        raise bad("golden.tolerances", f"{len(v.outputs)} numbers", len(v.golden.tolerances))
    for paths, specs in ((v.golden.inputs, v.inputs), (v.golden.outputs, v.outputs)):
        found = [sizes[path] for path in paths]
        if found != [spec.bytes for spec in specs]:
            raise bad("golden", "one file per tensor, of its size", f"sizes {found}")
    if len(v.golden.margins) not in (0, len(v.outputs)):
        raise bad("golden.margins", f"{len(v.outputs)} entries", len(v.golden.margins))
    for path, spec in zip(v.golden.margins, v.outputs):
        if path is not None and sizes[path] != count(spec.shape):
            raise bad(path, f"{count(spec.shape)} bytes", sizes[path])
