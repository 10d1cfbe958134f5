"""Wake words and transcripts for Home Assistant, by its Wyoming protocol.

A model compiled with --task keyword, such as openWakeWord's, or one of microWakeWord's, says when
its words are heard; one for transcribe says what is said. In Home Assistant, add the integration
"Wyoming Protocol" with this board's address and the port. --host 0.0.0.0 lets other machines
connect: there is no password.
"""

import argparse
import array
import json
import signal
import socketserver
import sys
import threading

import edgekit_runtime
import wake_words

MOST_LINE, MOST_BYTES = 1 << 16, 1 << 20  # of an event, and of what follows it
MOST_SECONDS = 120  # of sound that is written down at once
PATIENCE = 300  # seconds for a client to send its next event
MAKER = {"name": "edgekit", "url": ""}


class AskedError(Exception):
    """An event that does not fit; its text says what was expected."""


def read_event(stream):
    """The next event: its type, data and payload; None at the end of the stream."""
    line = stream.readline(MOST_LINE)
    if not line:
        return None
    try:
        event = json.loads(line)
        sizes = [int(event.get(name) or 0) for name in ("data_length", "payload_length")]
        if not all(0 <= size <= MOST_BYTES for size in sizes):
            raise ValueError
        more, payload = (stream.read(size) for size in sizes)
        data = {**(event.get("data") or {}), **(json.loads(more) if more else {})}
        return str(event["type"]), data, payload
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise AskedError(f"expected an event of Wyoming, found {line[:60]!r}") from None


def about(model):
    """What this program offers, as the answer to `describe`."""
    task = wake_words.task_of(model)
    own = {"name": model.name, "attribution": MAKER, "installed": True, "version": None,
           "description": model.name}  # fmt: skip
    if task.kind == "transcribe":
        languages = {**own, "languages": ["en"]}
        return {"asr": [{**own, "name": "edgekit", "models": [languages]}]}
    models = [
        {**own, "name": label, "description": label, "phrase": label, "languages": []}
        for label in task.labels
    ]
    return {"wake": [{**own, "name": "edgekit", "models": models}]}


class Client(socketserver.StreamRequestHandler):
    timeout = PATIENCE

    def handle(self):
        self.ear = self.names = self.sound = None
        self.heard, self.said, self.listens = set(), False, False
        try:
            while event := read_event(self.rfile):
                self.answer(*event)
        except (AskedError, edgekit_runtime.DeviceError) as error:
            self.send("error", {"text": str(error), "code": None})
        except OSError:
            pass  # the client left, or said nothing for too long
        finally:
            self.stop_listening()

    def answer(self, kind, data, payload):
        if kind == "describe":
            self.send("info", about(self.server.model))
        elif kind == "ping":
            self.send("pong", {"text": data.get("text")})
        elif kind == "detect":
            self.names = data.get("names")
        elif kind == "audio-start":
            self.begin()
        elif kind == "audio-chunk":
            self.take(samples_of(data, payload, self.server.task.rate))
        elif kind == "audio-stop":
            self.end()

    def begin(self):
        self.stop_listening()
        self.heard, self.said = set(), False
        if self.server.task.kind == "transcribe":
            self.sound = array.array("f")
            return
        self.listens = self.server.ears.acquire(timeout=1)
        if not self.listens:
            raise AskedError("expected one listener at a time, found another; try again later")
        self.server.model.reset()
        self.ear = wake_words.listen(self.server.model)

    def take(self, samples):
        if self.ear is None and self.sound is None:
            self.begin()
        if self.sound is not None:
            rate = self.server.task.rate
            self.sound += samples[: MOST_SECONDS * rate - len(self.sound)]
            return
        with self.server.heartbeats.inference():
            found = self.ear.feed(samples)
        now = {(event.number, event.name) for event in found}
        now |= {(number, self.name_of(number)) for number in self.ear.now}
        for number, name in sorted(now):
            if number not in self.heard and (not self.names or name in self.names):
                self.send("detection", {"name": name, "timestamp": None})
                self.heard.add(number)
                self.said = True
        self.heard &= set(self.ear.now)  # a word may be said again

    def name_of(self, number):
        labels = self.server.task.labels
        return labels[number] if number < len(labels) else f"class {number}"

    def end(self):
        if self.sound is not None:
            with self.server.turn, self.server.heartbeats.inference():
                line = self.server.model.transcribe(self.sound)
            self.send("transcript", {"text": line.text})
        elif self.ear is not None and not self.said:
            self.send("not-detected", {})
        self.stop_listening()

    def stop_listening(self):
        if self.listens:
            self.server.ears.release()
        self.ear, self.sound, self.listens = None, None, False

    def send(self, kind, data):
        body = json.dumps(data, ensure_ascii=False).encode()
        head = {"type": kind, "version": edgekit_runtime.VERSION, "data_length": len(body)}
        self.wfile.write(json.dumps(head).encode() + b"\n" + body)


def samples_of(data, payload, rate):
    """The samples of a chunk, -1 to 1, of one channel."""
    found = data.get("rate"), data.get("width"), data.get("channels")
    if found[:2] != (rate, 2) or found[2] not in (1, 2):
        raise AskedError(
            f"expected sound of {rate} samples a second, 2 bytes each, 1 or 2 channels, found "
            f"{found[0]}, {found[1]} bytes, {found[2]} channels"
        )
    codes = array.array("h", payload[: len(payload) // 2 * 2])
    if sys.byteorder == "big":
        codes.byteswap()
    if found[2] == 2:
        codes = [(left + right) / 2 for left, right in zip(codes[::2], codes[1::2])]
    return array.array("f", (code / 32768 for code in codes))


class Server(socketserver.ThreadingTCPServer):
    """`ears` is the turn of a client that listens: the model has one state."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address, model):
        super().__init__(address, Client)
        self.model, self.task = model, wake_words.task_of(model)
        self.ears, self.turn = threading.Semaphore(), threading.Lock()
        self.heartbeats = edgekit_runtime.Heartbeats()

    def service_actions(self):
        self.heartbeats.send()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=10400, help="port to listen on")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with edgekit_runtime.open() as model:
        task = wake_words.task_of(model)
        if task is None or task.kind not in ("keyword", "transcribe"):
            sys.exit(
                "expected a model compiled with --task keyword or transcribe, found "
                f"{task.kind if task else 'no task'}; compile it so"
            )
        try:
            server = Server((options.host, options.port), model)
        except OSError as error:
            sys.exit(f"expected to listen on {options.host}:{options.port}, found {error.strerror}")
        with server:
            status = f"listens on port {server.server_address[1]}"
            print(status, flush=True)
            edgekit_runtime.alive(status)
            server.serve_forever()


main()
