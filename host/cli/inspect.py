"""`edgekit inspect`: a model's contents, unsupported parts, and resource needs on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from edgekit.device.runtime.agent.task import CORNER, LETTERBOX
from edgekit.host.cli.compile_options import InputShapes, one_input_shape
from edgekit.host.cli.options import (
    BoardOption,
    FileKind,
    Json,
    ModelOnly,
    Signature,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.task import TaskSpec
    from edgekit.host.compiler.frontends.common.outline import Slot
    from edgekit.host.compiler.inspect import Inspection, ModelMemory
    from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision

_ROWS = 40  # rows of each list; --json is not limited
_NAME = 60
_LAYER = 32  # characters of a layer's name: those at its end tell layers apart


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "inspect",
        epilog=examples(
            "edgekit inspect models/face_detection_short_range.tflite",
            "edgekit inspect model.onnx --board a57 --input-shape image=1,3,224,224",
            "edgekit inspect model.onnx --json",
        ),
    )(inspect)


def inspect(
    model: ModelOnly = None,
    board: BoardOption = None,
    input_shape: InputShapes = None,
    signature: Signature = "",
    as_json: Json = False,
) -> None:
    """Show what a model contains, and what is not supported."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import working
    from edgekit.host.compiler.inspect import inspect_signatures
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    path = model_file(model)
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle; name the model it was made of")
    name = board_name(board)
    profile, shapes = load_board(profile_of(name)), one_input_shape(input_shape, path)
    with working(f"inspecting {path.name}"):
        options = CompileOptions(shapes=shapes, signatures=(signature,) if signature else ())
        found = inspect_signatures(path, profile, options)
    if as_json:
        documents = [_to_json(each, name) for each in found]
        more = {"signatures": documents} if len(documents) > 1 else {}
        emit({"schema": "edgekit.inspect/1", **documents[0], **more})
        return
    for number, each in enumerate(found):
        print(end="\n" if number else "")
        _print_inspection(each, name)


def _to_json(found: Inspection, board: str) -> dict[str, Any]:
    """The fields of the document edgekit.inspect/1 that describe a model, or one signature."""
    return {
        **({"signature": found.signature} if found.signature else {}),
        "model": found.model,
        "format": found.format,
        "board": board,
        "compiles": found.reason is None,
        "reason": found.reason,
        "inputs": [asdict(slot) for slot in found.inputs],
        "outputs": [asdict(slot) for slot in found.outputs],
        "states": [asdict(slot) for slot in found.states],
        "operators": [asdict(entry) for entry in found.operators],
        "unsupported": [
            {
                "kind": entry.operators.kind,
                "count": len(entry.operators.places),
                "places": list(entry.operators.places),
                "instead": entry.instead,
            }
            for entry in found.missing
        ],
        "multiply_adds": found.multiply_adds,
        "parameters": {"count": found.parameters, "bytes": found.parameter_bytes},
        "memory": asdict(found.memory),
        "task": asdict(found.task) if found.task else None,
        "notes": list(found.notes),
        "sparse": [asdict(layer) for layer in found.sparse],
    }


