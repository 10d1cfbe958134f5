"""An inference server on a Unix socket, for programs of the same user on the board.

    curl --unix-socket serve.sock http://board/                  # the model's inputs and outputs
    firefox http://127.0.0.1:PORT/                               # what it finds in pictures
    curl --unix-socket serve.sock http://board/metrics           # for Prometheus
    curl --unix-socket serve.sock http://board/run --data-binary @input.bin -o output.bin
    curl --unix-socket serve.sock http://board/detect --data-binary @door.jpg     # boxes as JSON

The body of /run is the concatenation of all inputs as raw little-endian bytes; the response is that
of all outputs. If the model has several signatures, /run/NAME runs NAME, and /run the first. The
header X-Release names the release that computed it. /detect, /classify, /pose, /segment,
/instances, /obb, /embed and /ocr take a picture, if the model has that task and the board has
Pillow, which reads it; of a model of texts, /classify and /embed take a text, of one of speakers
/embed takes sound; /v1/embeddings is OpenAI's interface, as are /v1/completions and
/v1/chat/completions of a language model; /read gives the text in what a detector finds in a
picture, as the model --recognizer reads it; /transcribe and /v1/audio/transcriptions take sound;
/v1/vision/detection takes a form with a picture, as Frigate's detector "deepstack" sends it. With
--http PORT it also listens on that port of 127.0.0.1: any user of the board may then use it, and a
browser sees at / each picture that was sent last, with what was found in it.
"""

import argparse
import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import socketserver
import sys
import threading
import time
import urllib.parse

import edgekit_runtime
import live
import openai_api
import pictures
import sounds

TASKS = (*pictures.TASKS, "read", "transcribe")
VISION = "/v1/vision/detection"
MOST_PICTURE = 16 << 20
MOST_CLIENTS = 64
MOST_SECONDS = 60  # for a client to send its next request, or to read the response
MOST_SECONDS_FULL = 5  # for other bodies to be worked off, until a client is turned away
MOST_UNREAD = 16 << 20
MOST_HELD = 64 << 20  # bytes of all clients' bodies at a time
MOST_HEAD = 16 << 10  # bytes of the header lines of a request
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
LENGTH = re.compile("[0-9]{1,18}")


