"""Times GEMM methods on this board, or counts their instructions; standard library only.

Requests are JSON lines in a file: {"dtype", "m", "n", "k", "methods": [method, ...]} and optionally
"threads" (1), "side" ("a" or "b": that operand is prepacked, like weights), "default" (a method;
else the library's own), "seconds" (0.2, the time budget), "count" (instructions instead of time).

All methods of a request alternate with the default, so that drift affects all equally; a method
that is far behind after the first rounds is dropped. Each answer is one line, flushed before the
next request begins: {"index", "times": [{"median_us", "p10_us", "p90_us", "n"}, ...], "default":
{...}, "cpu"}, or "instructions": [...] and "default" as a number, or "error". If the board is lost,
only the current product is lost with it.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.count import count_calls, counter, fix_layout
from edgekit.device.runtime.agent.interleave import call, interleave, pinned, summary
from edgekit.device.runtime.arrays.gemm_library import (
    C_BYTES,
    DTYPES,
    ELEMENT_BYTES,
    SIDES,
    Block,
    GemmLibrary,
    GemmMethod,
    Operand,
    Product,
    Timer,
)
from edgekit.device.runtime.errors import DeviceError, InputError
from edgekit.device.runtime.record import Record

Answer = Dict[str, Any]
Say = Callable[[Answer], None]

_LARGEST = (1 << 31) - 1
_MOST_METHODS = 1000
_MOST_SECONDS = 600.0
_MOST_THREADS = 256
_REPEATS = 3  # of a count
_PATTERN = 4093  # period of an operand's values: not a multiple of any tile


class GemmRequest(Record):
    """One product and the methods to try; see the module docstring."""

    dtype: str
    m: int
    n: int
    k: int
    methods: Tuple[GemmMethod, ...]
    default: Optional[GemmMethod] = None
    threads: int = 1
    side: Optional[str] = None
    seconds: float = 0.2
    count: bool = False


def command(requests: Path, library: Optional[Path]) -> Answer:
    """Writes answers to stderr one by one, so that a lost link loses none already given."""
    from edgekit.device.runtime.arrays.find import find_library

    found = (library, None) if library else find_library()
    answered = bench_file(requests, GemmLibrary(*found), _write_answer)
    return {"schema": "edgekit.gemm-bench/1", "answered": answered}


def _write_answer(answer: Answer) -> None:
    sys.stderr.write(f"gemm {json.dumps(answer)}\n")
    sys.stderr.flush()


def bench_file(requests: Path, library: GemmLibrary, say: Say) -> int:
    """Processes every line of a file; returns the number of answers without an error."""
    lines = read_lines(requests)
    if any('"count"' in line for line in lines):
        fix_layout()
    return sum(_answer_request(i, line, library, say) for i, line in enumerate(lines))


def read_lines(path: Path) -> List[str]:
    """Reads the lines of a text file; InputError if it is not one."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "binary data"
        raise InputError(f"{path}: expected a file of JSON lines, found: {found}") from None


def _answer_request(index: int, line: str, library: GemmLibrary, say: Say) -> bool:
    try:
        request = parse_request(line)
        found = count_request(request, library) if request.count else time_request(request, library)
    except DeviceError as error:
        found = {"error": {"kind": error.kind, "message": str(error)}}
    say({"index": index, **found})
    return "error" not in found


