"""Pushes spooled batches to a host over HTTPS: rate-limited, with retries, to a pinned certificate.

The certificate is compared byte for byte and its dates are ignored, because the board's clock may
be unset. A host that answers 200 has stored the batches; only then does the board delete them.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import random
import re
import time
import zlib
from pathlib import Path
from typing import Callable, Optional, Tuple

from edgekit.device.runtime.agent.retry import LONGEST_WAIT, waits
from edgekit.device.runtime.agent.spool import Fetched, Spool
from edgekit.device.runtime.agent.strict import distinct_keys, integer, keys_of, matching, short
from edgekit.device.runtime.errors import DeviceError, IncompatibleError, InputError
from edgekit.device.runtime.record import Record, asdict

log = logging.getLogger("edgekit.profile")

_MOST_BYTES = 1 << 18  # of batches in one request, before compression
_MOST_ANSWER = 1 << 12
_SECONDS = 60.0  # of silence, before a link counts as lost
_PIECE = 2048
_PIECE_OVERHEAD = 110  # TLS and TCP overhead of a piece
_CONNECT_BYTES = 3072  # a handshake and the head of a request
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")
_BOARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")


class PushTarget(Record):
    """The host that receives a board's profiles, and the rate limit: `certificate` is the SHA-256
    of the host's, `token` identifies this board to the host."""

    host: str
    port: int
    board: str
    token: str
    certificate: str
    bits_per_second: int


class LaterError(DeviceError):
    """The attempt failed; `seconds` is the delay that the host asked for."""

    exit_code = 6
    kind = "transfer"

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


def home_of(spool: Spool) -> Path:
    """Returns the file that stores a board's host; readable only by its owner."""
    return spool.home


def home_bytes(home: PushTarget) -> bytes:
    """Serializes `home` for `read_home`."""
    return json.dumps(asdict(home)).encode()


def read_home(path: Path) -> PushTarget:
    """Reads the enrolled host; InputError if there is none, or the file is damaged."""
    try:
        raw = json.loads(path.read_bytes(), object_pairs_hook=distinct_keys)
    except FileNotFoundError:
        raise InputError(
            "expected a server to send profiles to, found none enrolled; on the host: edgekit "
            "fleet enroll BOARD"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path.name}: expected JSON, found {short(error)}; enroll again"
        ) from None
    keys_of(raw, path.name, PushTarget.field_names)
    return PushTarget(
        matching(raw["host"], "host", _HOST, "a host"),
        integer(raw["port"], "port", 1, 65535),
        matching(raw["board"], "board", _BOARD, "a name"),
        matching(raw["token"], "token", _HEX, "64 hexadecimal digits"),
        matching(raw["certificate"], "certificate", _HEX, "64 hexadecimal digits"),
        integer(raw["bits_per_second"], "bits_per_second", 1000),
    )


