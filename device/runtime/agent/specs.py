"""The parts of a manifest that describe libraries and variants of a release."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from edgekit.device.runtime.agent.strict import (
    MAX_INTEGER,
    bad,
    each,
    integer,
    keys_of,
    number,
    text,
)
from edgekit.device.runtime.dtypes import BY_NAME, count
from edgekit.device.runtime.record import Record

NOT_COMPARED = 255  # in a margins file
BESIDE = "+"  # separates clusters that each run their own queue of the schedule
ALL = "all"  # the cores of every cluster
ALIKE = "cluster"  # with a number appended: one of several clusters with equal cores
MOST_THREADS = 256  # a typing error must not stall the board
MOST_PLACEMENTS = 16

_MAX_RANK = 8
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
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


class TensorSpec(Record):
    """One input or output; `scale` and `zero_point` are None if it is not quantized."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    scale: Optional[float]
    zero_point: Optional[int]

    @property
    def bytes(self) -> int:
        return BY_NAME[self.dtype].bytes * count(self.shape)


class OperatorSpec(Record):
    """One operator of the compiled model, in execution order."""

    name: str
    op: str
    kernel: str


class BoardMemory(Record):
    arena_bytes: int
    state_bytes: int
    weights_bytes: int

    @property
    def total(self) -> int:
        return self.arena_bytes + self.state_bytes + self.weights_bytes


class Description(Record):
    """The self-description of a compiled model, from ek_describe."""

    name: str
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    operators: Tuple[OperatorSpec, ...]
    memory: BoardMemory
    simd: str


class GoldenFiles(Record):
    """Raw little-endian arrays; tolerances[i] is the maximum |difference| of output i.

    `margins` is empty, or has per output None or a file with one byte per element: a value c limits
    the element to 2^-c of the tolerance, NOT_COMPARED excludes it.
    """

    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    tolerances: Tuple[float, ...]
    margins: Tuple[Optional[str], ...] = ()

    def margin(self, output: int) -> Optional[str]:
        return self.margins[output] if self.margins else None

    @property
    def paths(self) -> Tuple[str, ...]:
        return (*self.inputs, *self.outputs, *(p for p in self.margins if p is not None))


class PlacementSpec(Record):
    """A model's thread count on a cluster, with the compiler's cost estimates: `cost_us` on
    `threads` threads, `alone_us` on one. `core` is the core type without its vendor ("a76"), "" for
    any."""

    cluster: str
    core: str
    threads: int
    cost_us: float
    alone_us: float


class LossSpec(Record):
    """Quantization loss: the outputs compared with those of the same model in f32. The lowest
    cosine similarity of any output, and the largest difference as a fraction of its output's
    largest value. `samples`: the number of held-out samples; 0: measured on the golden input."""

    cosine: float
    off: float
    samples: int = 0

    def describe(self) -> str:
        """Formats the loss as the end of a sentence."""
        which = f"outputs of {self.samples} held-out samples" if self.samples else "golden outputs"
        return (
            f"{which} have a cosine of {self.cosine:.5f} with the float model's and are off "
            f"by {self.off:.2%} of their largest value"
        )


class PlacementRequest(Record):
    """A user's request; None and "" leave the choice to the release."""

    threads: Optional[int] = None
    cluster: str = ""

    def over(self, usual: PlacementRequest) -> PlacementRequest:
        """Fills this request's gaps from `usual`; a thread count applies only to its own
        cluster."""
        same = not self.cluster or self.cluster == usual.cluster or not usual.cluster
        threads = self.threads or (usual.threads if same else None)
        return PlacementRequest(threads, self.cluster or usual.cluster)


ANY = PlacementRequest()


def safe_path(path: str) -> bool:
    """Whether `path` stays inside a release: plain relative names, no `..`, at most 4 levels
    deep."""
    parts = path.split("/")
    return len(parts) <= 4 and all(_PART.fullmatch(part) for part in parts)


def path_of(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not safe_path(raw):
        raise bad(where, "a plain relative path", repr(raw))
    return raw


def tensor_of(raw: object, where: str) -> TensorSpec:
    keys = keys_of(raw, where, ("name", "dtype", "shape", "scale", "zero_point"))
    if not isinstance(keys["dtype"], str) or keys["dtype"] not in BY_NAME:
        raise bad(f"{where}.dtype", "one of " + ", ".join(BY_NAME), keys["dtype"])
    shape = each(keys["shape"], f"{where}.shape", integer)
    if len(shape) > _MAX_RANK or count(shape) > MAX_INTEGER:
        raise bad(f"{where}.shape", f"at most {_MAX_RANK} axes and {MAX_INTEGER} elements", shape)
    scale, zero = keys["scale"], keys["zero_point"]
    return TensorSpec(
        text(keys["name"], f"{where}.name"),
        keys["dtype"],
        shape,
        None if scale is None else number(scale, f"{where}.scale"),
        None if zero is None else integer(zero, f"{where}.zero_point", -(1 << 31), 1 << 31),
    )


def operator_of(raw: object, where: str) -> OperatorSpec:
    keys = keys_of(raw, where, OperatorSpec.field_names)
    return OperatorSpec(**{k: text(v, f"{where}.{k}") for k, v in keys.items()})


def memory_of(raw: object, where: str) -> BoardMemory:
    keys = keys_of(raw, where, BoardMemory.field_names)
    return BoardMemory(**{k: integer(v, f"{where}.{k}") for k, v in keys.items()})


def golden_of(raw: object, where: str) -> GoldenFiles:
    keys = keys_of(raw, where, GoldenFiles.field_names)
    return GoldenFiles(
        each(keys["inputs"], f"{where}.inputs", path_of),
        each(keys["outputs"], f"{where}.outputs", path_of),
        each(keys["tolerances"], f"{where}.tolerances", number),
        each(keys["margins"], f"{where}.margins", _optional_path),
    )


def _optional_path(raw: object, where: str) -> Optional[str]:
    return None if raw is None else path_of(raw, where)


def placement_of(raw: object, where: str) -> PlacementSpec:
    """Parses an entry of the manifest's `placements`; InputError names the invalid part."""
    keys = keys_of(raw, where, PlacementSpec.field_names)
    return PlacementSpec(
        text(keys["cluster"], f"{where}.cluster"),
        text(keys["core"], f"{where}.core"),
        integer(keys["threads"], f"{where}.threads", 1, MOST_THREADS),
        number(keys["cost_us"], f"{where}.cost_us"),
        number(keys["alone_us"], f"{where}.alone_us"),
    )


def loss_of(raw: object, where: str) -> LossSpec:
    """Parses the manifest's `loss`; InputError names the invalid part."""
    keys = keys_of(raw, where, LossSpec.field_names)
    cosine, off = (number(keys[k], f"{where}.{k}") for k in ("cosine", "off"))
    if not -1 <= cosine <= 1:
        raise bad(f"{where}.cosine", "a number from -1 to 1", cosine)
    return LossSpec(cosine, off, integer(keys["samples"], f"{where}.samples"))


def parse_description(raw: object) -> Description:
    """Checks the JSON document that ek_describe returns."""
    keys = keys_of(raw, "", _DESCRIPTION_KEYS)
    return Description(
        text(keys["name"], "name"),
        each(keys["inputs"], "inputs", tensor_of),
        each(keys["outputs"], "outputs", tensor_of),
        each(keys["operators"], "operators", operator_of),
        memory_of({k: keys[k] for k in BoardMemory.field_names}, "memory"),
        text(keys["simd"], "simd"),
    )
