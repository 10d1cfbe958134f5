"""Implements `edgekit run` on a video file or a camera: a line for each frame with what a model
finds in it.

ffmpeg decodes the video to pictures of its own size, one at a time.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgekit.device.runtime.agent.fitting import Placed, boxes_of
from edgekit.device.runtime.agent.segments import segments_of
from edgekit.device.runtime.agent.task import (
    BOXES,
    CLASSIFY,
    POSE,
    SEGMENT,
    TaskSpec,
)
from edgekit.host.cli.classes import best
from edgekit.host.cli.output import note
from edgekit.host.common.optional import optional
from edgekit.host.compiler.inputs import is_live, is_video, loaded_picture, placed_in
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image as Picture

    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.deploy.release import InferenceSession

_COMMAND = ("ffmpeg", "-nostdin", "-loglevel", "error")
_DEVICE = "/dev/"
_SECRET = re.compile(r"//[^/@]*@")  # name and password in an address
_PICTURES = ("-f", "image2pipe", "-c:v", "ppm", "-")
_MOST_HEADER = 64  # bytes
_MOST_PIXELS = 1 << 27
_KINDS = (CLASSIFY, POSE, SEGMENT, *BOXES)
_LEAST = 0.02  # classes of a smaller share of the pixels are not shown


def video_of(files: Sequence[Path], shows: bool) -> Path | None:
    """The video among the files of --input. InputError if anything but what is found in its frames
    is asked for, which is all that `shows` says."""
    if not files or not is_video(files[0]):
        return None
    if not shows:
        raise InputError(
            f"{files[0]}: expected a video without --stream, --output, --json, --top, "
            "--evaluate and --recognizer, found one; it is shown frame by frame"
        )
    return files[0]


def watch(video: Path, job: RunJob, session: InferenceSession) -> None:
    """Prints what is found in each frame, and how many frames a second went through."""
    task = session.served.task
    if task is None or task.kind not in _KINDS:
        raise InputError(
            f"{_shown(video)}: expected a model that can {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, "
            f"found {task.kind if task else 'no known task'}; see --task"
        )
    count, started = 0, time.monotonic()
    try:
        for count, text in enumerate(_texts(video, job, session, task), 1):
            print(f"frame {count - 1:6}  {text or 'nothing'}", flush=True)
    finally:  # also if a camera is unplugged
        if count:
            rate = count / max(time.monotonic() - started, 1e-9)
            note(f"frames   {count} of {_shown(video)}, {rate:.1f} per second")


def _texts(video: Path, job: RunJob, session: InferenceSession, task: TaskSpec) -> Iterator[str]:
    """What is found in each frame."""
    variant = session.served.of(job.signature)[0]
    options, spec = job.options.for_task(task), variant.inputs[0]
    for frame in _frames(video):
        values = loaded_picture(frame, str(video), spec, options)
        outputs, _ = session.run({spec.name: values}, job.signature)
        if task.kind == CLASSIFY:
            scores = next(each for each in variant.outputs if each.name == task.output)
            (top,) = best(outputs, scores, job.labels or task.labels, 1)
            yield f"{top.label or f'class {top.index}'} {top.score:.2f}"
        else:
            where = placed_in(frame.size, str(video), spec, options)
            yield _found(outputs[task.output], task, *where, job.labels)


def _found(
    values: NDArray[Any],
    task: TaskSpec,
    placed: Placed,
    size: tuple[int, int],
    labels: Sequence[str],
) -> str:
    """Boxes with their scores, or classes with their shares of the picture."""
    if task.kind == SEGMENT:
        _, rows, columns = values.shape
        made = segments_of(values.tobytes(), (rows, columns), size, task, placed, labels)
        return ", ".join(f"{s.name} {s.share:.0%}" for s in made.shares if s.share >= _LEAST)
    boxes = boxes_of(values.reshape(-1).tolist(), values.shape[-1], task, placed, labels)
    return ", ".join(f"{box.name} {box.score:.2f}" for box in boxes)


def _source(video: Path) -> list[str]:
    """ffmpeg's options for a file, a camera of this machine or an address."""
    name = str(video)
    if not is_live(video):
        return ["-i", str(video.resolve())]
    if name.startswith(_DEVICE):
        return ["-f", "v4l2", "-i", name]
    kind, rest = name.split(":/", 1)
    reliable = ["-rtsp_transport", "tcp"] if kind == "rtsp" else []
    return [*reliable, "-i", f"{kind}://{rest}"]


def _shown(video: Path) -> str:
    """The name of a file; an address without a password."""
    return _SECRET.sub("//", _source(video)[-1]) if is_live(video) else video.name


def _frames(video: Path) -> Iterator[Picture]:
    """The pictures that ffmpeg writes; InputError if it is missing or fails."""
    _, images = optional("PIL", "PIL.Image")
    with tempfile.TemporaryFile() as said, _ffmpeg(video, said) as source:
        count = 0
        while header := _header(source, video):
            width, height = header
            data = source.read(3 * width * height)
            if len(data) != 3 * width * height:
                if is_live(video):
                    break  # it was unplugged: ffmpeg says why
                raise InputError(
                    f"{_shown(video)}: expected whole frames, found the end in frame {count}"
                )
            count += 1
            yield images.frombytes("RGB", (width, height), data)
    if not count:
        raise InputError(f"{_shown(video)}: expected a video with frames, found none")


@contextlib.contextmanager
def _ffmpeg(video: Path, said: IO[bytes]) -> Iterator[IO[bytes]]:
    """The pictures of a video; InputError with what ffmpeg `said` if it fails."""
    words = [*_COMMAND, *_source(video), *_PICTURES]
    try:
        program = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        )
    except OSError:
        raise InputError(
            f"{_shown(video)}: expected ffmpeg to read the video, found none; install it: "
            "sudo apt install ffmpeg"
        ) from None
    try:
        assert program.stdout is not None
        yield program.stdout
        code = program.wait()
        said.seek(0)
        lines = _SECRET.sub("//", said.read(4096).decode("utf-8", "replace")).split("\n")
        lines = [line.strip() for line in lines if line.strip()]
        if code or (lines and is_live(video)):
            why = next(iter(lines), f"exit code {code}")
            raise InputError(f"{_shown(video)}: expected a video that ffmpeg reads, found: {why}")
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def _header(source: IO[bytes], video: Path) -> tuple[int, int] | None:
    """Width and height of the next picture; None at the end."""
    data = b""
    while len(data.split()) < 4 or not data[-1:].isspace():
        piece = source.read(1)
        if not piece and not data:
            return None
        data += piece
        if not piece or len(data) > _MOST_HEADER:
            raise InputError(f"{_shown(video)}: expected pictures of ffmpeg, found {data[:20]!r}")
    kind, width, height, most = data.split()
    if kind != b"P6" or most != b"255" or not 0 < int(width) * int(height) <= _MOST_PIXELS:
        raise InputError(f"{_shown(video)}: expected pictures of ffmpeg, found {data[:20]!r}")
    return int(width), int(height)
