"""Listens to a microphone for a wake word, such as microWakeWord's okay_nabu, and says when it
hears it. A model compiled with --task keyword or vad says which words it hears, or where somebody
speaks.

arecord captures the sound: install alsa-utils on the board. Any other program that writes 16-bit
mono samples at 16 kHz also works: name it with --command. --wav reads a file instead.
"""

import argparse
import array
import shlex
import signal
import subprocess
import sys
import wave

import edgekit_runtime
import features
import wake_words

ARECORD = f"arecord -q -t raw -f S16_LE -r {features.RATE} -c 1"
PACKAGES = {"arecord": "alsa-utils"}  # of Debian, by program
PAUSE = 100  # frames of 10 ms to skip after a wake word


def started(command):
    try:
        return subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE)
    except OSError as error:
        program = command.split()[0]
        package = PACKAGES.get(program, "")
        way = f"apt-get install {package}" if package else "install it"
        sys.exit(f"expected to run {program}, found: {error.strerror}; {way}, or use --command")


def microphone(command):
    """Yields sound from the recording program; ends this program when that one ends."""
    with started(command) as program:
        signal.signal(signal.SIGTERM, lambda *_: program.terminate() or sys.exit())
        while data := program.stdout.read(2 * features.STEP):
            yield data[: len(data) // 2 * 2]
    if program.returncode:
        sys.exit(f"expected sound, found that {command.split()[0]} failed")


def recording(path):
    """Yields the sound of a .wav file."""
    with wave.open(path) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (16000, 2, 1):
            sys.exit(f"{path}: expected 16 kHz mono samples of 16 bits, found others; convert it")
        while data := file.readframes(features.STEP):
            yield data


def events(model, sound):
    """Yields what a model with a task hears: words, or speech."""
    if model.task.rate != features.RATE:
        sys.exit(f"expected a model for {features.RATE} samples a second, found {model.task.rate}")
    ear = edgekit_runtime.listen(model)
    for number, data in enumerate(sound):
        if not number:  # not before: it may be that there is no microphone
            edgekit_runtime.alive(f"listens for {model.name}")
        samples = array.array("h", data)
        if sys.byteorder == "big":
            samples.byteswap()
        yield from ear.feed(sample / 32768 for sample in samples)
    yield from ear.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--command", default=ARECORD, help="program that writes sound")
    parser.add_argument("--wav", help="WAV file to read instead")
    parser.add_argument(
        "--threshold", type=float, default=0.85, help="least probability of the word"
    )
    parser.add_argument("--window", type=int, default=5, help="number of answers to average")
    options = parser.parse_args()

    sound = recording(options.wav) if options.wav else microphone(options.command)
    with edgekit_runtime.open() as model:
        if model.task is not None and model.task.kind in ("keyword", "vad"):
            for heard in events(model, sound):
                where = f"from {heard.start:.2f} to {heard.end:.2f} s"
                print(f"heard {heard.name} {where}, {heard.score:.2f}", flush=True)
                edgekit_runtime.alive(f"heard {heard.name} {where}")
            return
        ear, quiet = wake_words.Ear(model, options.window), 0
        for data in sound:
            if not ear.frames:  # not before: it may be that there is no microphone
                edgekit_runtime.alive(f"listening for {model.name}")
            for probability in ear.hear(data):
                if probability > options.threshold and ear.frames >= quiet:
                    text = f"heard at {ear.frames / 100:.2f} s, {probability:.2f}"
                    print(text)
                    edgekit_runtime.alive(text)
                    quiet = ear.frames + PAUSE


main()