class Bandwidth:
    """Delays each piece to keep the rate at or below `bits_per_second`."""

    def __init__(
        self,
        bits_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bits_per_second / 8
        self._clock, self._sleep = clock, sleep
        self._free = clock()  # when everything sent so far is through at that rate

    def take(self, count: int) -> None:
        """Returns when `count` bytes may be sent."""
        now = self._clock()
        if self._free > now:
            self._sleep(self._free - now)
        self._free = max(self._free, now) + count / self._rate


def push(spool: Spool, home: PushTarget, bandwidth: Bandwidth) -> int:
    """Sends everything in the spool; returns the bytes of batches. LaterError if some remain,
    InputError if the host rejects this board."""
    sent = 0
    connection: Optional[http.client.HTTPConnection] = None
    try:
        while (found := spool.fetch(_MOST_BYTES)).data:
            if connection is None:
                bandwidth.take(_CONNECT_BYTES)
                connection, _ = connect(home)
            _post_profiles(connection, home, found, bandwidth)
            spool.acknowledge(found.spool, found.through)
            sent += len(found.data)
    except (OSError, http.client.HTTPException) as error:
        raise LaterError(
            f"{home.host}:{home.port}: expected to send profiles, found {short(error)}"
        ) from None
    finally:
        if connection is not None:
            connection.close()
    return sent


def push_for_ever(
    spool: Spool,
    period: float,
    gather: Callable[[], None],
    sleep: Callable[[float], None] = time.sleep,
    chance: Optional[random.Random] = None,
) -> None:
    """Periodically calls `gather`, which adds pending samples to the spool, and sends everything;
    failures are logged and retried."""
    chance = chance or random.SystemRandom()
    failures, asked = 0, 0.0
    sleep(period * chance.random())
    while True:
        try:
            gather()
            home = read_home(home_of(spool))
            push(spool, home, Bandwidth(home.bits_per_second, sleep=sleep))
            failures, asked = 0, 0.0
        except DeviceError as error:
            log.warning("%s", error)
            failures += 1
            asked = error.seconds if isinstance(error, LaterError) else 0.0
        sleep(waits(failures, asked, period, chance))


def server_name(certificate: str) -> str:
    """The name by which a server with several certificates is asked for one of them."""
    return f"{certificate[:32]}.edgekit"


def connect(home: PushTarget, announced: str = "") -> Tuple[http.client.HTTPConnection, str]:
    """Connects to the server, through a proxy if the environment names one. Returns the SHA-256 of
    its certificate as well, which must be the pinned one, or the one that verified metadata has
    `announced`; InputError if not."""
    try:
        import ssl
    except ImportError:
        raise IncompatibleError(
            "expected Python's ssl module on this board, found none; install it, or fetch with: "
            "edgekit profile pull"
        ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no dates or authorities; the certificate is pinned
    connection = _plain_connection(home)
    connection.auto_open = 0  # it would connect again without comparing the certificate
    connection.connect()
    try:
        name = server_name(announced or home.certificate)
        sock = context.wrap_socket(connection.sock, server_hostname=name)
        connection.sock = sock
        certificate = sock.getpeercert(binary_form=True) or b""
    except BaseException:
        connection.close()
        raise
    found = hashlib.sha256(certificate).hexdigest()
    if found not in (home.certificate, announced):
        connection.close()
        raise InputError(
            f"{home.host}:{home.port}: expected the certificate {home.certificate[:16]}..., found "
            f"{found[:16]}...; nothing was sent. If the certificate was replaced: edgekit profile "
            "server enroll BOARD"
        )
    return connection, found


def _plain_connection(home: PushTarget) -> http.client.HTTPConnection:
    """A connection that is not open yet."""
    if any(name.lower() == "https_proxy" for name in os.environ):
        from urllib.parse import urlsplit
        from urllib.request import getproxies_environment, proxy_bypass

        proxy = urlsplit(getproxies_environment().get("https", ""))
        if proxy.hostname and not proxy_bypass(home.host):
            connection = http.client.HTTPConnection(
                proxy.hostname, proxy.port or 80, timeout=_SECONDS
            )
            connection.set_tunnel(home.host, home.port)
            return connection
    return http.client.HTTPConnection(home.host, home.port, timeout=_SECONDS)


def _post_profiles(
    connection: http.client.HTTPConnection, home: PushTarget, found: Fetched, bandwidth: Bandwidth
) -> None:
    """Sends one request and handles its answer."""
    data = zlib.compress(found.data)
    connection.putrequest("POST", f"/v1/boards/{home.board}/profiles")
    connection.putheader("Authorization", f"Bearer {home.token}")
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Content-Encoding", "deflate")
    connection.putheader("Content-Length", str(len(data)))
    connection.endheaders()
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        bandwidth.take(len(piece) + _PIECE_OVERHEAD)
        connection.send(piece)
    answer = answer_of(connection)
    why = short(answer.read(_MOST_ANSWER).decode("utf-8", "replace"))
    if answer.status == 200:
        return
    message = (
        f"{home.host}:{home.port}: expected it to accept profiles, found {answer.status} {why}"
    )
    if answer.status in (401, 403):
        raise InputError(f"{message}; on the host: edgekit fleet enroll {home.board}")
    raise LaterError(message, retry_after(answer))


def answer_of(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    """The answer to a request. HTTPException if it comes in chunks, which no server of edgekit
    sends: http.client believes a chunk of a negative length."""
    answer = connection.getresponse()
    if answer.chunked:
        raise http.client.HTTPException("an answer in chunks")
    return answer


def retry_after(answer: http.client.HTTPResponse) -> float:
    """The seconds that a server asks to wait."""
    asked = answer.getheader("Retry-After") or ""
    return min(float(asked), LONGEST_WAIT) if re.fullmatch("[0-9]{1,9}", asked) else 0.0
