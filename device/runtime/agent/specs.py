"""The pieces of a manifest that libraries and variants of a release are described by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

from edgekit.device.runtime.agent.strict import MAX_WHOLE, bad, each, keys_of, number, text, whole
from edgekit.device.runtime.dtypes import BY_NAME, count

NOT_COMPARED = 255  # in a file of margins
BESIDE = "+"  # between clusters that run a queue of the schedule each
ALL = "all"  # cores of every cluster
ALIKE = "cluster"  # and a number: each of several that have the same cores
MOST_THREADS = 256  # a slip of the keyboard must not stall the board
MOST_PLACEMENTS = 16

_MAX_RANK = 8
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


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
class Memory:
    arena_bytes: int
    state_bytes: int
    weights_bytes: int

    @property
    def total(self) -> int:
        return self.arena_bytes + self.state_bytes + self.weights_bytes


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

    @property
    def paths(self) -> Tuple[str, ...]:
        return (*self.inputs, *self.outputs, *(p for p in self.margins if p is not None))


@dataclass(frozen=True)
class PlacementSpec:
    """The number of threads of a model on a cluster: `cost_us` with them, `alone_us` with
    one, by the compiler's cost. `core` is the kind without its maker ("a76"), "" if any will
    do."""

    cluster: str
    core: str
    threads: int
    cost_us: float
    alone_us: float


@dataclass(frozen=True)
class LossSpec:
    """What fewer bits cost: outputs beside those of the same model in f32. The least cosine of an
    output, and the largest difference as a fraction of its output's largest value. `samples`: of
    so many that were held out; 0: of the golden input."""

    cosine: float
    off: float
    samples: int = 0

    def told(self) -> str:
        """The end of a sentence."""
        which = f"outputs of {self.samples} held-out samples" if self.samples else "golden outputs"
        return (
            f"{which} have a cosine of {self.cosine:.5f} with the float model's and are off "
            f"by {self.off:.2%} of their largest value"
        )


@dataclass(frozen=True)
class PlacementRequest:
    """What a user asks for; None and "" leave it to the release."""

    threads: Optional[int] = None
    cluster: str = ""

    def over(self, usual: PlacementRequest) -> PlacementRequest:
        """This request, completed from `usual`; a number of threads belongs to its cluster."""
        same = not self.cluster or self.cluster == usual.cluster or not usual.cluster
        threads = self.threads or (usual.threads if same else None)
        return PlacementRequest(threads, self.cluster or usual.cluster)


ANY = PlacementRequest()


def safe_path(path: str) -> bool:
    """Whether `path` stays inside a release: plain relative names, no `..`, at most 4 deep."""
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
    shape = each(keys["shape"], f"{where}.shape", whole)
    if len(shape) > _MAX_RANK or count(shape) > MAX_WHOLE:
        raise bad(f"{where}.shape", f"at most {_MAX_RANK} axes and {MAX_WHOLE} elements", shape)
    scale, zero = keys["scale"], keys["zero_point"]
    return TensorSpec(
        text(keys["name"], f"{where}.name"),
        keys["dtype"],
        shape,
        None if scale is None else number(scale, f"{where}.scale"),
        None if zero is None else whole(zero, f"{where}.zero_point", -(1 << 31), 1 << 31),
    )


def operator_of(raw: object, where: str) -> OperatorSpec:
    keys = keys_of(raw, where, tuple(OperatorSpec.__dataclass_fields__))
    return OperatorSpec(**{k: text(v, f"{where}.{k}") for k, v in keys.items()})


def memory_of(raw: object, where: str) -> Memory:
    keys = keys_of(raw, where, tuple(Memory.__dataclass_fields__))
    return Memory(**{k: whole(v, f"{where}.{k}") for k, v in keys.items()})


def golden_of(raw: object, where: str) -> GoldenFiles:
    keys = keys_of(raw, where, tuple(GoldenFiles.__dataclass_fields__))
    return GoldenFiles(
        each(keys["inputs"], f"{where}.inputs", path_of),
        each(keys["outputs"], f"{where}.outputs", path_of),
        each(keys["tolerances"], f"{where}.tolerances", number),
        each(keys["margins"], f"{where}.margins", _optional_path),
    )


def _optional_path(raw: object, where: str) -> Optional[str]:
    return None if raw is None else path_of(raw, where)


def placement_of(raw: object, where: str) -> PlacementSpec:
    """An entry of the manifest's `placements`, checked; InputError names what is wrong."""
    keys = keys_of(raw, where, tuple(PlacementSpec.__dataclass_fields__))
    return PlacementSpec(
        text(keys["cluster"], f"{where}.cluster"),
        text(keys["core"], f"{where}.core"),
        whole(keys["threads"], f"{where}.threads", 1, MOST_THREADS),
        number(keys["cost_us"], f"{where}.cost_us"),
        number(keys["alone_us"], f"{where}.alone_us"),
    )


def loss_of(raw: object, where: str) -> LossSpec:
    """The manifest's `loss`, checked; InputError names what is wrong."""
    keys = keys_of(raw, where, tuple(LossSpec.__dataclass_fields__))
    cosine, off = (number(keys[k], f"{where}.{k}") for k in ("cosine", "off"))
    if not -1 <= cosine <= 1:
        raise bad(f"{where}.cosine", "a number from -1 to 1", cosine)
    return LossSpec(cosine, off, whole(keys["samples"], f"{where}.samples"))
