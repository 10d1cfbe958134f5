"""An inference server on a Unix socket, which only programs of this board and user reach.

    curl --unix-socket serve.sock http://board/                  # the model's inputs and outputs
    curl --unix-socket serve.sock http://board/run --data-binary @input.bin -o output.bin

The body of /run is the concatenation of all inputs as raw little-endian bytes; the response is that
of all outputs. The header X-Release names the release that computed it. With --http PORT it also
listens on that port of 127.0.0.1: any user of the board may then use it.
"""

import argparse
import http.server
import json
import os
import pathlib
import signal
import socketserver
import sys
import threading

import edgekit_runtime

MOST_CLIENTS = 64
MOST_UNREAD = 16 << 20


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    timeout = 60  # seconds for which an idle client may occupy a thread

    def do_GET(self):
        model = self.server.model
        about = {
            "release": model.release,
            "model": model.name,
            "inputs": [described(spec) for spec in model.inputs],
            "outputs": [described(spec) for spec in model.outputs],
        }
        self.answer(200, json.dumps(about).encode() + b"\n", model.release)

    def do_POST(self):
        model = self.server.model
        specs = model.inputs
        expected = sum(spec.bytes for spec in specs)
        found = self.headers.get("Content-Length", "none")
        if self.path != "/run" or found != str(expected):
            self.close_connection = True
            text = f"expected {expected} bytes for /run, found {found} for {self.path[:80]}\n"
            self.answer(400, text.encode())
            return self.pass_over(min(int(found), MOST_UNREAD) if found.isdigit() else 0)
        body = self.rfile.read(expected)
        inputs, start = {}, 0
        for spec in specs:
            inputs[spec.name] = body[start : start + spec.bytes]
            start += spec.bytes
        try:
            outputs = self.server.run(inputs)
        except edgekit_runtime.DeviceError as error:
            return self.answer(500, f"{error}\n".encode())
        return self.answer(200, b"".join(outputs.values()), outputs.release)

    def pass_over(self, size):
        """Discards a body: a client that is still sending would miss the response."""
        while size > 0 and (data := self.rfile.read1(min(size, 1 << 16))):
            size -= len(data)

    def answer(self, code, body, release=""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Release", release)
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "client"

    def log_request(self, code="-", size="-"):
        pass  # do not log requests, which are many; only errors


class Server:
    """Common base of both servers: one thread per client, up to a limit."""

    daemon_threads = True
    request_queue_size = 64

    def begin(self, model):
        self.model = model
        self.busy = 0
        self.places = threading.BoundedSemaphore(MOST_CLIENTS)
        self.lock = threading.Lock()

    def run(self, inputs):
        with self.lock:
            self.busy += 1
        try:
            return self.model.run(inputs)
        finally:
            with self.lock:
                self.busy -= 1

    def process_request(self, request, client_address):
        self.places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def service_actions(self):
        """Sends heartbeats between requests. During a request only its completion counts as one, so
        that a hanging model is detected."""
        if not self.busy:
            edgekit_runtime.alive()


class UnixServer(Server, socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass


class HttpServer(Server, http.server.ThreadingHTTPServer):
    pass


def described(spec):
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.bytes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--socket", type=pathlib.Path, default="serve.sock", help="file to listen at"
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="listen on 127.0.0.1, too")
    parser.add_argument("--parallel", type=int, default=1, help="inferences at the same time")
    parser.add_argument("--threads", type=int, help="of each inference; as the release says")
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    model = edgekit_runtime.open(threads=options.threads, parallel=options.parallel)
    options.socket.unlink(missing_ok=True)  # left by a killed server
    os.umask(0o177)
    server = UnixServer(str(options.socket), Handler)
    server.begin(model)
    if options.http:
        beside = HttpServer(("127.0.0.1", options.http), Handler)
        beside.begin(model)
        threading.Thread(target=beside.serve_forever, daemon=True).start()
    edgekit_runtime.alive(f"serves {model.name} at {options.socket.resolve()}")
    with server, model:
        server.serve_forever()


main()
