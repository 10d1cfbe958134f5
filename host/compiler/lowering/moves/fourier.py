"""Lowers Fourier transforms of floats to Stockham's steps, with their tables."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Node
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_RADICES = (4, 2, 3, 5)  # with steps of their own; 4 first, as its results fill vectors
_TASKS = 8  # at most, as each has memory of its own


class _Tables(NamedTuple):
    """Arguments of the same names in f32_fourier.c."""

    radices: list[int]
    twiddles: Array


@lowers(ops.Fourier)
def lower_fourier(ctx: Context, node: Node) -> list[KernelCall]:
    op, x = node.op, ctx.tensor(node.inputs[0])
    assert isinstance(op, ops.Fourier)
    samples = op.returns_real or (not op.inverse and x.shape[2] == 1)
    real = samples and op.points % 2 == 0
    points = op.points // 2 if real else op.points
    frames = op.frames(x)
    total = x.shape[0] * frames
    per_task = math.ceil(total / _TASKS)
    tasks = math.ceil(total / per_task)
    tables = _tables(points)
    scale = (1 / points if op.inverse else 1.0) / (2 if real else 1)
    fields: dict[str, Field] = {
        "frames": frames,
        "step": op.step,
        "length": op.length,
        "row": x.shape[1],
        "pair": x.shape[2],
        "shown": op.shown,
        "planar": 2 if op.returns_real else int(op.planar),
        "points": points,
        "radices": ctx.weights.add(np.array([*tables.radices, 0], np.int32)),
        "twiddles": ctx.weights.add(tables.twiddles),
        "scale": float(np.float32(scale)),
        "x": operand_of(ctx, x),
        "y": Value(node.outputs[0]),
        "work": ctx.scratch(node, tasks * 4 * points * x.dtype.bytes),
        "per_task": per_task,
        "total": total,
    }
    if not op.inverse:
        window = node.inputs[1] if len(node.inputs) > 1 else None
        ones = np.ones(op.length, np.float32)
        fields["window"] = (
            ctx.weights.add(ones) if window is None else operand_of(ctx, ctx.tensor(window))
        )
    macros: dict[str, str | int] = {}
    if real:
        turns = np.pi * np.arange(points) / points
        last = scale * np.stack([np.cos(turns), np.sin(turns)])
        fields["last"] = ctx.weights.add(last.astype(np.float32))
        macros["REAL"] = 1
    if op.inverse:
        macros["INVERSE"] = 1
    name = "_".join(["f32_fourier", *(key.lower() for key in macros)])
    kernel = ctx.kernel(name, "signal/f32_fourier.c", None, "ek_f32_fourier_args", **macros)
    return [KernelCall(kernel, fields, tasks)]


def _tables(points: int) -> _Tables:
    radices = _factors(points)
    made: list[Array] = [np.zeros(0)]
    count = points
    for radix in radices:
        turns = np.outer(np.arange(1, radix), np.arange(count // radix)) / count
        made.append(_circle(turns).transpose(1, 0, 2).reshape(-1))
        if radix not in _RADICES:
            made.append(_circle(np.arange(radix) / radix).reshape(-1))
        count //= radix
    return _Tables(radices, np.concatenate(made).astype(np.float32))


def _circle(turns: Array) -> Array:
    """Cosines and negative sines [2, …]: forward twiddles."""
    angles = -2 * np.pi * turns
    return np.stack([np.cos(angles), np.sin(angles)])


def _factors(points: int) -> list[int]:
    """The radices of all steps: preferred ones, then other primes."""
    found = []
    for radix in _RADICES:
        while points % radix == 0:
            found.append(radix)
            points //= radix
    prime = 7
    while points > 1:
        if prime * prime > points:
            prime = points
        while points % prime == 0:
            found.append(prime)
            points //= prime
        prime += 2
    return found
