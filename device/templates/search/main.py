"""A search server on a Unix socket: finds the nearest of many vectors, such as embeddings of faces
or texts, by one matrix product per request. It needs a release of kernels.

    curl --unix-socket search.sock http://board/                  # number and width of the vectors
    curl --unix-socket search.sock http://board/nearest?count=3 --data-binary @wanted.f32

The body of /nearest is one or more vectors of little-endian floats. The response is JSON: for each
of them the numbers of the nearest vectors, nearest first, and their squared distances. --points
names a file of vectors; without it, there are random ones to try it with.
"""

import argparse
import heapq
import http.server
import json
import os
import pathlib
import random
import signal
import socketserver
import sys
import urllib.parse
from array import array

import edgekit_runtime
from edgekit_runtime import gemm

DEMO_POINTS = 1000
MOST_BYTES = 16 << 20  # of a request
MOST_SECONDS = 10  # for a client to send its request


class Points:
    """Vectors, laid out for products."""

    def __init__(self, values, width):
        if width < 1 or not values or len(values) % width:
            sys.exit(f"expected vectors of {width} floats, found {len(values)} floats")
        self.width, self.count = width, len(values) // width
        columns, squares = array("f"), [0.0] * self.count
        for start in range(width):
            column = values[start::width]
            squares = [s + v * v for s, v in zip(squares, column)]
            columns.extend(-2 * v for v in column)
        self.columns, self.squares = matrix(columns, width, self.count), array("f", squares)

    def nearest(self, wanted, count):
        """For each wanted vector, `count` pairs of a number and a squared distance."""
        vectors = matrix(wanted, len(wanted) // self.width, self.width)
        found = gemm(vectors, self.columns, bias=self.squares)  # |p|^2 - 2 w p
        pairs = []
        for vector, row in zip(vectors.tolist(), found.tolist()):
            own = sum(v * v for v in vector)
            best = heapq.nsmallest(count, range(self.count), key=row.__getitem__)
            pairs.append([[i, max(row[i] + own, 0.0)] for i in best])
        return pairs


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = MOST_SECONDS

    def do_GET(self):
        points = self.server.points
        self.answer(200, {"count": points.count, "width": points.width})

    def do_POST(self):
        points, (path, _, query) = self.server.points, self.path.partition("?")
        length = self.headers.get("Content-Length", "none")
        count = urllib.parse.parse_qs(query).get("count", ["1"])[0]
        size, vector = int(length) if length.isdecimal() else -1, 4 * points.width
        fits = 0 < size <= MOST_BYTES
        # Read before any answer: a client that still sends would not see it.
        body = self.rfile.read(size) if fits else b""
        known = fits and path == "/nearest" and count.isdecimal() and len(count) < 10
        if not known or size % vector:
            text = f"/nearest?count=N with vectors of {vector} bytes"
            return self.answer(400, f"expected {text}, found {length} bytes for {self.path[:80]}")
        wanted = array("f")
        wanted.frombytes(body)
        return self.answer(200, points.nearest(wanted, int(count)))

    def answer(self, code, document):
        body = json.dumps(document).encode() + b"\n"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "client"

    def log_request(self, code="-", size="-"):
        pass  # do not log requests, which are many; only errors


class Server(socketserver.UnixStreamServer):
    def service_actions(self):
        """Runs every half second, and after each request."""
        edgekit_runtime.alive()

    def handle_error(self, *_):
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # those are clients that left
            print(f"expected to answer a client, found {error!r}", file=sys.stderr)


def matrix(values, rows, columns):
    return memoryview(values).cast("B").cast("f", [rows, columns])


def read_points(path, width):
    values = array("f")
    if path:
        values.frombytes(path.read_bytes())
    else:
        chance = random.Random(0)
        values.extend(chance.gauss(0, 1) for _ in range(DEMO_POINTS * width))
    return Points(values, width)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=pathlib.Path, help="file of vectors: little-endian floats")
    parser.add_argument("--width", type=int, default=64, help="floats per vector")
    parser.add_argument(
        "--socket", type=pathlib.Path, default="search.sock", help="socket to listen on"
    )
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    points = read_points(options.points, options.width)
    options.socket.unlink(missing_ok=True)  # left by a killed server
    os.umask(0o177)
    server = Server(str(options.socket), Handler)
    server.points = points
    edgekit_runtime.alive(
        f"searching {points.count} vectors, listening on {options.socket.resolve()}"
    )
    with server:
        server.serve_forever()


main()
