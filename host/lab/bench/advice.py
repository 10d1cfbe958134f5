"""Commands to try for a slow model, given measured or estimated times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.kb.targets.board import BoardProfile

_TO_QUANTIZE = ("fully_connected", "matmul")  # operators that --weights applies to
OF_BYTES = ("outlier_fully_connected",)  # products of bytes, whatever their tensors are
_TO_PRUNE = ("conv2d", "fully_connected")  # operators with sparse kernels


@dataclass(frozen=True)
class BenchTarget:
    """What was timed: the model's file or name, as a command accepts it; the board's name and
    profile; the compiler's report on the release, None if unknown on this host; and the `command`
    that timed it."""

    model: str
    board: str
    profile: BoardProfile
    explained: Mapping[str, Any] | None
    command: str = "bench model"


def move_less(made: Sequence[Mapping[str, Any]], target: BenchTarget) -> str:
    """How to reduce the bytes moved by the heaviest of these operators of the report."""
    heaviest = max(made, key=lambda o: int(o["bytes"]))
    if heaviest["precision"] != "f32":
        compile_command = f"edgekit compile {model_arguments(target)}"
        return f"less memory between operators: {compile_command} --order memory"
    if target.profile.computes_half:
        return f"half the bytes: {bench_command(target)} --precision f16"
    fewer = ""
    if 2 * heaviest.get("constant_bytes", 0) > heaviest["bytes"]:
        fewer = _prune_advice(heaviest, target)
        if heaviest["op"] in _TO_QUANTIZE:
            how = "--weights int8"
            return f"a quarter of the weights: {bench_command(target)} {how}{fewer}"
    return f"8 bits move a quarter of the bytes: {_quantize_command(target)}{fewer}"


def multiply_less(made: Mapping[str, Any], target: BenchTarget) -> str:
    """What to try where an operator's multiply-adds take its time."""
    if made["op"] in OF_BYTES or target.profile.isa.vl == 1:  # bytes are no faster without vectors
        return _other_model(target)
    if made["precision"] == "f32" and target.profile.computes_half:
        return f"twice the products at a time: {bench_command(target)} --precision f16"
    if made["precision"] in ("f32", "f16"):
        return f"8 bits are faster: {_quantize_command(target)}{_prune_advice(made, target)}"
    return _other_model(target)


def _other_model(target: BenchTarget) -> str:
    return f"a smaller model, or a faster board: edgekit estimate {target.model} --board BOARD"


def fewer_threads(threads: int, target: BenchTarget) -> str:
    """What to try where the calls of operators dominate."""
    if threads > 1:
        return f"use one thread: {bench_command(target)} --threads 1"
    return other_orders(target)


def other_orders(target: BenchTarget) -> str:
    return f"other orders: edgekit lab tune model --orders 6 {model_arguments(target)}"


def other_methods(how: str, target: BenchTarget) -> str:
    """What to try if a kernel is far from the core's limits; `how` names the kind of tuning."""
    return f"{how}: edgekit lab tune model {model_arguments(target)}"


def bench_command(target: BenchTarget) -> str:
    return f"edgekit {target.command} {model_arguments(target)}"


def model_arguments(target: BenchTarget) -> str:
    return f"{target.model}{board_option(target)}"


def board_option(target: BenchTarget) -> str:
    return f" --board {target.board}"


def _quantize_command(target: BenchTarget) -> str:
    return f"edgekit quantize {target.model} --samples samples.npz{board_option(target)}"


def _prune_advice(made: Mapping[str, Any], target: BenchTarget) -> str:
    """The alternative for float operators with weights; the prune command reports which of the
    layers will run sparse."""
    if made["op"] not in _TO_PRUNE:
        return ""
    command = f"edgekit prune {target.model} --samples samples.npz{board_option(target)}"
    return f"; or prune weights: {command}"
