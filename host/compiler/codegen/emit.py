"""Plan → run.c: `run()`, which calls the kernels in order, and the model's description."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from edgekit.host.compiler.codegen.section import SectionCode
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.lowering.plan import Kernel, Plan, calls_of


def kernels_of(plan: Plan) -> list[Kernel]:
    """All kernel instances that the plan calls, deduplicated by symbol."""
    found = {c.kernel.symbol: c.kernel for s in plan.lowered.steps for c in calls_of(s.calls)}
    return [found[symbol] for symbol in sorted(found)]


def parts_of(plan: Plan) -> list[Kernel]:
    """Kernels called only by other kernels, deduplicated by symbol."""
    called = kernels_of(plan)
    found = {part.symbol: part for kernel in called for part in kernel.parts}
    return [found[symbol] for symbol in sorted(found.keys() - {k.symbol for k in called})]


def describe(plan: Plan) -> dict[str, Any]:
    """The description returned by ek_describe (see device/kernels/ek.h)."""
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


def emit(plan: Plan, code: Sequence[SectionCode]) -> str:
    """Returns the text of run.c; `code` is the generated code of the plan's sections."""
    parts = ['#include <math.h>\n#include "runtime/clock.h"\n#include "runtime/units.h"\n']
    parts += [
        f"void {symbol}(const ek_inference *);" for symbol in sorted({c.symbol for c in code})
    ]
    parts.append("void ek_stamps_finish(uint64_t *, int, uint64_t);\n")
    parts.append(f"static const char description[] = {_c_string(json.dumps(describe(plan)))};\n")
    parts.append("int ek_abi(void) { return EK_ABI; }")
    parts.append("const char *ek_describe(void) { return description; }")
    parts.append(f"int ek_operators(void) {{ return {len(plan.lowered.steps)}; }}\n")
    parts.append(_emit_reset(plan))
    parts.append(_emit_run(plan, code))
    return "\n".join(parts)


def _emit_reset(plan: Plan) -> str:
    lines = [
        f"    memcpy((char *)m->state + {slot.offset}, "
        f"(const char *)m->weights + {slot.initial.offset}, {slot.bytes});"
        for slot in plan.lowered.states.values()
    ]
    lines = ["void ek_reset(const ek_model *m) {", *(lines or ["    (void)m;"])]
    return "\n".join([*lines, "}\n"])


def _emit_run(plan: Plan, code: Sequence[SectionCode]) -> str:
    count = len(plan.lowered.steps)
    body = [
        "int ek_run(const ek_model *m, const void *const *in, void *const *out) {",
        "    uint64_t *const stamps = m->stamps, start = stamps ? ek_nanoseconds() : 0;",
        "    (void)in, (void)out;",
        "    if (stamps)",
        "        stamps[0] = ek_ticks();",
    ]
    for section, made in zip(plan.sections, code, strict=True):
        offsets = textwrap.wrap(", ".join(map(str, made.offsets)) or "0", 88)
        body += [
            "    {",
            "        static const size_t at[] = {",
            *(f"            {line}" for line in offsets),
            "        };",
            f"        {made.symbol}(&(ek_inference){{m, in, out, at, {section.first}, m->pool}});",
            "    }",
        ]
    body += [
        "    if (stamps)",
        f"        ek_stamps_finish(stamps, {count}, ek_nanoseconds() - start);",
        "    return 0;",
        "}\n",
    ]
    return "\n".join(body)


def _c_string(text: str) -> str:
    """A C string literal, split into pieces short enough for any compiler."""
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