def parse_request(line: str) -> GemmRequest:
    """Parses a line of JSON; InputError describes the invalid part."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected a request as one line of JSON, found: {error}") from None
    if not isinstance(fields, dict):
        raise InputError(f"expected a request as a JSON object, found {line[:60]!r}")
    known = set(GemmRequest.field_names)
    if unknown := sorted(set(fields) - known):
        raise InputError(f"expected the fields {', '.join(sorted(known))}, found {unknown[0]!r}")
    _check_field(fields, "dtype", lambda v: v in DTYPES, f"one of {', '.join(DTYPES)}")
    for name in ("m", "n", "k"):
        _check_field(fields, name, lambda v: _is_integer(v, 0, _LARGEST), f"0 to {_LARGEST}")
    optional = (
        ("threads", lambda v: _is_integer(v, 1, _MOST_THREADS), f"1 to {_MOST_THREADS}"),
        ("side", lambda v: v is None or v in SIDES, "a, b or null"),
        ("seconds", _is_duration, f"more than 0 and at most {_MOST_SECONDS:g}"),
        ("count", lambda v: isinstance(v, bool), "true or false"),
    )
    for name, fits, wanted in optional:
        if name in fields:
            _check_field(fields, name, fits, wanted)
    methods = fields.get("methods", [])
    if not isinstance(methods, list) or len(methods) > _MOST_METHODS:
        raise InputError(f"expected methods as a list of at most {_MOST_METHODS}, found others")
    fields["methods"] = tuple(_parse_method(value) for value in methods)
    if fields.get("default") is not None:
        fields["default"] = _parse_method(fields["default"])
    request = GemmRequest(**fields)
    if request.count and request.threads > 1:
        raise InputError("expected 1 thread for counting instructions, found more")
    return request


def time_request(request: GemmRequest, library: GemmLibrary) -> Answer:
    """Times each method and the default, alternating."""
    with pinned(request.threads):
        timers = [_with_warmup(timer) for timer in _make_timers(request, library)]
        samples = interleave(timers, request.seconds)
    *times, default = (summary(found) for found in samples)
    return {"times": times, "default": default, "cpu": features.cpu_model()}


def _with_warmup(timer: Timer) -> Callable[[int], int]:
    """Runs the product once, untimed, before each block. Each method has its own packed operand;
    with a large one, the time would otherwise depend on cache contents left by other methods, and
    change when one of them is dropped."""

    def timed(count: int) -> int:
        timer(1)
        return timer(count)

    return timed


def count_request(request: GemmRequest, library: GemmLibrary) -> Answer:
    """Counts instructions of each method and of the default; IncompatibleError without a
    counter."""
    with pinned(1), counter() as (descriptor, user_only):
        counts = []
        for timer in _make_timers(request, library):
            samples = count_calls(descriptor, call(timer, 0), call(timer, 1), _REPEATS)
            counts.append(min(samples))
    return {"instructions": counts[:-1], "default": counts[-1], "user_only": user_only}


class Operands:
    """A, B and C of a product, filled with values; rows are contiguous."""

    def __init__(self, dtype: str, m: int, n: int, k: int, packs: int = 0) -> None:
        """InputError if memory is insufficient, including for `packs` packed operands made
        later."""
        self.dtype, self.m, self.n, self.k = dtype, m, n, k
        element = ELEMENT_BYTES[dtype]
        sizes = (m * k * element, k * n * element, m * n * C_BYTES)
        need = sum(sizes) + packs * max(sizes[:2])
        have = features.memory_bytes().available
        if have is not None and need > have * 3 // 4:
            raise InputError(
                f"m={m} n={n} k={k}: expected {need} bytes of free memory, found {have}; measure "
                "a smaller product"
            )
        self._blocks = [_fill_block(sizes[0], dtype), _fill_block(sizes[1], dtype), Block(sizes[2])]
        self._packed: List[Block] = []
        addresses = [block.address for block in self._blocks]
        self.a = Operand(addresses[0], k, 1)
        self.b, self.c = Operand(addresses[1], n, 1), Operand(addresses[2], n, 1)

    def product(self, library: GemmLibrary, how: GemmMethod, side: Optional[str] = None) -> Product:
        """Returns the product for one method, with the operand of `side` packed for it."""
        a, b = self.a, self.b
        if side is not None:
            extent, source = (self.m, a) if side == "a" else (self.n, b)
            block = library.pack(self.dtype, side, extent, self.k, how, source)
            self._packed.append(block)
            packed = Operand(block.address, source.row, source.col, packed=True)
            a, b = (packed, b) if side == "a" else (a, packed)
        return Product(self.dtype, self.m, self.n, self.k, a, b, self.c)

    def values(self, side: str) -> memoryview:
        """The bytes of A or B."""
        return memoryview(self._blocks[SIDES.index(side)].memory)


def _make_timers(request: GemmRequest, library: GemmLibrary) -> List[Timer]:
    """Returns a timer for each method; the default's is last."""
    sizes = (request.dtype, request.m, request.n, request.k)
    methods = [
        *request.methods,
        request.default or library.default(*sizes, request.threads, request.side),
    ]
    operands = Operands(*sizes, packs=len(methods) if request.side else 0)
    return [
        library.timer(
            operands.product(library, how, request.side), how, request.threads, keep=operands
        )
        for how in methods
    ]


def _fill_block(size: int, dtype: str) -> Block:
    """Fills a block with values between -1 and 1, or with all byte values; deterministic."""
    source = random.Random(0)
    if dtype == "f32":
        pattern = array("f", (source.uniform(-1, 1) for _ in range(_PATTERN))).tobytes()
    else:
        pattern = bytes(source.randrange(256) for _ in range(_PATTERN))
    block = Block(size)
    for at in range(0, size, len(pattern)):
        part = pattern[: size - at]
        block.memory[at : at + len(part)] = part
    return block


def _parse_method(value: Any) -> GemmMethod:
    if not isinstance(value, dict):
        raise InputError(f"expected a method as a JSON object, found {str(value)[:60]!r}")
    return GemmMethod.of(value)


def _check_field(
    fields: Dict[str, Any], name: str, fits: Callable[[Any], bool], wanted: str
) -> None:
    value = fields.get(name)
    if not fits(value):
        raise InputError(f"expected {name} of {wanted}, found {str(value)[:60]!r}")


def _is_integer(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_duration(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value <= _MOST_SECONDS
