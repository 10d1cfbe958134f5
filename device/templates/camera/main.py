"""Runs a model on each picture of a camera, and prints what it finds when that changes.

ffmpeg captures the pictures: install it on the board. Any other program that writes plain RGB
pictures of --size also works: name it with --command. The model needs a task: boxes, poses, classes
of pixels, or a class; for others, use run() instead.
"""

import argparse
import shlex
import signal
import subprocess
import sys

import edgekit_runtime

FFMPEG = (
    "ffmpeg -loglevel error -f v4l2 -i {device} -pix_fmt rgb24 -f rawvideo "
    "-vf scale={width}:{height} -"
)
PACKAGES = {"ffmpeg": "ffmpeg"}  # of Debian, by program
LEAST = 0.02  # share of the pixels that counts


def started(command):
    try:
        return subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE)
    except OSError as error:
        program = command.split()[0]
        package = PACKAGES.get(program, "")
        way = f"apt-get install {package}" if package else "install it"
        sys.exit(f"expected to run {program}, found: {error.strerror}; {way}, or use --command")


def pictures(command, size):
    """Yields pictures from the camera's program; ends this program when that one ends."""
    with started(command) as camera:
        signal.signal(signal.SIGTERM, lambda *_: camera.terminate() or sys.exit())
        while len(picture := camera.stdout.read(size)) == size:
            yield picture
    if camera.returncode:
        sys.exit(f"expected pictures, found that {command.split()[0]} failed")


def seen(model, picture, width, height, threshold):
    """Returns what is in a picture: names, and a text that says where."""
    if model.task is None:
        sys.exit("expected a model with a task, found one without; see main.py")
    if model.task.kind == "classify":
        best = model.classify(picture, width, height, top=1)[0]
        name = best.label or f"class {best.number}"
        return [name], f"{name}, {best.score:.2f}"
    if model.task.kind == "segment":
        shares = [s for s in model.segment(picture, width, height).shares if s.share >= LEAST]
        return sorted(s.name for s in shares), "; ".join(f"{s.name}, {s.share:.0%}" for s in shares)
    if model.task.kind == "pose":
        boxes = [pose.box for pose in model.pose(picture, width, height)]
    else:
        boxes = model.detect(picture, width, height)
    boxes = [b for b in boxes if b.score >= threshold]
    text = "; ".join(
        f"{b.name}, {b.score:.2f}, at {b.left:.0f} {b.top:.0f} {b.right:.0f} {b.bottom:.0f}"
        for b in boxes
    )
    return sorted(b.name for b in boxes), text or "nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="/dev/video0")
    parser.add_argument("--command", default=FFMPEG, help="program that writes pictures")
    parser.add_argument("--size", default="640x480", help="width and height of the pictures")
    parser.add_argument("--threshold", type=float, default=0.5, help="least score of a box")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    command = options.command.format(device=options.device, width=width, height=height)

    with edgekit_runtime.open() as model:
        before = []
        for number, picture in enumerate(pictures(command, height * width * 3)):
            if not number:  # not before: it may be that there is no camera
                edgekit_runtime.alive("receiving pictures")
            names, text = seen(model, picture, width, height, options.threshold)
            if names != before:
                print(f"picture {number}: {text}", flush=True)
                edgekit_runtime.alive(text)
            before = names


main()
