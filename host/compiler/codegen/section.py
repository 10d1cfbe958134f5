"""A section of the plan → one C file: the calls of one subgraph, compiled separately.

The text is independent of the rest of the model: addresses of buffers and weights come from a table
passed by run(), and the function name is derived from the content. An unchanged subgraph is
therefore found in the object cache even if its neighbors changed.
"""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.lowering.plan import (
    Field,
    Kernel,
    KernelCall,
    LoopCall,
    Move,
    Plan,
    Section,
    Step,
    Value,
    Weights,
    base_of,
    calls_of,
)
from edgekit.host.compiler.toolchain.zig import kernels_folder

_BASES = """\
    const ek_model *const m = i->model;
    const char *const w = m->weights;
    char *const a = m->arena, *const s = m->state;
    const void *const *const in = i->in;
    void *const *const out = i->out;
    const size_t *const at = i->at;
    (void)w, (void)a, (void)s, (void)in, (void)out, (void)at;\
"""


_MANY = 32  # calls or steps per function; compile time is quadratic in a function's length
_LONG = 128  # steps up to which one function suffices
_APART = "static __attribute__((noinline)) void"


@dataclass(frozen=True)
class SectionCode:
    """A C file whose function `symbol` (the macro NAME) runs a section, given its `offsets`."""

    symbol: str
    text: str
    offsets: tuple[int, ...]


def section_code(plan: Plan, section: Section) -> SectionCode:
    """Generates a section's code and the offset table that it reads."""
    places = _Places(plan)
    steps = plan.lowered.steps[section.first : section.last]
    calls = [call for step in steps for call in calls_of(step.calls)]
    headers = {call.kernel.header for call in calls if call.kernel.header} | {"kernel.h"}
    lines = [f'#include "{h}"' for h in sorted(headers)]
    lines.append('#include <math.h>\n#include "runtime/clock.h"\n#include "runtime/units.h"\n')
    lines += sorted(
        {_arguments_typedef(call.kernel) for call in calls if call.kernel.header is None}
    )
    lines += sorted({_prototype(call) for call in calls})
    lines.append("void NAME(const ek_inference *);\n")
    shared = section.queues
    lines += _side_by_side(steps, section, places) if shared else _in_order(steps, places)
    text = "\n".join(lines) + "\n"
    symbol = f"ek_subgraph_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return SectionCode(symbol, text, places.offsets)


def _in_order(steps: tuple[Step, ...], places: _Places) -> list[str]:
    """Steps in sequence, each on the entire pool; long sections are split into functions."""
    if len(steps) <= _LONG:
        return _emit_function("void NAME", steps, 0, places)
    lines, calls = [], []
    for first in range(0, len(steps), _MANY):
        some = steps[first : first + _MANY]
        name = f"steps_{first}"
        lines += _emit_function(f"{_APART} {name}", some, first, places)
        calls.append(f"    {name}(i);")
    return [*lines, "void NAME(const ek_inference *i) {", *calls, "}"]


def _emit_function(head: str, steps: tuple[Step, ...], first: int, places: _Places) -> list[str]:
    """A function that runs `steps`; `first` is the index of the first one within the section."""
    parts: list[str] = []
    body = [
        f"{head}(const ek_inference *i) {{",
        _BASES,
        "    ek_pool *const pool = i->pool;",
        "    uint64_t *const stamps = m->stamps ? m->stamps + i->first : NULL;",
        "    (void)pool;",
    ]
    for index, step in enumerate(steps, first + 1):
        body += [
            *_emit_step(step, places, parts, index),
            f"    if (stamps)\n        stamps[{index}] = ek_ticks();",
        ]
    return [*parts, *body, "}"]


def _side_by_side(steps: tuple[Step, ...], section: Section, places: _Places) -> list[str]:
    """One function per step, and one queue of steps per unit."""
    body: list[str] = []
    for index, step in enumerate(steps):
        parts: list[str] = []
        lines = _emit_step(step, places, parts, index)
        body += [
            *parts,
            f"static void step_{index}(const ek_inference *i, int number) {{",
            _BASES,
            "    ek_pool *const pool = i->pool;",
            "    (void)pool, (void)number;",
            *lines,
            "}\n",
        ]
    for unit, queue in enumerate(section.queues):
        body.append(f"static const ek_step queue_{unit}[] = {{")
        for waiting in queue:
            after = ", ".join(map(str, waiting.after))
            body.append(f"    {{step_{waiting.step}, {waiting.step}, {{{after}}}}},")
        body.append("};\n")
    queues = ", ".join(f"{{queue_{u}, {len(q)}}}" for u, q in enumerate(section.queues))
    return [
        *body,
        "void NAME(const ek_inference *i) {",
        f"    static const ek_queue queues[] = {{{queues}}};",
        f"    ek_run_units(i, queues, {len(section.queues)});",
        "    if (i->model->stamps)",
        f"        ek_stamps_add(i->model->stamps + i->first, {len(steps)});",
        "}",
    ]


def _emit_step(step: Step, places: _Places, parts: list[str], index: int) -> list[str]:
    """The calls of one step; if many, they are split into functions appended to `parts`."""
    calls = _emit_calls(step.calls, places, parts, f"part_{index}")
    return [f"    {{ /* {_escape_comment(step.name)}: {step.op} */", *calls, "    }"]


