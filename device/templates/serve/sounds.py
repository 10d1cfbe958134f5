"""Sound in requests: a WAV file, or what ffmpeg on the board reads, as samples for the model."""

import array
import io
import re
import shutil
import subprocess
import sys
import wave

BOUNDARY = re.compile(r'multipart/form-data;.*boundary="?([^";]{1,70})"?', re.IGNORECASE)
NAME = re.compile(rb'[;\s]name="([^"]*)"', re.IGNORECASE)
WAV_BYTES = 2  # of a sample that needs no ffmpeg
MOST_FIELDS = 64  # of a form
MOST_SOUND = 32 << 20  # bytes of samples: 17 minutes of 16,000 a second
MOST_SECONDS = 30  # for ffmpeg


class UnheardError(Exception):
    """A request that does not fit; its text says what was expected."""


def form_of(kind, body):
    """The fields of a form, as bytes by name; `kind` is its content type."""
    found = BOUNDARY.match(kind)
    if not found:
        raise UnheardError(f"expected a form with a file, found {kind[:60] or 'no content type'}")
    parts = (b"\r\n" + body).split(b"\r\n--" + found[1].encode(), MOST_FIELDS + 2)[1:-1]
    if len(parts) > MOST_FIELDS:
        raise UnheardError(f"expected a form of at most {MOST_FIELDS} fields, found more")
    fields = {}
    for part in parts:
        head, between, content = part.partition(b"\r\n\r\n")
        name = NAME.search(head)
        if between and name:
            fields[name[1].decode("utf-8", "replace")] = content
    return fields


def is_heard(model, task):
    """Whether a request for the task has sound, not a picture."""
    return task == "transcribe" or bool(task == "embed" and model.task and model.task.rate)


def heard(model, task, body):
    """What the model finds in a file of sound."""
    return getattr(model, task)(_samples_for(model, body))


def subtitled(model, body):
    """The same in parts with their times, and the seconds of the whole sound."""
    samples = _samples_for(model, body)
    return model.subtitles(samples), len(samples) / model.task.rate


def _samples_for(model, body):
    rate = model.task.rate if model.task else 0  # without one, the model says what is missing
    return samples_of(body, rate) if rate else b""


def samples_of(body, rate):
    """Samples of -1 to 1, of one channel, `rate` a second. Only a WAV file of such, in 16 bits,
    needs no ffmpeg on the board."""
    data = _wav_of(body, rate)
    if data is None:
        data = _converted(body, rate)
    codes = array.array("h", data[: len(data) // WAV_BYTES * WAV_BYTES])
    if sys.byteorder == "big":
        codes.byteswap()
    return array.array("f", (code / 32768 for code in codes))


def _wav_of(body, rate):
    try:
        with wave.open(io.BytesIO(body)) as file:
            if (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (
                1, WAV_BYTES, rate,
            ):  # fmt: skip
                return file.readframes(file.getnframes())
    except (wave.Error, EOFError, ValueError, RuntimeError):
        pass
    return None


def _converted(body, rate):
    program = shutil.which("ffmpeg")
    if program is None:
        raise UnheardError(
            f"expected a WAV file of one channel, 16 bits and {rate} samples a second, found "
            "another; install ffmpeg on the board, which converts others"
        )
    # A playlist must not make it read other files or addresses, nor a small file fill the memory.
    words = [program, "-v", "error", "-protocol_whitelist", "pipe", "-i", "pipe:0", "-f", "s16le"]
    words += ["-ac", "1", "-ar", str(rate), "-fs", str(MOST_SOUND), "pipe:1"]
    try:
        done = subprocess.run(
            words, input=body, capture_output=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnheardError(
            f"expected sound that ffmpeg reads within {MOST_SECONDS} s, found other"
        ) from None
    if len(done.stdout) >= MOST_SOUND:
        minutes = MOST_SOUND // (WAV_BYTES * 60 * rate)
        raise UnheardError(f"expected at most {minutes} minutes of sound, found more")
    if done.returncode or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnheardError(
            f"expected sound, found what ffmpeg cannot read: {(said or ['none'])[-1]}"
        )
    return done.stdout
