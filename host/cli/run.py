"""`edgekit run`: runs inferences on a board in one session, from common file formats."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.compile_options import takes_compile_options
from edgekit.host.cli.deploy import put_into_service
from edgekit.host.cli.evaluate import Evaluated
from edgekit.host.cli.options import (
    BoardOption,
    ClusterOption,
    FileKind,
    Json,
    NameOption,
    Parallel,
    Select,
    Signature,
    Threads,
    TransportOption,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.cli.results import STDOUT
from edgekit.host.cli.run_text import (
    Ask,
    MaxTokens,
    Prompt,
    Seed,
    Stop,
    Temperature,
    TextOptions,
    TopK,
    TopP,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.cli.findings import FileResult
    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.cli.run_stream import StreamOptions
    from edgekit.host.compiler.inputs import ModelNotes
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import InferenceSession


Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE or FOLDER",
        show_default=False,
        help="Input: .npz, .npy, a picture, a .wav or a folder of them; - for stdin.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE or FOLDER",
        show_default=False,
        help="File (.npz, .json, .csv) or folder to write; - writes JSON to stdout.",
    ),
]
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL or BUNDLE",
        show_default=False,
        help="Model or bundle to deploy first (default: the deployed model).",
    ),
]
Top = Annotated[
    int | None,
    typer.Option("--top", metavar="N", min=1, show_default=False, help="Show the N best classes."),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="TXT",
        show_default=False,
        help="Labels for --top, one per line (default: the model's own).",
    ),
]
ResetEach = Annotated[
    bool,
    typer.Option("--reset-each", help="Reset the state of the model before each file."),
]
Mean = Annotated[
    str | None,
    typer.Option(
        "--mean",
        metavar="127.5 or R,G,B",
        show_default=False,
        help="Mean to subtract from pixels (default: the model's own, else 0).",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="127.5 or R,G,B",
        show_default=False,
        help="Scale to divide pixels by (default: the model's own, else 255 for floats).",
    ),
]
Channels = Annotated[
    Literal["rgb", "bgr"], typer.Option("--channels", help="Order of the channels of a picture.")
]
Layout = Annotated[
    Literal["nhwc", "nchw"] | None,
    typer.Option(
        "--layout",
        show_default=False,
        help="Layout of a picture (default: by the shape of the input).",
    ),
]
SampleRate = Annotated[
    int | None,
    typer.Option(
        "--sample-rate",
        metavar="HZ",
        min=1,
        show_default=False,
        help="Samples per second that the model expects (default: the model's own).",
    ),
]
Streamed = Annotated[
    bool,
    typer.Option("--stream", help="Run frames as they arrive, and print a JSON line for each."),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="PROGRAM",
        show_default=False,
        help="Program that writes frames, with --stream; may use {width} and {height}.",
    ),
]
Pixels = Annotated[
    bool,
    typer.Option(
        "--pixels",
        help="Read frames as rgb24 pixels, with --stream, not as raw inputs.",
    ),
]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="Write the bytes of the outputs, with --stream, not JSON lines."),
]
Resample = Annotated[
    bool, typer.Option("--resample", help="Convert sound that has another sample rate.")
]
Recognizer = Annotated[
    str | None,
    typer.Option(
        "--recognizer",
        metavar="MODEL or NAME",
        show_default=False,
        help="Model that reads the text in the boxes: to deploy, or deployed as NAME.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "run",
        epilog=examples(
            "edgekit run model.tflite --input x.npz --output y.npz",
            "edgekit run --input photos/ --output results.csv     # what is deployed on local",
            "edgekit run classifier.tflite --input cat.jpg --top 5 --labels labels.txt",
            "edgekit run detector.onnx --input val2017/ --evaluate instances_val2017.json",
            "edgekit run detector.onnx --input page.png --recognizer recognizer.onnx",
            'edgekit run llm.gguf --ask "What is a board?" --max-tokens 100',
            "edgekit run --signature encode --input x.npz --output code.npz",
            "edgekit run --input x.npz --select type=a57     # on many boards, compared",
            "ffmpeg -i door.mp4 -vf scale=128:128 -pix_fmt rgb24 -f rawvideo - |"
            " edgekit run --stream --pixels",
        ),
    )(run)


@takes_compile_options(without="signatures")
def run(
    input_path: Input = None,
    output: Output = None,
    model: Model = None,
    signature: Signature = "",
    top: Top = None,
    labels: Labels = None,
    evaluate: Evaluated = None,
    reset_each: ResetEach = False,
    stream: Streamed = False,
    command: Command = None,
    pixels: Pixels = False,
    raw: Raw = False,
    mean: Mean = None,
    scale: Scale = None,
    channels: Channels = "rgb",
    layout: Layout = None,
    sample_rate: SampleRate = None,
    resample: Resample = False,
    recognizer: Recognizer = None,
    prompt: Prompt = None,
    ask: Ask = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    board: BoardOption = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    threads: Threads = None,
    cluster: ClusterOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    select: Select = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> None:
    """Run a model on arrays, pictures, sound, text or folders of them."""
    from edgekit.host.cli.classes import read_labels
    from edgekit.host.cli.evaluate import read_truth
    from edgekit.host.cli.fleet_work import refuse_with_select, run_on
    from edgekit.host.cli.reading import recognizer_on
    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.cli.run_print import print_results
    from edgekit.host.cli.run_stream import StreamOptions
    from edgekit.host.cli.run_video import video_of
    from edgekit.host.compiler.inputs import InputNotes, InputOptions, is_array
    from edgekit.host.deploy.api import connect

    texts = TextOptions(prompt, ask, max_tokens, temperature, top_k, top_p, seed, stop)
    texts.check(
        input=input_path, output=output, stream=stream, top=top, evaluate=evaluate, select=select
    )
    scaling = numbers("--mean", mean), numbers("--scale", scale)
    if select:
        refuse_with_select(model=model, board=board, cluster=cluster, transport=transport)
        refuse_with_select(top=top, labels=labels, reset_each=reset_each, stream=stream, raw=raw)
        refuse_with_select(command=command, pixels=pixels, layout=layout, resample=resample)
        refuse_with_select(sample_rate=sample_rate, evaluate=evaluate, recognizer=recognizer)
        on = (input_path, output, InputOptions(*scaling), model_name, threads, signature)
        run_on(select, *on, parallel, as_json)
        return
    path = model_file(model) if model else None
    device = connect(board_name(board), transport=transport).named(model_name)
    if texts.wanted:
        _write_text(texts, device, path, options, (threads, cluster or ""), as_json)
        return
    streaming = StreamOptions(stream, command, pixels, raw)
    streaming.check(input_path or evaluate, output, as_json)
    if output == STDOUT and as_json:
        raise InputError("expected one document on stdout, found --json and --output -; use one")
    if evaluate and (stream or output or top):
        raise InputError("--evaluate: expected it without --stream, --output and --top, found one")
    if recognizer and (stream or output or top or evaluate):
        raise InputError(
            "--recognizer: expected it without --stream, --output, --top and --evaluate, found one"
        )
    truth = read_truth(evaluate, input_path) if evaluate else None
    files = [*truth.files] if truth else _find_input_files(input_path, output)
    wanted = bool(top) or pixels or not all(map(is_array, files))
    own = _read_model_notes(device, path, wanted)
    notes = own.inputs[0] if own.inputs else InputNotes()
    given = InputOptions(*scaling, channels, layout, sample_rate, resample, notes)
    video = video_of(files, not (stream or output or as_json or top or evaluate or recognizer))
    known = read_labels(labels) if labels else ()
    job = RunJob(files, output, top, known, own, reset_each, given, signature, truth)
    with recognizer_on(device, recognizer) as reader:
        work = _Work(replace(job, recognizer=reader), streaming, video, path, options)
        found, session = work.run(device, threads, cluster or "")
    if found is not None:
        print_results(device, session, job, found, as_json)


def _write_text(
    texts: TextOptions,
    device: Board,
    model: Path | None,
    options: CompileOptions,
    where: tuple[int | None, str],
    as_json: bool,
) -> None:
    """Deploys `model` first, if one is named; `where`: threads and cluster."""
    if model is not None:
        put_into_service(device, load_bundle(model, device.profile, options=options))
    with device.open(*where) as session:
        texts.run(session, device, as_json)


@dataclass(frozen=True)
class _Work:
    """A job on files, or on frames of a stream or a `video`; `model` is deployed first."""

    job: RunJob
    streaming: StreamOptions
    video: Path | None
    model: Path | None
    options: CompileOptions

    def run(
        self, device: Board, threads: int | None, cluster: str
    ) -> tuple[list[FileResult] | None, InferenceSession]:
        """The results of files; None for frames, which are printed as they come."""
        from edgekit.host.cli.run_stream import FrameStream
        from edgekit.host.cli.run_video import watch

        if self.model is not None:
            self._deploy(device, self.model)
        with device.open(threads, cluster) as session:
            if self.streaming.wanted:
                FrameStream(self.job, self.streaming).run(session, device)
            elif self.video is not None:
                watch(self.video, self.job, session)
            else:
                return self.job.run(session), session
        return None, session

    def _deploy(self, device: Board, model: Path) -> None:
        options, job, streams = self.options, self.job, self.streaming.wanted
        if not (streams or job.output or job.top):
            options = _guessing_task(options, model, [*job.files])
        bundle = load_bundle(model, device.profile, options=options)
        if not (streams or self.video):
            job.check(bundle.manifest.every_variant(), bundle.manifest.task)
        put_into_service(device, bundle)


def _guessing_task(options: CompileOptions, model: Path, files: list[Path]) -> CompileOptions:
    """The options with which results for pictures and sounds can be shown, even if the model's file
    does not state its task."""
    from edgekit.host.compiler.inputs import is_array

    if options.task != "auto" or file_kind(model) is FileKind.BUNDLE:
        return options
    return replace(options, task="guess") if not all(map(is_array, files)) else options


def _find_input_files(input_path: Path | None, output: str | None) -> list[Path]:
    """The input files, none for a stream of frames; checks names before the board is contacted."""
    from edgekit.host.cli.results import check_target
    from edgekit.host.compiler.inputs import input_files, is_array, read_arrays

    if input_path is None or str(input_path) == STDOUT:
        return []
    files = input_files(input_path)
    if is_array(files[0]):
        read_arrays(files[0])
    if output is not None:
        check_target(output, files, input_path.is_dir())
    return files


def _read_model_notes(device: Board, model: Path | None, wanted: bool) -> ModelNotes:
    """Metadata from the model's file: pixel format, rates, labels. For a deployed model, the file
    named in edgekit.toml is used if its hash matches."""
    import hashlib

    from edgekit.host.compiler.inputs import ModelNotes, read_notes
    from edgekit.host.deploy.inventory import read_project

    if model is not None:
        return read_notes(model)
    named = read_project(Path.cwd()).model
    if not wanted or named is None or not Path(named).is_file():
        return ModelNotes()
    current = device.status().current
    with Path(named).open("rb") as file:
        same = current and hashlib.file_digest(file, "sha256").hexdigest() == current.model_sha256
    return read_notes(Path(named)) if same else ModelNotes()


def numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Parses --mean or --scale: one value, or one per channel; InputError otherwise."""
    try:
        found = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise InputError(f"{option}: expected a number, or one for each channel, found {text}")
    return found
