"""Implements `edgekit run --stream`: reads frames, writes a line or the raw outputs of each.

Only one frame is in memory at a time: the producer blocks until the board has processed it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.cli.classes import best, class_output
from edgekit.host.cli.output import note
from edgekit.host.cli.report import time_key
from edgekit.host.cli.results import STDOUT, plain
from edgekit.host.compiler.inputs import PixelFrames, read_inputs
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.device.runtime.agent.specs import TensorSpec
    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import InferenceSession

_SECONDS = 5.0  # for the program to exit once its frames are no longer read

Inputs = dict[str, "NDArray[Any]"]


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream; it is used only if `wanted`. Frames come from `command` or standard
    input, as the bytes of the model's inputs, or with `pixels` of a picture. `raw` writes the bytes
    of the outputs."""

    wanted: bool
    command: str | None
    pixels: bool
    raw: bool

    def check(self, input_path: Path | None, output: str | None, as_json: bool) -> None:
        """Rejects incompatible options."""
        if not self.wanted:
            if self.command is not None or self.pixels or self.raw:
                raise InputError("expected --stream with --command, --pixels or --raw, found none")
            if input_path is None or str(input_path) == STDOUT:
                raise InputError(
                    "expected --input FILE or FOLDER, or --stream, found neither; see: edgekit run "
                    "--help"
                )
            return
        if self.command is not None and input_path is not None:
            raise InputError("expected frames of --command or of --input, found both; name one")
        if output not in (None, STDOUT) or as_json:
            raise InputError(
                "expected results on stdout, a JSON line or the bytes (--raw) for each frame, "
                "found --output or --json; redirect stdout to a file"
            )


@dataclass(frozen=True)
class FrameStream:
    """Runs frames: those in the files of `job`, or from the stream if there are none."""

    job: RunJob
    options: StreamOptions

    def run(self, session: InferenceSession, device: Board) -> None:
        """Runs frames until the end; prints their number to stderr."""
        job = self.job
        specs = session.served.of(job.signature)[0].outputs
        task = session.served.task
        scores = class_output(specs, job.labels, job.notes.labels, task) if job.top else None
        count = 0
        with contextlib.closing(self._read_frames(session)) as frames:
            for count, (name, inputs) in enumerate(frames, 1):
                outputs, timings = session.run(inputs, job.signature)
                if self.options.raw:
                    data = b"".join(outputs[spec.name].tobytes() for spec in specs)
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()
                    continue
                row = {"frame": count - 1, **name, time_key(device.emulated): timings.latency_ms}
                if scores and job.top:
                    row["top"] = [asdict(found) for found in best(outputs, *scores, job.top)]
                else:
                    row["outputs"] = {key: plain(value) for key, value in outputs.items()}
                print(json.dumps(row, allow_nan=False), flush=True)
        if not count:
            raise InputError("expected frames, found none")
        later = session.replaced_by
        meanwhile = f"; release {later} is in service now" if later else ""
        note(f"release  {session.served.release} on {device.name}: {count} frames{meanwhile}")

    def _read_frames(
        self, session: InferenceSession
    ) -> Generator[tuple[dict[str, Any], Inputs], None, None]:
        variants = session.served.of(self.job.signature)
        for number, file in enumerate(self.job.files):
            self._reset_state(session, number)
            for inputs in read_inputs(file, variants, self.job.options, variants[0].stateful):
                yield {"input": str(file)}, inputs
        if self.job.files:
            return
        specs = variants[0].inputs
        pixels = PixelFrames(specs, self.job.options) if self.options.pixels else None
        size = pixels.bytes if pixels else sum(spec.bytes for spec in specs)
        with self._open_source(pixels) as source:
            number = 0
            while data := source.read(size):
                if len(data) != size:
                    raise InputError(
                        f"frame {number}: expected {size} bytes, found {len(data)} at the end"
                    )
                self._reset_state(session, number)
                number += 1
                yield {}, pixels.inputs(data) if pixels else _split_frame(data, specs)

    def _reset_state(self, session: InferenceSession, number: int) -> None:
        """Resets the state between files or frames, for --reset-each."""
        if self.job.reset_each and number:
            session.reset()

    @contextlib.contextmanager
    def _open_source(self, pixels: PixelFrames | None) -> Iterator[IO[bytes]]:
        command = self.options.command
        if command is None:
            yield sys.stdin.buffer
            return
        for name, extent in pixels.extents.items() if pixels else ():
            command = command.replace(f"{{{name}}}", str(extent))
        program = _start_process(command)
        try:
            assert program.stdout is not None
            yield program.stdout
            program.stdout.close()
            code = program.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0  # it sent all its frames but kept running
        finally:
            program.kill()
            program.wait()
        if code:
            raise InputError(f"{command}: expected frames, found that it exited with {code}")


def _start_process(command: str) -> subprocess.Popen[bytes]:
    try:
        words = shlex.split(command)
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except (OSError, ValueError, IndexError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"--command: expected a program that writes frames, found {command!r}: {why}"
        ) from None


def _split_frame(data: bytes, specs: Sequence[TensorSpec]) -> Inputs:
    """Splits a frame into all inputs, which are stored consecutively."""
    found, start = {}, 0
    for spec in specs:
        kind = np.dtype(BY_NAME[spec.dtype].npy)
        part = data[start : start + spec.bytes]
        found[spec.name] = np.frombuffer(part, kind).reshape(spec.shape)
        start += spec.bytes
    return found