class Head:
    """The lines of a request's head, which ends after MOST_HEAD bytes."""

    def __init__(self, file):
        self.file = file
        self.left = MOST_HEAD

    def readline(self, most):
        line = self.file.readline(min(most, self.left))
        self.left -= len(line)
        return line


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    timeout = MOST_SECONDS

    def handle_one_request(self):
        try:
            super().handle_one_request()
        finally:
            self.server.give_back(self.connection)

    def parse_request(self):
        file, self.rfile, self.path = self.rfile, Head(self.rfile), ""
        try:
            known = super().parse_request()
            full = not self.rfile.left
        finally:
            self.rfile = file
        self.path = self.path.partition("?")[0]
        if known and full:
            self.close_connection = True
            self.send_error(431)
        return known and not full

    def do_GET(self):
        if self.path == "/v1/models":
            return openai_api.Answers(self).models()
        model, metrics = self.server.model, self.server.inferences.metrics
        if self.path == "/metrics":
            return self.answer(200, metrics.text(), model.release, metrics.content_type)
        if self.path in ("/", "/frames"):
            return live.answer(self)
        if self.path.startswith(openai_api.ROOT):
            return openai_api.Answers(self).unknown(self.path)
        return self.answer(404, b"expected / or /metrics or /v1/models, found another path\n")

    def do_POST(self):
        if self.path[1:] in TASKS:
            return self.find(self.path[1:])
        if self.path == VISION:
            return self.find("detect", pictures.predictions_of, field="image")
        if self.path in openai_api.PATHS:
            return openai_api.Answers(self).post(self.path)
        if self.path.startswith(openai_api.ROOT):
            return openai_api.Answers(self).unknown(self.path)
        model = self.server.model
        signatures = model.signatures
        run, _, name = self.path[1:].partition("/")
        signature = urllib.parse.unquote(name) or next(iter(signatures), "")
        specs = signatures.get(signature, model).inputs
        expected = sum(spec.bytes for spec in specs)
        found = self.length()
        known = run == "run" and (self.path == "/run" or signature in signatures)
        if not known or found != str(expected):
            text = f"expected {expected} bytes for /run, found {found} for {self.path[:80]}"
            return self.refuse(text, found)
        body = self.read(expected)
        if body is None:
            return None
        inputs, start = {}, 0
        for spec in specs:
            inputs[spec.name] = body[start : start + spec.bytes]
            start += spec.bytes
        try:
            outputs = self.server.run(
                self.connection, lambda: model.run(inputs, signature=signature)
            )
        except edgekit_runtime.DeviceError as error:
            return self.answer(500, f"{error}\n".encode())
        return self.answer(200, b"".join(outputs.values()), outputs.release)

    def find(self, task, document_of=None, field=""):
        """Answers with what the model finds in the picture or the text that is the body, or a field
        of the form there; `document_of` says how."""
        body, work = self.read_body(), getattr(self.server.model, task)
        if body is None:
            return None
        if task == "read":
            reader, own = self.server.reader, self.server.model.task
            if reader is None and not (own and own.characters):
                return self.answer(400, b"expected a server with --recognizer for /read\n")
            work = functools.partial(work, recognizer=reader)

        def look():
            nonlocal body
            if field:
                fields = sounds.form_of(self.headers.get("Content-Type", ""), body)
                body = fields.get(field, b"")
            if self.takes_texts():
                return (), work(body.decode("utf-8", "replace"))
            if sounds.is_heard(self.server.model, task):
                return (), sounds.heard(self.server.model, task, body)
            picture = pictures.read_picture(body)  # in turn: its pixels may take 256 MiB
            width, height = picture.size
            found = work(picture.tobytes(), width=width, height=height)
            self.server.inferences.live.show(picture, task, found)
            return picture.size, found

        try:
            extents, found = self.server.run(self.connection, look)
        except ImportError:
            return self.answer(501, pictures.NO_PILLOW)
        except (pictures.UnreadableError, sounds.UnheardError, edgekit_runtime.InputError) as error:
            return self.answer(400, f"{error}\n".encode())
        except edgekit_runtime.DeviceError as error:
            return self.answer(500, f"{error}\n".encode())
        document = document_of(found) if document_of else pictures.as_json(task, found)
        answer = {**dict(zip(("width", "height"), extents)), **document}
        return self.answer(200, json.dumps(answer).encode() + b"\n")

    def takes_texts(self):
        task = self.server.model.task
        return task is not None and bool(task.tokenizer)

    def length(self):
        """The text of Content-Length, or why there is none: what lies behind a body whose end is
        ambiguous could be taken for another request."""
        found = set(self.headers.get_all("Content-Length", ["none"]))
        if "Transfer-Encoding" in self.headers:
            return "a Transfer-Encoding"
        return found.pop() if len(found) == 1 else "several lengths"

    def read_body(self, most=MOST_PICTURE):
        """The body; None if it is too long, which is answered."""
        size = self.length()
        if LENGTH.fullmatch(size) and int(size) <= most:
            return self.read(int(size))
        self.refuse(f"expected at most {most} bytes, found {size}", size)
        return None

    def read(self, size):
        """A body; None if the client ended before it did, or if other clients' bodies leave no room
        for it, which is answered."""
        if self.server.make_room(self.connection, size):
            body = self.rfile.read(size)
            self.close_connection |= len(body) < size
            return body if len(body) == size else None
        self.close_connection = True
        self.wfile.write(BUSY)
        self.pass_over(min(size, MOST_UNREAD))
        return None

    def refuse(self, text, size, code=400, kind=""):
        """Answers a request whose body, of `size` bytes, is not read."""
        self.close_connection = True
        self.answer(code, f"{text}\n".encode(), kind=kind)
        self.pass_over(min(int(size), MOST_UNREAD) if LENGTH.fullmatch(size) else 0)

    def pass_over(self, size):
        """Discards a body: a client that is still sending would miss the response."""
        while size > 0 and (data := self.rfile.read1(min(size, 1 << 16))):
            size -= len(data)

    def answer(self, code, body, release="", kind=""):
        self.send_response(code)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Release", release)
        self.end_headers()
        self.wfile.write(body)
        self.server.wait_for(self.connection)

    def address_string(self):
        return "client"

    def log_request(self, code="-", size="-"):
        pass  # do not log requests, which are many; only errors


class Inferences:
    """The inferences of all servers: `parallel` at a time, and none longer than the watchdog
    allows."""

    def __init__(self, model, parallel, reader):
        self.model = model
        self.reader = reader  # of lines of text; None without one
        self.live = live.Live()
        self.metrics = edgekit_runtime.Metrics(model)
        self.turns = threading.BoundedSemaphore(parallel)
        self.heartbeats = edgekit_runtime.Heartbeats()

    def run(self, work):
        with self.turns, self.heartbeats.inference(), self.metrics.inference():
            return work()


