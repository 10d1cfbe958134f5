#!/usr/bin/env python3
"""Finds the face in a picture with a model compiled and deployed by edgekit, and reports the cost.

scripts/find_face.py [--board local] [--picture models/astronaut.png] [--output build/demo.png]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from blazeface import Face, find_faces, prepare
from PIL import Image, ImageDraw, ImageFont

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.host import Bundle, compile_model, connect
from edgekit.host.deploy.release import Benchmark
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.peers import PeerResult, bench_peers

_ROOT = Path(__file__).resolve().parents[1]
_COLOR = (80, 255, 120)
_COLORS = 128
_SLOWEST = 8
_CAPTION_HEIGHT = 44


def main() -> int:
    options = _parse_arguments()
    try:
        return _find_face(options)
    except EdgekitError as error:
        print(f"find_face: {error}", file=sys.stderr)
        return error.exit_code


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    model = _ROOT / "models" / "face_detection_short_range.tflite"
    parser.add_argument("--model", type=Path, default=model, help="a short-range BlazeFace")
    parser.add_argument("--picture", type=Path, default=_ROOT / "models" / "astronaut.png")
    parser.add_argument("--output", type=Path, default=_ROOT / "build" / "demo.png")
    parser.add_argument("--board", default="local")
    return parser.parse_args()


def _find_face(options: argparse.Namespace) -> int:
    picture = Image.open(options.picture).convert("RGB")
    values, letterbox = prepare(picture)

    bundle = compile_model(options.model, board=options.board)
    deployed = connect(options.board).deploy(bundle)
    outputs, _ = deployed.run({"input": values})
    faces = find_faces(outputs["regressors"], outputs["classificators"], letterbox)
    timing = deployed.bench({"input": values})

    peers = _beside_peers(bundle, options.model) if options.board == "local" else None
    _print_faces(faces)
    _print_operators(timing)
    emulated = deployed.device.emulated
    _print_times(timing, peers, "emulated" if emulated else "latency")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    drawn = _draw_faces(picture, faces, _format_caption(timing, peers, emulated))
    drawn.quantize(_COLORS).save(options.output, optimize=True)
    print(f"\npicture    {options.output}")
    return 0 if faces else 1


def _beside_peers(bundle: Bundle, model: Path) -> PeerResult:
    with tempfile.TemporaryDirectory() as folder:
        for name in (LIBRARY, WEIGHTS):
            (Path(folder) / name).write_bytes(bundle.files[name])
        return bench_peers(Path(folder), model, peers=("litert",))


def _print_faces(faces: list[Face]) -> None:
    for face in faces:
        width, height = face.right - face.left, face.bottom - face.top
        print(
            f"face       score {face.score:.3f}, box {width:.0f} x {height:.0f} pixels "
            f"at ({face.left:.0f}, {face.top:.0f})"
        )
    if not faces:
        print("face       none found")


def _print_operators(timing: Benchmark) -> None:
    slowest = sorted(timing.operators, key=lambda o: -o.median_us)[:_SLOWEST]
    print(f"\nslowest {len(slowest)} of {len(timing.operators)} operators")
    for operator in slowest:
        print(
            f"  {operator.median_us:8.1f} us  {operator.share:6.1%}  "
            f"{operator.op:18} {operator.kernel}"
        )


def _print_times(timing: Benchmark, peers: PeerResult | None, label: str) -> None:
    threads = f"{timing.threads} thread{'s' if timing.threads > 1 else ''}"
    print(
        f"\n{label:10} {timing.median_ms:.3f} ms median, {timing.p10_ms:.3f} p10, "
        f"{timing.p90_ms:.3f} p90 ({timing.runs} runs, {threads})"
    )
    if peers is None:
        return
    print(f"compared   edgekit {peers.ours.median:.3f} ms, alternating with:")
    for peer in peers.peers:
        if peer.latency is None:
            print(f"  {peer.name}: {peer.missing}")
        else:
            print(
                f"  {peer.name} {peer.version}: {peer.latency.median:.3f} ms median, "
                f"{peer.latency.p10:.3f} p10, {peer.latency.p90:.3f} p90, "
                f"{peer.ratio:.2f} times ours"
            )


def _format_caption(timing: Benchmark, peers: PeerResult | None, emulated: bool) -> str:
    text = (
        f"edgekit {peers.ours.median if peers else timing.median_ms:.2f} ms{' emulated' * emulated}"
    )
    for peer in peers.peers if peers else ():
        if peer.latency is not None:
            text += f"   {peer.name} {peer.latency.median:.2f} ms"
    return text


def _draw_faces(picture: Image.Image, faces: list[Face], caption: str) -> Image.Image:
    """The picture with boxes and keypoints, above a strip with the caption."""
    result = Image.new("RGB", (picture.width, picture.height + _CAPTION_HEIGHT), (16, 18, 24))
    result.paste(picture, (0, 0))
    draw = ImageDraw.Draw(result)
    for face in faces:
        draw.rectangle((face.left, face.top, face.right, face.bottom), outline=_COLOR, width=3)
        for x, y in face.keypoints:
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=_COLOR)
        draw.text(
            (face.left, face.top - 20),
            f"{face.score:.2f}",
            _COLOR,
            _load_font(16),
            stroke_width=2,
            stroke_fill=(0, 0, 0),
        )
    middle = picture.height + _CAPTION_HEIGHT / 2
    draw.text((12, middle), caption, (235, 235, 235), _load_font(18), anchor="lm")
    return result


def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


if __name__ == "__main__":
    sys.exit(main())
