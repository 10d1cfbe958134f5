"""Plan → run.c: one function that calls the kernels in order, and what describes the model."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.host.graph.types import Tensor
from edgekit.host.lower.plan import Call, Field, Kernel, Plan, Step, Value, Weights, base_of


def kernels_of(plan: Plan) -> list[Kernel]:
    """Every kernel instance the plan calls, once, by symbol."""
    found = {c.kernel.symbol: c.kernel for s in plan.lowered.steps for c in s.calls}
    return [found[symbol] for symbol in sorted(found)]


def parts_of(plan: Plan) -> list[Kernel]:
    """What those kernels call in turn, once, by symbol."""
    found = {part.symbol: part for kernel in kernels_of(plan) for part in kernel.parts}
    return [found[symbol] for symbol in sorted(found)]


def describe(plan: Plan) -> dict[str, Any]:
    """What ek_describe returns (see device/kernels/ek.h)."""
    lowered = plan.lowered
    return {
        "name": lowered.name,
        "inputs": [_describe_tensor(t) for t in lowered.inputs],
        "outputs": [_describe_tensor(t) for t in lowered.outputs],
        "arena_bytes": plan.memory.arena_bytes,
        "state_bytes": plan.state_bytes,
        "weights_bytes": len(lowered.weights),
        "simd": lowered.simd,
        "operators": [{"name": s.name, "op": s.op, "kernel": s.kernel} for s in lowered.steps],
    }


def _describe_tensor(t: Tensor) -> dict[str, Any]:
    scale = zero_point = None
    if t.quant is not None and not t.quant.per_channel:
        scale, zero_point = float(t.quant.scale.flat[0]), int(t.quant.zero_point.flat[0])
    return {
        "name": t.name,
        "dtype": t.dtype.value,
        "shape": list(t.shape),
        "scale": scale,
        "zero_point": zero_point,
    }


def emit(plan: Plan) -> str:
    """The text of run.c."""
    places = _Places(plan)
    lowered = plan.lowered
    kernels = kernels_of(plan)
    headers = sorted({k.header for k in kernels} | {"kernel.h"})
    parts = [f'#include "{h}"' for h in headers]
    parts.append('#include <math.h>\n#include "runtime/clock.h"\n')
    whole = {c.kernel.symbol for s in lowered.steps for c in s.calls if c.tasks is None}
    parts += [
        f"void {k.symbol}(const void *, {'ek_pool *' if k.symbol in whole else 'long, long'});"
        for k in kernels
    ]
    parts.append("void ek_stamps_finish(uint64_t *, int, uint64_t);\n")
    parts.append(f"static const char description[] = {_c_string(json.dumps(describe(plan)))};\n")
    parts.append("int ek_abi(void) { return EK_ABI; }")
    parts.append("const char *ek_describe(void) { return description; }")
    parts.append(f"int ek_operators(void) {{ return {len(lowered.steps)}; }}\n")
    parts.append(_reset(plan))
    parts.append(_run(lowered.steps, places))
    return "\n".join(parts)


def _reset(plan: Plan) -> str:
    lines = [
        f"    memcpy((char *)m->state + {slot.offset}, "
        f"(const char *)m->weights + {slot.initial.offset}, {slot.bytes});"
        for slot in plan.lowered.states.values()
    ]
    lines = ["void ek_reset(const ek_model *m) {", *(lines or ["    (void)m;"])]
    return "\n".join([*lines, "}\n"])


def _run(steps: tuple[Step, ...], places: _Places) -> str:
    body = [
        "int ek_run(const ek_model *m, const void *const *in, void *const *out) {",
        "    const char *const w = m->weights;",
        "    char *const a = m->arena, *const s = m->state;",
        "    ek_pool *const pool = m->pool;",
        "    uint64_t *const stamps = m->stamps, start = stamps ? ek_nanoseconds() : 0;",
        "    (void)w, (void)a, (void)s, (void)in, (void)out, (void)pool;",
        "    if (stamps)",
        "        stamps[0] = ek_ticks();",
    ]
    for index, step in enumerate(steps, 1):
        body.append(f"    {{ /* {_comment(step.name)}: {step.op} */")
        body += [line for call in step.calls for line in _call(call, places)]
        body.append("    }")
        body.append(f"    if (stamps)\n        stamps[{index}] = ek_ticks();")
    body += [
        "    if (stamps)",
        f"        ek_stamps_finish(stamps, {len(steps)}, ek_nanoseconds() - start);",
        "    return 0;",
        "}\n",
    ]
    return "\n".join(body)


def _comment(text: str) -> str:
    """Text of a model file inside a C comment: nothing in it may end the comment."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "_-./:" else "_" for c in text)


def _call(call: Call, places: _Places) -> list[str]:
    fields = ", ".join(f".{k} = {_field(v, places)}" for k, v in call.fields.items())
    wrapped = textwrap.wrap(
        fields + "};", 92, initial_indent=" " * 12, subsequent_indent=" " * 12,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    symbol = call.kernel.symbol
    shared = f"ek_parallel(pool, {symbol}, &c, {call.tasks}, {call.grain});"
    return [
        "        {",
        f"            const {call.kernel.args} c = {{",
        *wrapped,
        f"            {f'{symbol}(&c, pool);' if call.tasks is None else shared}",
        "        }",
    ]


def _field(value: Field, places: _Places) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Value):
        return places.address(value)
    if isinstance(value, Weights):
        return f"(const void *)(w + {value.offset})"
    if isinstance(value, tuple):
        return "{" + ", ".join(_field(v, places) for v in value) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f".{k} = {_field(v, places)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return _c_float(value)
    return str(value)


def _c_float(value: float) -> str:
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return float(np.float32(value)).hex() + "f"


def _c_string(text: str) -> str:
    """A C string literal, in pieces short enough for any compiler."""
    data = text.encode("ascii")
    escaped = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data)
    pieces, at = [], 0
    while at < len(escaped):
        end = min(at + 900, len(escaped))
        # A piece must not end inside an octal escape.
        while end < len(escaped) and "\\" in escaped[end - 3 : end]:
            end -= 1
        pieces.append(f'"{escaped[at:end]}"')
        at = end
    return "\n    ".join(pieces) or '""'


class _Places:
    """Where each buffer is, as a C expression."""

    def __init__(self, plan: Plan) -> None:
        lowered = plan.lowered
        self._aliases = lowered.aliases
        self._base: dict[str, tuple[str, int]] = {
            name: ("a", offset) for name, offset in plan.memory.offsets.items()
        }
        self._base |= {n: ("w", c.offset) for n, c in lowered.constants.items()}
        self._base |= {n: ("s", slot.offset) for n, slot in lowered.states.items()}
        for i, t in enumerate(lowered.inputs):
            self._base[t.name] = (f"(const char *)in[{i}]", 0)
        for i, buffer in enumerate(lowered.output_buffers):
            self._base[buffer] = (f"(char *)out[{i}]", 0)

    def address(self, value: Value) -> str:
        alias = base_of(self._aliases, value.tensor)
        pointer, offset = self._base[alias.base]
        return f"(void *)({pointer} + {offset + alias.offset + value.offset})"