class Server:
    """Common base of both servers: one thread per client, up to a limit."""

    daemon_threads = True
    request_queue_size = 64

    def begin(self, inferences):
        self.inferences = inferences
        self.model = inferences.model
        self.reader = inferences.reader
        self.clients = set()
        self.waiting = {}  # since when the server waits for each client
        self.held = {}  # bytes of each client's body
        self.lock = threading.Condition()

    def make_room(self, client, size):
        """Whether a body may be read now. Clients that have kept the server waiting longest for
        theirs are let go."""
        deadline = time.monotonic() + MOST_SECONDS_FULL
        with self.lock:
            while self.held and sum(self.held.values()) + size > MOST_HELD:
                slow = [each for each in self.held if each in self.waiting]
                if slow:
                    self.let_go(min(slow, key=self.waiting.get))
                if not self.lock.wait(deadline - time.monotonic()):
                    return False
            self.held[client] = size
        return True

    def give_back(self, client):
        """Ends what `make_room` began."""
        with self.lock:
            self.held.pop(client, None)
            self.lock.notify_all()

    def waits_no_more(self, client):
        with self.lock:
            self.waiting.pop(client, None)

    def run(self, client, work):
        self.waits_no_more(client)
        try:
            return self.inferences.run(work)
        finally:
            self.wait_for(client)

    def wait_for(self, client):
        with self.lock:
            self.waiting[client] = time.monotonic()

    def process_request(self, request, client_address):
        """Starts a thread; a full server lets go of the client that has kept it waiting longest,
        and never waits here: it has other clients, and a watchdog."""
        with self.lock:
            full = len(self.clients) >= MOST_CLIENTS
            if full and not self.waiting:
                request.settimeout(1)
                with contextlib.suppress(OSError):
                    request.sendall(BUSY)
                return self.shutdown_request(request)
            if full:
                self.let_go(min(self.waiting, key=self.waiting.get))
            self.clients.add(request)
            self.waiting[request] = time.monotonic()
        return super().process_request(request, client_address)

    def let_go(self, client):
        """Makes the client's thread end; the lock is held."""
        del self.waiting[client]
        self.clients.discard(client)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.clients.discard(request)
                self.waiting.pop(request, None)

    def handle_error(self, *_):
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # those are clients that left
            print(f"expected to answer a client, found {error!r}", file=sys.stderr)

    def service_actions(self):
        """Runs every half second, and after each new client."""
        with self.lock:
            late = time.monotonic() - MOST_SECONDS
            for client in [each for each, since in self.waiting.items() if since < late]:
                self.let_go(client)


class UnixServer(Server, socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def service_actions(self):
        super().service_actions()
        self.inferences.heartbeats.send()  # one server sends them for both


class HttpServer(Server, http.server.ThreadingHTTPServer):
    pass


def listening(kind, place, option):
    try:
        return kind(place, Handler)
    except (OSError, OverflowError) as error:
        sys.exit(f"expected to listen as {option} says, found: {error}; choose another place")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--socket", type=pathlib.Path, default="serve.sock", help="socket to listen on"
    )
    parser.add_argument(
        "--http", type=int, metavar="PORT", help="port of 127.0.0.1 to listen on, too"
    )
    parser.add_argument("--parallel", type=int, default=1, help="number of simultaneous inferences")
    parser.add_argument(
        "--threads", type=int, help="threads per inference (default: the release's)"
    )
    parser.add_argument("--recognizer", metavar="NAME", help="model that reads lines, for /read")
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    placement = {"threads": options.threads, "parallel": options.parallel}
    model = edgekit_runtime.open(**placement)
    options.socket.unlink(missing_ok=True)  # left by a killed server
    os.umask(0o177)
    server = listening(UnixServer, str(options.socket), "--socket")
    reader = edgekit_runtime.open(options.recognizer, **placement) if options.recognizer else None
    inferences = Inferences(model, options.parallel, reader)
    server.begin(inferences)
    if options.http:
        http = listening(HttpServer, ("127.0.0.1", options.http), "--http")
        http.begin(inferences)
        threading.Thread(target=http.serve_forever, daemon=True).start()
    edgekit_runtime.alive(f"serving {model.name} on {options.socket.resolve()}")
    with server, model:
        server.serve_forever()


main()