def _print_inspection(found: Inspection, board: str) -> None:
    from edgekit.host.cli.output import byte_size, table

    print(f"model          {_printable_name(found.model)}, {found.format}")
    if found.signature:
        print(f"signature      {found.signature}")
    verdict = "compiles" if found.reason is None else f"does not compile: {found.reason}"
    print(f"verdict        {_one_line(verdict)}")
    for word, slots in (
        ("input", found.inputs),
        ("output", found.outputs),
        ("state", found.states),
    ):
        for slot in slots[:_ROWS]:
            print(f"{word:<14} {_format_slot(slot)}")
        if len(slots) > _ROWS:
            print(f"{word:<14} and {len(slots) - _ROWS} more")
    adds = "unknown: the file leaves shapes open" if found.multiply_adds is None else None
    print(f"multiply-adds  {adds or f'{found.multiply_adds:,}'}")
    print(f"parameters     {found.parameters:,}, {byte_size(found.parameter_bytes)}")
    print(f"memory         {_format_memory(found.memory)} on {board}")
    if found.task:
        print(f"task           {_one_line(_format_task(found.task, found.task_source))}")
    elif found.task_source:
        print(f"task           {_one_line(found.task_source)}")
    for line in found.notes:
        print(f"note           {_one_line(line)}")
    for entry in found.missing[:_ROWS]:
        print(f"unsupported    {entry.operators}: {entry.instead}")
    rows = [
        (_printable_name(entry.kind), str(entry.count), "" if entry.supported else "not supported")
        for entry in found.operators[:_ROWS]
    ]
    if len(found.operators) > _ROWS:
        rows.append((f"and {len(found.operators) - _ROWS} more kinds", "", ""))
    print()
    table(("operator", "count", ""), rows)
    _print_sparse(found.sparse)


def _print_sparse(layers: Sequence[SparseDecision]) -> None:
    """Prints how pruned layers run, if there are any."""
    from edgekit.host.cli.output import table

    if not layers:
        return
    print()
    rows = []
    for each in layers[:_ROWS]:
        name = _printable_name(each.name)
        name = name if len(name) <= _LAYER else f"…{name[1 - _LAYER :]}"
        costs = ("-" if t is None else f"{t:.1f}" for t in (each.sparse_us, each.dense_us))
        rows.append((name, each.form, f"{each.density:.2f}", *costs))
    if len(layers) > _ROWS:
        rows.append((f"and {len(layers) - _ROWS} more", "", "", "", ""))
    table(("pruned layer", "runs", "density", "sparse µs", "dense µs"), rows, left=2)
    for times in dict.fromkeys(each.times for each in layers if each.times):
        print(f"times          {times}, on one thread")
    for why in dict.fromkeys(each.why for each in layers if each.form == "dense"):
        count = sum(each.why == why and each.form == "dense" for each in layers)
        print(f"dense          {counted(count, 'layer')}: {why}")


def _format_memory(memory: ModelMemory) -> str:
    from edgekit.host.cli.output import memory_text

    guessed = " (estimated from the file)" if memory.source == "file" else ""
    return memory_text(memory.arena_bytes, memory.weights_bytes, memory.state_bytes) + guessed


def _format_slot(slot: Slot) -> str:
    dims = ("any shape",) if slot.shape is None else slot.shape
    sizes = ", ".join("?" if d is None else _printable_name(str(d)) for d in dims)
    quant = "" if slot.scale is None else f", scale {slot.scale:g}, zero point {slot.zero_point}"
    return f"{_printable_name(slot.name)}: {slot.dtype} [{sizes}]{quant}"


def _printable_name(name: str) -> str:
    """A name from the model file, shortened and free of terminal control characters."""
    from edgekit.host.common.text import printable

    return printable(name, _NAME)


def _one_line(text: str) -> str:
    from edgekit.host.common.text import printable

    return printable(text)


def _format_task(task: TaskSpec, source: str) -> str:
    count = len(task.labels)
    labels = "1 label" if count == 1 else f"{count or 'no'} labels"
    if task.tokenizer:
        return f"{task.kind}, {source}: texts, {labels}"
    if task.rate:
        return f"{task.kind}, {source}: {task.rate} samples per second, {labels}"
    fill = f" filled with {task.fill}" if task.fit in (LETTERBOX, CORNER) else ""
    part = f" of {100 / task.zoom:.3g}%" if task.zoom != 1 else ""
    by = f" {task.filter}" if task.filter else ""
    mean, scale = (",".join(f"{v:.6g}" for v in values) for values in (task.mean, task.scale))
    pixels = f"{task.channels}, mean {mean}, scale {scale}" if scale else task.channels
    return f"{task.kind}, {source}: {task.fit}{part}{fill}{by}, {pixels}, {labels}"
