"""Lines of text in pictures, read by a model on the board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.lines import Line, page_task, reading_part, reading_task
from edgekit.device.runtime.agent.pages import Crop, TextLine, read_line
from edgekit.device.runtime.agent.task import OCR
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.deploy import put_into_service
from edgekit.host.cli.options import FileKind, file_kind, model_file
from edgekit.host.common.optional import optional
from edgekit.host.compiler.inputs import InputOptions, loaded_picture, picture_size
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import InferenceSession

NAME = "recognizer"  # under which a file is deployed


@dataclass
class LineReader:
    """Reads with the model of a session; `latencies_ms` of all its inferences."""

    session: InferenceSession
    options: InputOptions
    latencies_ms: list[float] = field(default_factory=list)

    def read(self, line: Crop, name: str) -> Line:
        """The text of a line of any length; `name` is that of its picture, for errors."""
        served = self.session.served
        part = reading_part(served.variants)
        task = page_task(served.task, part) or reading_task(served.task, OCR)
        variant = part or served.variants[0]
        spec = next(s for s in variant.inputs if s.name == task.input)
        options = self.options.for_task(task)
        width, height = picture_size(name, spec, options)

        def read(piece: Crop) -> Line:
            values = loaded_picture(_picture(piece), name, spec, options)
            outputs, timings = self.session.run({spec.name: values}, variant.signature)
            self.latencies_ms.append(timings.latency_ms)
            return self.session.line(outputs[task.output])

        return read_line(line, width / height, read)


@contextmanager
def recognizer_on(device: Board, wanted: str | None) -> Iterator[LineReader | None]:
    """The model that `wanted` names: a file, which is deployed first, or what is deployed under
    that name. None without it."""
    if wanted is None:
        yield None
        return
    name = wanted
    if Path(wanted).suffix or Path(wanted).exists():
        file, name = model_file(wanted), NAME
        is_bundle = file_kind(file) is FileKind.BUNDLE
        options = DEFAULT_OPTIONS if is_bundle else CompileOptions(task="ocr")
        put_into_service(device.named(name), load_bundle(file, device.profile, options=options))
    with device.named(name).open() as session:
        try:
            reading_task(session.served.task, OCR)
        except DeviceInputError as error:
            raise InputError(f"--recognizer {wanted}: {error}") from None
        yield LineReader(session, InputOptions())


def reader_within(session: InferenceSession) -> LineReader | None:
    """What reads the lines that the release's own task finds."""
    served = session.served
    reads = page_task(served.task, reading_part(served.variants)) is not None
    return LineReader(session, InputOptions()) if reads else None


def crop_of(picture: Picture) -> Crop:
    """A whole picture."""
    return Crop(picture.convert("RGB").tobytes(), *picture.size)


def _picture(crop: Crop) -> Picture:
    _, images = optional("PIL", "PIL.Image")
    made: Picture = images.frombytes("RGB", (crop.width, crop.height), crop.pixels)
    return made


def text_lines(lines: Sequence[TextLine]) -> list[str]:
    """The lines as a table: score, corners in whole pixels, text."""
    return [
        f"  {t.score:6.3f}  {t.left:6.0f} {t.top:6.0f} {t.right:6.0f} {t.bottom:6.0f}  {t.text}"
        for t in lines
    ]
