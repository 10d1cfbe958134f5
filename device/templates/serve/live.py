"""What is at / and /frames: the ends of the model for programs, and for browsers a page with each
picture that a program sends, and what was found in it (motion JPEG)."""

import html
import io
import json
import threading

import pictures

BOUNDARY = "edgekit-frame"
MOST_WATCHERS = 4  # each takes a thread
MOST_EDGE = 1280  # pixels; larger pictures are drawn smaller
# Seconds without a picture, after which the last one is sent again: first because Chromium shows a
# picture once the next one comes, then to notice that nobody watches any more.
SOON, QUIET = 0.1, 10
LEAST_SHARE, LEAST_POINT = 0.01, 0.3  # of what is drawn
COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{model}</title>
<style>
body {{ margin: 0; font: 16px/1.5 system-ui, sans-serif; background: #16181d; color: #e8eaed }}
main {{ max-width: 1280px; margin: 0 auto; padding: 1rem }}
h1 {{ font-size: 1.2rem; margin: 0 0 .75rem }}
small, p {{ color: #9aa0a6; font-weight: normal }}
img {{ display: block; width: 100%; max-height: 75vh; object-fit: contain; background: #000 }}
a, code {{ color: #e8eaed; overflow-wrap: anywhere }}
</style>
<main><h1>{model} <small>{task}, release {release}</small></h1>
<img src="/frames" alt="The last picture, with what was found in it">
<p>Each picture that a program sends appears here:
<code>curl --data-binary @door.jpg http://{host}/{task}</code>.
Counts for Prometheus are at <a href="/metrics">/metrics</a>.</p></main>
</html>
"""


class Live:
    """The last picture, with what was found in it, and how many watch."""

    def __init__(self):
        self.changed = threading.Condition()
        self.watchers = self.number = 0
        self.last = None  # a picture, and what of which task was found in it
        self.drawn = (-1, b"")  # the number of the picture that was drawn last, and its JPEG

    def show(self, picture, task, found):
        with self.changed:
            self.last = picture, task, found
            self.number += 1
            self.changed.notify_all()

    def frame(self, seen, seconds):
        """The JPEG of the last picture, and its number; waits for another than `seen`."""
        with self.changed:
            self.changed.wait_for(lambda: self.number != seen, seconds)
            if self.drawn[0] != self.number:
                self.drawn = self.number, as_jpeg(*(self.last or (None, "", ())))
            return self.drawn


def answer(handler):
    """Answers a request for / or /frames."""
    model = handler.server.model
    shows = model.task is not None and model.task.kind in pictures.TASKS
    if handler.path == "/frames":
        if shows:
            return watch(handler)
        return handler.answer(404, b"expected a model for pictures, found another\n")
    if shows and "text/html" in handler.headers.get("Accept", ""):
        texts = {
            "model": model.name, "task": model.task.kind, "release": model.release,
            "host": handler.headers.get("Host", "board"),
        }  # fmt: skip
        body = PAGE.format(**{key: html.escape(text) for key, text in texts.items()}).encode()
        return handler.answer(200, body, model.release, "text/html; charset=utf-8")
    about = {"release": model.release, "model": model.name, **ends(model)}
    if model.signatures:
        about["signatures"] = {name: ends(one) for name, one in model.signatures.items()}
    return handler.answer(200, json.dumps(about).encode() + b"\n", model.release)


def watch(handler):
    """Sends pictures until the client leaves."""
    live = handler.server.inferences.live
    with live.changed:
        full = live.watchers >= MOST_WATCHERS
        live.watchers += not full
    if full:
        return handler.answer(503, b"expected at most 4 clients of /frames, found more\n")
    try:
        before, (number, made) = -1, live.frame(-1, 0)
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        handler.send_header("Cache-Control", "no-store")
        handler.end_headers()
        handler.server.waits_no_more(handler.connection)
        edge = f"--{BOUNDARY}\r\n".encode()
        handler.wfile.write(edge)
        while True:
            head = f"Content-Type: image/jpeg\r\nContent-Length: {len(made)}\r\n\r\n".encode()
            handler.wfile.write(head + made + b"\r\n" + edge)
            seconds = QUIET if number == before else SOON
            before, (number, made) = number, live.frame(number, seconds)
    except ImportError:
        return handler.answer(501, pictures.NO_PILLOW)
    finally:
        with live.changed:
            live.watchers -= 1


def as_jpeg(picture, task, found):
    """The picture with what was found; without one, a line that says so."""
    from PIL import Image, ImageDraw

    if task == "image":
        picture, found = pictures.made_picture(found).convert("RGB"), ()
    canvas = Image.new("RGB", (640, 360), "#202124") if picture is None else picture.copy()
    canvas.thumbnail((MOST_EDGE, MOST_EDGE))
    draw, scale = ImageDraw.Draw(canvas), canvas.width / picture.width if picture else 1.0
    size = max(12, min(canvas.size) // 30)
    if picture is None:
        label(draw, (16, 16), "No picture was sent yet", COLORS[5], size)
    lines = captions(task, found)
    for row, text in enumerate(lines):
        label(draw, (4, 4 + row * (size + 8)), text, COLORS[row % len(COLORS)], size)
    for shape in () if lines else found:
        outline(draw, shape, scale, size)
    file = io.BytesIO()
    canvas.save(file, "JPEG", quality=85)
    return file.getvalue()


def captions(task, found):
    """Lines for what has no place in the picture."""
    if task == "classify":
        return [f"{each.label or f'class {each.number}'} {each.score:.2f}" for each in found]
    if task == "segment":
        return [f"{s.name} {s.share:.0%}" for s in found.shares if s.share >= LEAST_SHARE]
    if task == "ocr":
        return [found.text]
    return []


def outline(draw, shape, scale, size):
    """A box, or the box, points or corners of what has one, with its name and score."""
    box = getattr(shape, "box", shape)
    if not hasattr(box, "left"):
        return  # a vector, or a line of text
    color, wide = COLORS[box.number % len(COLORS)], max(2, size // 8)
    left, top, right, bottom = (scale * edge for edge in box[2:6])
    corners = [(scale * x, scale * y) for x, y in getattr(shape, "corners", ())]
    corners = corners or [(left, top), (right, top), (right, bottom), (left, bottom)]
    draw.line([*corners, corners[0]], color, wide)
    for point in getattr(shape, "points", ()):
        if point.score >= LEAST_POINT:
            x, y = scale * point.x, scale * point.y
            draw.ellipse((x - wide, y - wide, x + wide, y + wide), color)
    label(draw, (left, top - size - 6), f"{box.name} {box.score:.2f}", color, size)


def label(draw, place, text, color, size):
    """A text on its color, within the picture."""
    from PIL import ImageFont

    try:
        font = ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one size, and only Latin letters
        font, text = ImageFont.load_default(), text.encode("latin-1", "replace").decode("latin-1")
    _, _, width, height = draw.textbbox((0, 0), text, font=font)
    x = max(0, min(place[0], draw.im.size[0] - width - 6))
    y = max(0, min(place[1], draw.im.size[1] - height - 6))
    draw.rectangle((x, y, x + width + 6, y + height + 6), color)
    draw.text((x + 3, y + 2), text, "white", font)


def described(spec):
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.bytes}


def ends(of):
    specs = {"inputs": of.inputs, "outputs": of.outputs}
    return {key: [described(spec) for spec in several] for key, several in specs.items()}
