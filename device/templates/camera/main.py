"""Looks at each picture of a camera with a face detector, and says where it finds a face.

ffmpeg captures the pictures in the model's size: install it on the board. Any other program that
writes plain RGB pictures of this size also works: name it with --command. For a detector other than
MediaPipe's face_detection_short_range, change `found`.
"""

import argparse
import array
import math
import shlex
import signal
import subprocess
import sys

import edgekit_runtime

FFMPEG = (
    "ffmpeg -loglevel error -f v4l2 -i {device} -pix_fmt rgb24 -f rawvideo "
    "-vf scale={width}:{height}:force_original_aspect_ratio=decrease,"
    "pad={width}:{height}:(ow-iw)/2:(oh-ih)/2 -"
)
SIZE = 128  # of the picture that `found` expects
GRIDS = ((16, 2), (8, 6))  # cells along an edge, and boxes in each


def found(outputs, threshold):
    """Returns the most likely face: probability and center, relative to width and height; or
    None."""
    scores = flat(outputs["classificators"])
    best = max(range(len(scores)), key=scores.__getitem__)
    probability = 1 / (1 + math.exp(-min(max(scores[best], -50), 50)))
    if probability < threshold:
        return None
    x, y = flat(outputs["regressors"])[16 * best : 16 * best + 2]
    column, row = ANCHORS[best]
    return probability, column + x / SIZE, row + y / SIZE


def anchors():
    """Yields the center of each box's cell, its regression origin."""
    for cells, boxes in GRIDS:
        for cell in range(cells * cells):
            for _ in range(boxes):
                yield (cell % cells + 0.5) / cells, (cell // cells + 0.5) / cells


ANCHORS = tuple(anchors())
LEVELS = tuple(level / 127.5 - 1 for level in range(256))


def flat(output):
    """Returns all elements of an output as a flat view."""
    return memoryview(output).cast("B").cast("f")


def started(command):
    try:
        return subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE)
    except OSError as error:
        program = command.split()[0]
        sys.exit(
            f"expected to run {program}, found: {error.strerror}; install it, or use --command"
        )


def pictures(command, size):
    """Yields pictures from the camera's program; ends this program when that one ends."""
    with started(command) as camera:
        signal.signal(signal.SIGTERM, lambda *_: camera.terminate() or sys.exit())
        while len(picture := camera.stdout.read(size)) == size:
            yield picture
    if camera.returncode:
        sys.exit(f"expected pictures, found that {command.split()[0]} failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="/dev/video0")
    parser.add_argument("--command", default=FFMPEG, help="what writes pictures, instead")
    parser.add_argument("--threshold", type=float, default=0.5, help="probability of a face")
    options = parser.parse_args()

    with edgekit_runtime.open() as model:
        (spec,) = model.inputs
        _, height, width, _ = spec.shape
        command = options.command.format(device=options.device, width=width, height=height)
        seen = None
        for number, picture in enumerate(pictures(command, height * width * 3)):
            pixels = array.array("f", map(LEVELS.__getitem__, picture))
            if not number:  # not before: it may be that there is no camera
                edgekit_runtime.alive("sees pictures")
            face = found(model.run({spec.name: pixels}), options.threshold)
            if (face is None) != (seen is None):  # a face appeared or disappeared
                text = "no face" if face is None else "face, {:.2f}, at {:.2f} {:.2f}".format(*face)
                print(f"picture {number}: {text}")
                edgekit_runtime.alive(text)
            seen = face


main()
