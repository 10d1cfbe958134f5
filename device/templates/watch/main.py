"""Watches a folder and writes what a model finds in each new file to a file next to it: of
street.jpg to street.jpg.json.

Files may be pictures (with Pillow on the board), sounds (others than WAV files of the model's rate
with ffmpeg) or texts, whichever the model takes; it needs a task. A file that is written again is
looked at again, and one that cannot be read gets {"error": "..."}. Whatever sends the files should
write them under another name, such as .street.jpg, and rename them: this program waits until a file
no longer changes, but a slow writer may pause for longer.
"""

import argparse
import json
import pathlib
import signal
import sys
import time

import edgekit_runtime
import pictures
import sounds
import wake_words

DONE = ".json"
PARTS = (".part", ".tmp")  # of files that are not whole
MOST_BYTES = 64 << 20  # of a file
HEARD = ("keyword", "vad")


def stamps(folder):
    """Size and time of each file that has no newer result, by name."""
    found, results = {}, {}
    for path in folder.iterdir():
        try:
            if path.name.startswith(".") or not path.is_file():
                continue
            about = path.stat()
        except FileNotFoundError:  # it was taken away
            continue
        if path.suffix == DONE:
            results[path.stem] = about.st_mtime_ns
        elif path.suffix not in PARTS:
            found[path.name] = about.st_size, about.st_mtime_ns
    return {name: own for name, own in found.items() if results.get(name, -1) < own[1]}


def looked(model, data):
    """What the model finds, as JSON."""
    task = wake_words.task_of(model)
    kind = "read" if task.characters and task.kind != "ocr" else task.kind
    if task.tokenizer:
        return pictures.as_json(kind, getattr(model, kind)(data.decode("utf-8", "replace")))
    if kind in HEARD:
        model.reset()
        listener = wake_words.listen(model)
        heard = listener.feed(sounds.samples_of(data, task.rate)) + listener.finish()
        return {"heard": [each._asdict() for each in heard]}
    if sounds.is_heard(model, kind):
        return pictures.as_json(kind, sounds.heard(model, kind, data))
    picture = pictures.read_picture(data)
    width, height = picture.size
    found = getattr(model, kind)(picture.tobytes(), width=width, height=height)
    return {"width": width, "height": height, **pictures.as_json(kind, found)}


def result(model, path):
    """The document for a file; what is wrong with it is one, too."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return {"error": f"expected a file of at most {MOST_BYTES >> 20} MiB, found more"}
        return looked(model, path.read_bytes())
    except ImportError:
        sys.exit(pictures.NO_PILLOW.decode().partition(", or")[0])
    except (pictures.UnreadableError, sounds.UnheardError, edgekit_runtime.InputError) as error:
        return {"error": str(error)}


def write(path, document):
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(document) + "\n")
    part.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="watched", help="in app/data, unless it begins with /")
    parser.add_argument("--seconds", type=float, default=1, help="between two looks")
    parser.add_argument("--once", action="store_true", help="end when all files have results")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())

    with edgekit_runtime.open() as model:
        if wake_words.task_of(model) is None:
            sys.exit("expected a model with a task, found one without; see main.py")
        edgekit_runtime.alive(f"watching {folder}")
        before = {}
        while True:
            new = stamps(folder)
            for name in sorted(name for name, own in new.items() if before.get(name) == own):
                try:
                    document = result(model, folder / name)
                except FileNotFoundError:  # it was taken away
                    continue
                write(folder / (name + DONE), document)
                print(f"{name}: {json.dumps(document):.200}", flush=True)
                edgekit_runtime.alive(name)
            if options.once and not new:
                return
            before = new
            edgekit_runtime.alive()
            time.sleep(options.seconds)


main()