def _emit_calls(
    calls: Sequence[KernelCall | LoopCall], places: _Places, parts: list[str], name: str
) -> list[str]:
    """Calls and loops in order. Functions appended to `parts` get the name prefix `name`."""
    if len(calls) <= _MANY:
        return [
            line
            for i, call in enumerate(calls)
            for line in (
                _emit_loop(call, places, parts, f"{name}_{i}")
                if isinstance(call, LoopCall)
                else _emit_call(call, places)
            )
        ]
    lines = []
    for first in range(0, len(calls), _MANY):
        own = f"{name}_{first}"
        body = _emit_calls(calls[first : first + _MANY], places, parts, own)
        parts += [
            f"{_APART} {own}(const ek_inference *i) {{",
            _BASES,
            "    ek_pool *const pool = i->pool;",
            "    (void)pool;",
            *body,
            "}\n",
        ]
        lines.append(f"        {own}(i);")
    return lines


def _emit_loop(loop: LoopCall, places: _Places, parts: list[str], name: str) -> list[str]:
    """A C loop; only moves depend on the loop index."""
    going = ""
    if loop.going is not None:
        going = f" && *(const unsigned char *){places.address(loop.going)}"
    lines = [
        "        {",
        *(_emit_move(m, places) for m in loop.begin),
        "        long t = 0;",
        f"        for (; t < {loop.steps}{going}; t++) {{",
        *(_emit_move(m, places) for m in loop.before),
        *_emit_calls(loop.calls, places, parts, name),
        *(_emit_move(m, places) for m in loop.after),
        "        }",
    ]
    for value, size in loop.cleared:
        target = f"(char *){places.address(value)} + t * {size}L"
        lines.append(f"        memset({target}, 0, ({loop.steps} - t) * {size}L);")
    if loop.count is not None:
        lines.append(f"        *(int64_t *){places.address(loop.count)} = t;")
    return [*lines, "        }"]


def _emit_move(move: Move, places: _Places) -> str:
    target = f"(char *){places.address(move.target)}"
    source = f"(const char *){_format_field(move.source, places)}"
    if move.target_pitch:
        target += f" + t * {move.target_pitch}L"
    if move.source_pitch:
        source += f" + t * {move.source_pitch}L"
    return f"        memcpy({target}, {source}, {move.bytes});"


def _escape_comment(text: str) -> str:
    """Model text inside a C comment, escaped so that it cannot end the comment."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "_-./:" else "_" for c in text)


def _arguments_typedef(kernel: Kernel) -> str:
    """The C type of a kernel's arguments, as declared by its C file."""
    source = (kernels_folder() / kernel.source).read_text()
    found = re.search(rf"^typedef struct {{\n(?:(?!}}).*\n)*}} {kernel.args};\n", source, re.M)
    if found is None:
        raise ValueError(f"{kernel.source}: expected a typedef of {kernel.args}, found none")
    return found[0]


def _prototype(call: KernelCall) -> str:
    rest = "ek_pool *" if call.tasks is None else "long, long"
    return f"void {call.kernel.symbol}(const void *, {rest});"


def _emit_call(call: KernelCall, places: _Places) -> list[str]:
    fields = ", ".join(f".{k} = {_format_field(v, places)}" for k, v in call.fields.items())
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


def _format_field(value: Field, places: _Places) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Value):
        return places.address(value)
    if isinstance(value, Weights):
        return places.weights(value)
    if isinstance(value, tuple):
        return "{" + ", ".join(_format_field(v, places) for v in value) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f".{k} = {_format_field(v, places)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return _c_float(value)
    return str(value)


def _c_float(value: float) -> str:
    with np.errstate(over="ignore"):
        nearest = float(np.float32(value))
    if math.isnan(nearest):
        return "NAN"
    if math.isinf(nearest):
        return "INFINITY" if nearest > 0 else "-INFINITY"
    return nearest.hex() + "f"


class _Places:
    """Maps buffers to C expressions over an offset table, which grows with each new address."""

    def __init__(self, plan: Plan) -> None:
        self._plan, lowered = plan, plan.lowered
        self._aliases = lowered.aliases
        self._ends = {t.name: (f"(const char *)in[{i}]", 0) for i, t in enumerate(lowered.inputs)}
        for i, buffer in enumerate(lowered.output_buffers):
            self._ends[buffer] = (f"(char *)out[{i}]", 0)
        # Keyed by identity, not value: two offsets may be equal by coincidence.
        self._index: dict[tuple[str, str, int], int] = {}

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset table of the section whose addresses were requested."""
        return tuple(offset for _, _, offset in self._index)

    def _base(self, name: str) -> tuple[str, int]:
        """Where a buffer begins. Looked up in the plan: there may be a thousand sections."""
        lowered = self._plan.lowered
        if name in self._ends:
            return self._ends[name]
        if name in lowered.states:
            return "s", lowered.states[name].offset
        if name in lowered.constants:
            return "w", lowered.constants[name].offset
        return "a", self._plan.memory.offsets[name]

    def address(self, value: Value) -> str:
        alias = base_of(self._aliases, value.tensor)
        pointer, start = self._base(alias.base)
        within = alias.offset + value.offset
        if pointer not in ("a", "w", "s"):
            return f"(void *)({pointer} + {within})"
        return f"(void *)({pointer} + {self._table_entry(pointer, alias.base, start + within)})"

    def weights(self, value: Weights) -> str:
        return f"(const void *)(w + {self._table_entry('w', '', value.offset)})"

    def _table_entry(self, pointer: str, name: str, offset: int) -> str:
        index = self._index.setdefault((pointer, name, offset), len(self._index))
        return f"at[{index}]"
