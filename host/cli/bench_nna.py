"""`edgekit lab bench nna`: the cost of a product on a board's convolution accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import BoardOption, Json, examples, writes
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.bench.nna import NnaBenchmark, Product

_BOARD = "nna2"


_Shape = Annotated[
    str | None,
    typer.Option(
        "--shape", metavar="M,K,N", show_default=False, help="R[m, n] = A[m, k] times F[k, n]."
    ),
]
_Conv = Annotated[
    str | None,
    typer.Option(
        "--conv",
        metavar="H,W,IC,OC",
        show_default=False,
        help="A 3x3 convolution of an image instead, padding 1.",
    ),
]
_Depthwise = Annotated[
    str | None,
    typer.Option(
        "--depthwise",
        metavar="H,W,C",
        show_default=False,
        help="A 3x3 depthwise convolution of an image, padding 1.",
    ),
]
_Pointwise = Annotated[
    str | None,
    typer.Option(
        "--pointwise",
        metavar="P,IC,OC",
        show_default=False,
        help="A 1x1 convolution of P points, or a fully connected layer of P rows.",
    ),
]
_Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        parser=writes("trace.json"),
        metavar="FILE",
        show_default=False,
        help="Write a trace of the instructions, for Perfetto or Chrome.",
    ),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group `bench`."""
    group.command(
        "nna",
        epilog=examples(
            "edgekit lab bench nna --shape 64,576,1024 --board nna2",
            "edgekit lab bench nna --conv 64,64,64,64 --board nna1 --json",
            "edgekit lab bench nna --pointwise 144,256,64    # points, channels in and out",
            "edgekit lab bench nna --shape 4,18,512 --trace trace.json    # ui.perfetto.dev",
        ),
    )(bench_nna)


def bench_nna(
    shape: _Shape = None,
    conv: _Conv = None,
    depthwise: _Depthwise = None,
    pointwise: _Pointwise = None,
    stride: Annotated[
        int, typer.Option("--stride", min=1, max=2, help="Stride of the convolution.")
    ] = 1,
    board: BoardOption = None,
    trace: _Trace = None,
    as_json: Json = False,
) -> int:
    """Emulate a product on the NNA of a board, cycle by cycle."""
    from edgekit.host.cli.output import check_writable, emit, note
    from edgekit.host.cli.progress import working
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.bench.nna import bench_nna as bench
    from edgekit.kb.targets.board import load_board

    profile = load_board(profile_of(board or _BOARD))
    product = _parse_product(
        {"--shape": shape, "--conv": conv, "--depthwise": depthwise, "--pointwise": pointwise},
        stride,
    )
    if trace:
        check_writable(trace)
    with working(f"emulating {profile.name}"):
        found = bench(profile, product, trace)
    if trace:
        note(f"{trace}: {found.traced} events; open it in ui.perfetto.dev or chrome://tracing")
    if as_json:
        emit(_to_json(found))
    else:
        _print_report(found)
    return 0 if found.correct else 1


def _parse_product(given: Mapping[str, str | None], stride: int) -> Product:
    from edgekit.host.lab.bench.nna import Conv, Depthwise, Matmul, Pointwise

    named = {option: text for option, text in given.items() if text is not None}
    if len(named) != 1:
        raise InputError(
            f"expected one of {', '.join(given)}, found {' and '.join(named) or 'none'}; name one"
        )
    ((option, text),) = named.items()
    if stride != 1 and option not in ("--conv", "--depthwise"):
        raise InputError(
            f"expected --stride {stride} with --conv or --depthwise, found it with {option}; "
            "leave it out"
        )
    if option == "--shape":
        return Matmul(*_parse_numbers(option, text, "M,K,N"))
    if option == "--pointwise":
        return Pointwise(*_parse_numbers(option, text, "P,IC,OC"))
    if option == "--depthwise":
        height, width, channels = _parse_numbers(option, text, "H,W,C")
        return Depthwise(height, width, channels, stride)
    height, width, inputs, outputs = _parse_numbers(option, text, "H,W,IC,OC")
    return Conv(height, width, inputs, outputs, stride)


def _parse_numbers(option: str, text: str, form: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != form.count(",") + 1 or not all(p.isascii() and p.isdigit() for p in parts):
        raise InputError(f"expected {option} {form} as whole numbers, found {text!r}")
    return [int(part[:20]) for part in parts]


def _to_json(found: NnaBenchmark) -> dict[str, Any]:
    from edgekit.host.lab.bench.nna import KINDS

    ratio = found.python.median_ms / found.native_account.median_ms if found.python else None
    return {
        "schema": "edgekit.bench.nna/1",
        "board": found.board,
        "emulated": True,
        "product": {"kind": KINDS[type(found.product)], **asdict(found.product)},
        "correct": found.correct,
        "account": found.account.document(),
        "chip": {
            origin.name: {"value": getattr(found.unit.chip, origin.name), origin.kind: origin.text}
            for origin in found.unit.origins
        },
        "emulation": {
            "native": asdict(found.native),
            "native_account": asdict(found.native_account),
            "python": found.python and asdict(found.python),
            "python_over_native": ratio,
        },
    }


def _print_report(found: NnaBenchmark) -> None:
    from edgekit.host.cli.output import byte_size, table

    a = found.account
    print(f"{found.product.text} on {found.board} (emulated), {_format_verdict(found)}")
    rows = [
        ("with overlap", a.cycles, "as the chip runs it"),
        ("without", a.serial_cycles, "the same stream, waiting for every MAC"),
        ("thread", a.load_cycles, "if MACs took no time"),
        ("array", a.mac_cycles, "all MACs, one after the other"),
        ("tail", a.tail_cycles, "the channels left to the core, part of all but the array's"),
        ("vector unit", a.vector_cycles, "the product without the NNA"),
    ]
    table(("", "", "cycles"), [(name, what, f"{n:,}") for name, n, what in rows], left=2)
    stalls = ", ".join(f"{cause} {n:,}" for cause, n in a.stalls.items() if n) or "none"
    share = a.document()["useful_share"]
    print(f"stalls   {stalls}")
    print(f"MACs     {a.macs_done:,} done, {a.macs_useful:,} useful ({share:.1%})")
    print(
        f"memory   {byte_size(a.bytes_loaded)} loaded, {byte_size(a.bytes_stored)} stored, "
        f"rearranged weights {byte_size(a.weight_image_bytes)}"
    )
    print(f"weights  {a.weight_loads:,} sets loaded, {a.weight_loads_saved:,} saved by reuse")
    print(f"better   {'the NNA' if a.better == 'nna' else 'the vector unit'}")
    speed = found.native.useful_per_second / 1e6
    slower = (
        f", python {found.python.median_ms / found.native_account.median_ms:,.0f} times slower"
        if found.python
        else ""
    )
    print(f"emulated in {found.native.median_ms:.3f} ms ({speed:,.0f} M useful MAC/s){slower}")


def _format_verdict(found: NnaBenchmark) -> str:
    return "sums equal NumPy's" if found.correct else "SUMS DIFFER FROM NUMPY'S: report this"
