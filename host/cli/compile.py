"""`edgekit compile`: compiles a model into a bundle for one board."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile_options import option_names, takes_compile_options
from edgekit.host.cli.options import (
    BoardOption,
    Counter,
    Explain,
    FileKind,
    Json,
    ModelOnly,
    board_name,
    examples,
    file_kind,
    file_named,
    model_file,
)
from edgekit.host.cli.pages import Html, utc_now, write_pages
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgekit.device.runtime.agent.specs import PlacementSpec
    from edgekit.host.compiler.frontends.pytorch.source import TorchSource
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.compiled import CompiledBundle
    from edgekit.host.report import Report
    from edgekit.kb.targets.board import BoardProfile


_Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE.ekb",
        show_default=False,
        help="Bundle to write (default: ./MODEL-BOARD.ekb).",
    ),
]
_ListOperators = Annotated[
    bool, typer.Option("--list-operators", help="List the operators that models may use, and exit.")
]
_NO_BUNDLES = frozenset((".so", ".a", ".o", ".c", ".h", ".tflite", ".onnx"))  # names of other files


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "compile",
        epilog=examples(
            "edgekit compile models/face_detection_short_range.tflite --board a57",
            "edgekit compile model.tflite -o model.ekb --explain why.json",
            "edgekit compile model.onnx --input-shape image=1,3,224,224",
            "edgekit compile ocr.onnx --input-shape x=1,3,48,320 --input-shape x=1,3,48,640",
            "edgekit compile net.prototxt",
            "edgekit compile llm.gguf --context 1024",
            "edgekit compile SmolLM2-135M-Instruct/ -o smollm2.gguf  # a folder of Hugging Face",
            "edgekit compile program.pt2        # of torch.export or torch.jit; fetches PyTorch",
            "edgekit compile network.py:make --input-shape x=1,3,224,224 -o network.onnx",
            "edgekit compile codec.tflite --signature encode",
            "edgekit compile model.tflite --samples samples.npz",
            "edgekit compile decoder.onnx --state 'past.*=present.*'",
            "edgekit compile --list-operators",
        ),
    )(compile_command)


@takes_compile_options(compiles=True)
def compile_command(
    model: ModelOnly = None,
    board: BoardOption = None,
    output: _Output = None,
    explain: Explain = None,
    html: Html = None,
    counter: Counter = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    list_operators: _ListOperators = False,
    as_json: Json = False,
) -> None:
    """Compile a model into a signed bundle for a board."""
    if list_operators:
        _list_operators(as_json)
        return
    from edgekit.device.runtime.agent.task import GENERATE
    from edgekit.host.compiler.frontends.gguf.hub import is_decoder_folder
    from edgekit.host.compiler.frontends.pytorch.source import torch_source

    def build(path: Path, options: CompileOptions) -> None:
        _compile_file(path, board, output, explain, html, counter, options, as_json)

    if (
        model is not None
        and not (output or "").endswith(".onnx")
        and is_decoder_folder(Path(model), {GENERATE: True, "none": False}.get(options.task))
    ):
        _compile_decoder(Path(model), output, options, build)
        return
    if model is not None and (source := torch_source(model)):
        _compile_torch(source, output, options, build)
        return
    build(model_file(model), options)


def _compile_decoder(
    folder: Path,
    output: str | None,
    options: CompileOptions,
    build: Callable[[Path, CompileOptions], None],
) -> None:
    """Converts a language model of Hugging Face, and compiles it or, for `-o FILE.gguf`, keeps the
    GGUF file."""
    from edgekit.host.cli.output import check_writable
    from edgekit.host.cli.progress import working
    from edgekit.host.common.files import atomic_write
    from edgekit.host.compiler.frontends.gguf.hub import convert

    kept = Path(output) if output and output.endswith(".gguf") else None
    if kept is not None:
        check_writable(kept)
    with tempfile.TemporaryDirectory() as work:
        made = Path(work) / f"{folder.resolve().name}.gguf"
        with working(f"converting {folder} to GGUF"):
            convert(folder, made)
        if kept is None:
            build(made, options)
            return
        atomic_write(kept, made.read_bytes())
        print(f"wrote    {kept}")


def _compile_torch(
    source: TorchSource,
    output: str | None,
    options: CompileOptions,
    build: Callable[[Path, CompileOptions], None],
) -> None:
    """Exports a PyTorch network, and compiles it or, for `-o FILE.onnx`, keeps the ONNX file."""
    from edgekit.host.cli.output import check_writable, note, warn
    from edgekit.host.cli.progress import working
    from edgekit.host.common.files import atomic_write
    from edgekit.host.compiler.frontends.pytorch.export import export

    kept = Path(output) if output and output.endswith(".onnx") else None
    if kept is not None:
        check_writable(kept)
    with tempfile.TemporaryDirectory() as folder:
        with working(f"exporting {source.path.name} with PyTorch"):
            made = export(source, options.shapes, Path(folder), warn)
        note(
            f"{source.path.name}: PyTorch {made.torch}; outputs agree: cosine {made.cosine:.6f}, "
            f"largest difference {made.largest:.2g}"
        )
        if kept is not None:
            atomic_write(kept, made.model.read_bytes())
            print(f"wrote    {kept}")
            return
        if source.kind != "program":  # whose open dimensions are still open
            options = replace(options, shapes={})
        build(made.model, options)


def _compile_file(
    path: Path,
    board: str | None,
    output: str | None,
    explain: Path | None,
    html: Path | None,
    counter: int | None,
    options: CompileOptions,
    as_json: bool,
) -> None:
    name = board_name(board)
    bundle_file = file_named(output or "", f"{path.stem}-{'-'.join(name.split())}.ekb")
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle; deploy it: edgekit deploy")
    for file in (bundle_file, html):
        if file is not None:
            _check_target(file, path)
    if bundle_file.suffix in _NO_BUNDLES:
        raise InputError(
            f"-o: expected the name of a bundle, found {bundle_file.name}; a bundle has "
            f"the library inside: -o {bundle_file.with_suffix('.ekb').name}"
        )
    bundle = compile_bundle(path, name, counter or 0, explain, options, html)
    bundle.write(bundle_file)
    _print_bundle(bundle, bundle_file, as_json)


def _print_bundle(bundle: Bundle, target: Path, as_json: bool) -> None:
    from edgekit.host.cli.output import byte_size, emit, show_variants

    manifest = bundle.manifest
    shapes = [variant.shapes for variant in manifest.every_variant()]
    signatures = [v.signature for v in manifest.every_variant() if v.signature]
    size = target.stat().st_size
    if as_json:
        emit(
            {
                "schema": "edgekit.compile/1",
                "model": manifest.model.name,
                "board": manifest.board.profile,
                "bundle": str(target),
                "release": manifest.id,
                "bundle_bytes": size,
                "arena_bytes": manifest.memory.arena_bytes,
                "weights_bytes": manifest.memory.weights_bytes,
                "state_bytes": manifest.memory.state_bytes,
                "operators": len(manifest.operators),
                "placements": [asdict(spec) for spec in manifest.placements],
                "loss": asdict(manifest.loss) if manifest.loss else None,
                "shapes": shapes,
                "signatures": signatures,
            }
        )
        return
    memory, count = manifest.memory, len(manifest.operators)
    states = f", states {byte_size(memory.state_bytes)}" if memory.state_bytes else ""
    print(
        f"{target}: release {manifest.id}, {byte_size(size)}, {count} operators, "
        f"arena {byte_size(memory.arena_bytes)}{states}"
    )
    show_variants(shapes, signatures)
    if manifest.placements:
        print(f"runs on {placement_text(manifest.placements[0])}")


def placement_text(spec: PlacementSpec) -> str:
    """Where a release runs by default, and why."""
    from edgekit.host.cli.output import duration

    where = "" if spec.cluster == "all" else f" of {spec.cluster}"
    where += f" ({spec.core})" if spec.core else ""
    cost, alone, unit = duration(spec.cost_us / 1e3, spec.alone_us / 1e3)
    why = f"{cost} {unit} by the cost model"
    why += "" if spec.threads == 1 else f", {alone} {unit} on one"
    return f"{threads_text(spec.threads)}{where}: {why}"


def threads_text(count: int) -> str:
    """A number of threads as text."""
    return f"{count} thread{'s' * (count != 1)}"


def compile_bundle(
    model: Path,
    board: str,
    counter: int = 0,
    explain: Path | None = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    html: Path | None = None,
    profile: BoardProfile | None = None,
    before: Callable[[], None] | None = None,
) -> Bundle:
    """Compiles `model` for `board` with progress output and signs the bundle. Writes the choices
    and their reasons to `explain`, and to `html` as a page that includes estimated times.

    `profile` is the profile to compile for (default: that of `board`). `before` is called if the
    compiler has to run, and may raise what speaks against it.
    """
    from edgekit.host.cli.progress import working
    from edgekit.host.common.files import atomic_write
    from edgekit.host.deploy.bundle import sign_bundle
    from edgekit.host.deploy.compiled import compiled
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    profile = profile or load_board(profile_of(board))
    if explain is not None:
        _check_target(explain, model)
    asked = explain is not None or html is not None
    busy = _after(before, working(f"compiling {model.name} for {board}"))
    found = compiled(model, profile, options, counter, asked, busy)
    _print_notes(model, found)
    bundle, explained = sign_bundle(found.bundle), found.explained or {}
    if explain is not None:
        atomic_write(explain, json.dumps(explained, indent=1).encode() + b"\n")
    explanations = [explained, *explained.get("variants", ())]
    write_pages(html, None, lambda: _report_of(bundle.manifest.id, profile.name, explanations))
    return bundle


@contextmanager
def _after(before: Callable[[], None] | None, busy: AbstractContextManager[None]) -> Iterator[None]:
    if before is not None:
        before()
    with busy:
        yield


def unsigned_bundle(file: Path, board: str, counter: int | None, options: CompileOptions) -> Bundle:
    """Like `load_bundle`, but unsigned, and without leaving any files behind."""
    from edgekit.host.cli.progress import working
    from edgekit.host.common.checked_files import scratch_of
    from edgekit.host.common.paths import cache_folder
    from edgekit.host.deploy.compiled import bundle_key, compile_now, recall
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    if file_kind(file) is FileKind.BUNDLE:
        return load_bundle(file, board, counter, options)
    profile = load_board(profile_of(board))
    found = recall(bundle_key(file, profile, options, counter or 0), mark_used=False)
    if found is None:
        with working(f"compiling {file.name} for {board}"), scratch_of(cache_folder()) as cache:
            found = compile_now(file, profile, options, counter or 0, cache)
    _print_notes(file, found)
    return found.bundle


def _print_notes(model: Path, found: CompiledBundle) -> None:
    from edgekit.host.cli.output import note

    for text in found.notes:
        note(f"{model.name}: {text}")


def _report_of(release: str, board_type: str, explanations: list[Mapping[str, Any]]) -> Report:
    from edgekit.host.report import compile_report

    return compile_report(release, board_type, explanations, utc_now())


def _check_target(file: Path, model: Path) -> None:
    """Checks that `file` can be written, before minutes of work."""
    from edgekit.host.cli.output import check_writable

    check_writable(file)
    if file.exists() and file.samefile(model):
        raise InputError(f"{file}: expected a file to write, found the model; name another")


def load_bundle(
    file: Path,
    board: str,
    counter: int | None = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    explain: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Bundle:
    """The bundle in `file`, or the one compiled from the model in it; `before` as in
    `compile_bundle`."""
    from edgekit.host.deploy.bundle import Bundle

    if file_kind(file) is not FileKind.BUNDLE:
        return compile_bundle(file, board, counter or 0, explain, options, before=before)
    if explain or not options.is_default:
        raise InputError(
            f"{file}: expected a model to compile with {', '.join(option_names())} or --explain, "
            "found a bundle, which is compiled already; leave the option out, or compile the "
            "model again"
        )
    if counter is not None:
        raise InputError(
            f"{file}: expected a model with --counter, found a bundle, which has its own counter; "
            "leave out --counter, or compile the model again"
        )
    return Bundle.read(file)


def _list_operators(as_json: bool) -> None:
    from edgekit.host.cli.output import emit
    from edgekit.host.compiler.frontends.caffe.operators import caffe_operators
    from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
    from edgekit.host.compiler.frontends.tflite.importer import supported_operators

    names, onnx_names = sorted(supported_operators()), sorted(onnx_operators())
    caffe_names = sorted(caffe_operators())
    if as_json:
        emit(
            {
                "schema": "edgekit.operators/1",
                "operators": names,
                "onnx_operators": onnx_names,
                "caffe_operators": caffe_names,
            }
        )
        return
    for name in names:
        print(name)
    for name in onnx_names:
        print(f"ONNX {name}")
    for name in caffe_names:
        print(f"Caffe {name}")
