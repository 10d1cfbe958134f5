"""Imports ONNX operators with nonsensical operands and attributes.

    python -m tests.long.fuzz_operators --count 20000 [--seed 1] [OPERATOR ...]

Any outcome but a graph or a one-line `InputError` is a bug. Cycles through all operators of
`edgekit compile --list-operators`. Prints the seed of each failure and the slowest case; exit code
1 if anything failed. Memory is capped, so that a bomb shows up as a failure.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.file import NEWEST_OPSET
from edgekit.host.compiler.frontends.onnx.operators import ROWS
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError

_SECONDS_LIMIT = 10.0
_MEMORY_LIMIT = 8 << 30
_INTEGERS = (0, 1, -1, 2, 3, 5, -2, 7, 255, 65536, 2**31, -(2**31), 2**40, 2**62, -(2**62))
_EDGES = (*_INTEGERS, 2**63 - 1, -(2**63))
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e30, -1e38, 1e-38, float("inf"), float("-inf"), float("nan"))
_SIZES = (1, 2, 3, 4, 5, 1, 2, 3, 0)
_TYPES = (
    np.float32, np.float32, np.float32, np.int64, np.int64, np.int32, np.uint8, np.int8, np.bool_,
    np.float16, np.float64, np.int16, np.uint16,
)  # fmt: skip
_TEXTS = ("", "SAME_UPPER", "VALID", "linear", "cubic", "constant", "ij,jk->ik", "max", "\x00", "é")


def draw_model(rng: random.Random, kind: str, opset: int) -> onnx.ModelProto:
    """A model of one operator; each operand is randomly an input or a constant."""
    count = rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 6))
    rank = rng.choice((0, 1, 2, 3, 4, 4, 5))
    inputs, constants, names = [], [], []
    shape: tuple[int, ...] = tuple(rng.choice(_SIZES) for _ in range(rank))
    dtype = rng.choice(_TYPES)
    for i in range(count):
        if rng.random() < 0.5:  # otherwise like the previous one, as operands usually are
            shape = tuple(rng.choice(_SIZES) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 5))))
            dtype = rng.choice(_TYPES)
        name = f"x{i}"
        if rng.random() < 0.08:
            name = ""
        elif rng.random() < 0.5:
            constants.append(numpy_helper.from_array(_value(rng, shape, dtype), name))
        else:
            number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            inputs.append(helper.make_tensor_value_info(name, number, shape))
        names.append(name)
    outs = [f"y{i}" for i in range(rng.choice((1, 1, 1, 2, 3)))]
    node = helper.make_node(kind, names, outs)
    node.attribute.extend(_attributes(rng, kind, opset))
    ends = [helper.make_tensor_value_info(n, 1, None) for n in outs]
    graph = helper.make_graph([node], "g", inputs, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _value(rng: random.Random, shape: Sequence[int], dtype: Any) -> Any:
    size = int(np.prod(shape))
    kind = np.dtype(dtype).kind
    if kind == "f":
        values = [rng.choice(_FLOATS) if rng.random() < 0.3 else rng.uniform(-2, 2)
                  for _ in range(size)]  # fmt: skip
    else:
        edges = rng.random() < 0.3
        values = [
            rng.choice(_EDGES) if edges else rng.choice((0, 1, 2, 3, -1)) for _ in range(size)
        ]
    with np.errstate(all="ignore"):
        array = np.array(values, np.float64 if kind == "f" else np.int64)
        return array.astype(dtype).reshape(shape)


def _attributes(rng: random.Random, kind: str, opset: int) -> list[Any]:
    try:
        known = onnx.defs.get_schema(kind, opset).attributes
    except onnx.defs.SchemaError:
        return []
    found = []
    for name, schema in known.items():
        if rng.random() < (0.1 if not schema.required else 0.9):
            made = _attribute(rng, name, schema.type.name if rng.random() < 0.95 else "FLOAT")
            found += [made] if made is not None else []
    return found


def _attribute(rng: random.Random, name: str, kind: str) -> Any:
    count = rng.choice((0, 1, 2, 2, 2, 3, 4, 4, 8))
    made: Any = {
        "INT": _integer(rng),
        "INTS": [_integer(rng) for _ in range(count)],
        "FLOAT": float(np.float32(rng.choice(_FLOATS))),
        "FLOATS": [float(np.float32(rng.choice(_FLOATS))) for _ in range(count)],
        "STRING": rng.choice(_TEXTS),
        "STRINGS": [rng.choice(_TEXTS) for _ in range(count)],
    }.get(kind)
    if made is None:
        return None
    kinds = onnx.AttributeProto.AttributeType
    return helper.make_attribute(name, made, attr_type=kinds.Value(kind))


def _integer(rng: random.Random) -> int:
    return rng.choice(_EDGES) if rng.random() < 0.4 else rng.choice((0, 1, 2, 3, -1))


def outcome(proto: onnx.ModelProto, folder: Path) -> str:
    """ "graph", or the message of an `InputError`; other exceptions propagate."""
    path = folder / "fuzz.onnx"
    path.write_bytes(proto.SerializeToString())
    try:
        run_passes(import_model(path))
    except InputError as error:
        message = str(error)
        assert message and "\n" not in message, f"expected one line, found {message!r:.80}"
        return message
    return "graph"


def run(kinds: Sequence[str], count: int, first_seed: int, folder: Path) -> list[str]:
    """Failures, one line each."""
    seen: Counter[str] = Counter()
    failures, slowest = [], (0.0, "")
    for seed in range(first_seed, first_seed + count):
        kind, rng = kinds[seed % len(kinds)], random.Random(seed)
        proto = draw_model(rng, kind, rng.choice((7, 9, 11, 13, 17, 21, min(23, NEWEST_OPSET))))
        case, begin = f"seed {seed} ({kind})", time.perf_counter()
        try:
            seen["graph" if outcome(proto, folder) == "graph" else "InputError"] += 1
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            failures.append(f"{case}: {type(error).__name__}: {str(error)[:100]} ({where})")
        seconds = time.perf_counter() - begin
        slowest = max(slowest, (seconds, case))
        if seconds > _SECONDS_LIMIT:
            failures.append(f"{case}: took {seconds:.1f} s")
    print(f"{count} operators: {dict(seen)}; slowest {slowest[0]:.2f} s, {slowest[1]}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        kinds = arguments.operators or sorted(ROWS)
        failures = run(kinds, arguments.count, arguments.seed, Path(folder))
    for line in failures:
        print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
