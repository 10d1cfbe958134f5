"""`edgekit run`: runs inferences on a board in one session, from common file formats."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
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
    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.cli.run_stream import StreamOptions
    from edgekit.host.deploy.board import Board


Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE or FOLDER",
        show_default=False,
        help="Input: .npz, .npy, a picture, .wav, video, camera or a folder; - for stdin.",
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
Timestamps = Annotated[
    bool, typer.Option("--timestamps", help="Show when each part of a text is said.")
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
    timestamps: Timestamps = False,
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
    from edgekit.host.cli.fleet_work import refuse_with_select, run_on
    from edgekit.host.cli.reading import recognizer_on
    from edgekit.host.cli.run_inputs import Wanted, job_of
    from edgekit.host.cli.run_video import video_of
    from edgekit.host.compiler.inputs import InputOptions
    from edgekit.host.deploy.api import connect

    texts = TextOptions(prompt, ask, max_tokens, temperature, top_k, top_p, seed, stop)
    wanted = Wanted(input_path, output, top, evaluate, labels, stream, command, pixels, raw)
    texts.check(**wanted.given(), select=select, recognizer=recognizer)
    scaling = numbers("--mean", mean), numbers("--scale", scale)
    given = InputOptions(*scaling, channels, layout, sample_rate, resample)
    if select:
        refuse_with_select(model=model, board=board, stream=stream, pixels=pixels, layout=layout)
        refuse_with_select(transport=transport, recognizer=recognizer, resample=resample, raw=raw)
        refuse_with_select(sample_rate=sample_rate, cluster=cluster, command=command, labels=labels)
        refuse_with_select(timestamps=timestamps, reset_each=reset_each, evaluate=evaluate, top=top)
        run_on(select, input_path, output, given, model_name, threads, signature, parallel, as_json)
        return
    path = model_file(model) if model else None
    device = connect(board_name(board), transport=transport).named(model_name)
    if texts.wanted:
        _write_text(texts, device, path, options, (threads, cluster or ""), as_json)
        return
    wanted.check(recognizer, as_json)
    job = job_of(wanted, device, path, given, signature, reset_each, timestamps)
    video = video_of(job.files, not (wanted.is_special or as_json or recognizer))
    with recognizer_on(device, recognizer) as reader:
        work = _Work(replace(job, recognizer=reader), wanted.streaming, video, path, options)
        work.run(device, (threads, cluster or ""), as_json)


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

    def run(self, device: Board, where: tuple[int | None, str], as_json: bool) -> None:
        """Prints results, those of frames as they come; `where`: threads and cluster."""
        from edgekit.host.cli.each_file import left_out
        from edgekit.host.cli.reading import reader_within
        from edgekit.host.cli.run_print import print_results
        from edgekit.host.cli.run_stream import FrameStream
        from edgekit.host.cli.run_video import watch

        if self.model is not None:
            self._deploy(device, self.model)
        with device.open(*where) as session:
            if self.streaming.wanted:
                FrameStream(self.job, self.streaming).run(session, device)
                return
            if self.video is not None:
                watch(self.video, self.job, session)
                return
            job = self.job
            if job.recognizer is None and job.output is None and job.top is None:
                job = replace(job, recognizer=reader_within(session))
            found = job.run(session)
        print_results(device, session, job, found, as_json)
        if job.left_out:
            raise left_out(job.left_out, len(job.files))

    def _deploy(self, device: Board, model: Path) -> None:
        from edgekit.host.cli.boxes import FORMS

        options, job, streams = self.options, self.job, self.streaming.wanted
        tensors = job.output and Path(job.output).suffix.lower() not in FORMS
        if not (streams or tensors or job.top):
            options = _guessing_task(options, model, [*job.files])
        before = partial(self._check_by_file, model, options)
        bundle = load_bundle(model, device.profile, options=options, before=before)
        if not (streams or self.video):
            job.check(bundle.manifest.every_variant(), bundle.manifest.task)
        put_into_service(device, bundle)

    def _check_by_file(self, model: Path, options: CompileOptions) -> None:
        """Raises InputError for inputs that cannot fit, before the compiler works for minutes."""
        from edgekit.host.compiler.tasks import planned

        if not (self.streaming.wanted or self.video) and self.job.shown:
            self.job.check_early(planned(model, options))


def _guessing_task(options: CompileOptions, model: Path, files: list[Path]) -> CompileOptions:
    """The options with which results for pictures and sounds can be shown, even if the model's file
    does not state its task."""
    from edgekit.host.compiler.inputs import is_array

    if options.task != "auto" or file_kind(model) is FileKind.BUNDLE:
        return options
    return replace(options, task="guess") if not all(map(is_array, files)) else options


def numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Parses --mean or --scale: one value, or one per channel; InputError otherwise."""
    try:
        found = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise InputError(f"{option}: expected a number, or one for each channel, found {text}")
    return found
