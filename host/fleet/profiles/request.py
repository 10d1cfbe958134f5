"""The subset of HTTP/1.1 that boards use: the head of a request, and an answer in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

MOST_HEAD = 8 << 10
MOST_BODY = 1 << 20
_LINE = re.compile(r"([A-Z]{1,16}) (\S{1,2000}) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_PATH = re.compile(r"/v1/boards/([A-Za-z0-9_][A-Za-z0-9._-]{0,63})/(profiles|releases/(\S{1,120}))")
_BEARER = re.compile(r"Bearer ([0-9a-f]{64})")
_LENGTH = re.compile(r"[0-9]{1,18}")


class RefusedError(Exception):
    """An error response; `seconds` until the board may retry."""

    def __init__(self, status: HTTPStatus, why: str, seconds: float = 0) -> None:
        super().__init__(why)
        self.status, self.seconds = status, seconds


@dataclass(frozen=True)
class RequestHead:
    """The head of a request; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    keeps: bool  # the connection stays open

    @property
    def board(self) -> str:
        """The board that posts profiles or asks for releases."""
        found = _PATH.fullmatch(self.path)
        if found is None or (self.method != "POST" and not found[3]):
            raise RefusedError(HTTPStatus.NOT_FOUND, "no such page")
        return found[1]

    @property
    def release_page(self) -> str:
        """What is asked for of the releases; empty if profiles are posted."""
        found = _PATH.fullmatch(self.path)
        return (found[3] or "") if found else ""

    @property
    def is_for_boards(self) -> bool:
        """Whether a board asks, not Prometheus or a person."""
        return _PATH.fullmatch(self.path) is not None

    @property
    def token(self) -> str | None:
        found = _BEARER.fullmatch(self.headers.get("authorization", ""))
        return found[1] if found else None

    @property
    def length(self) -> int:
        """Bytes of the body."""
        length = self.headers.get("content-length", "")
        if not _LENGTH.fullmatch(length) or "transfer-encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "expected Content-Length")
        if int(length) > MOST_BODY:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY} bytes"
            )
        return int(length)


def parse_head(data: bytes) -> RequestHead:
    """Parses a head that ends with an empty line."""
    first, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    found = _LINE.fullmatch(first)
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in headers:
            found = None
            break
        headers[header[1].lower()] = header[2]
    if found is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "expected an HTTP request")
    keeps = found[3] == "1" and headers.get("connection", "").lower() != "close"
    path = found[2].partition("?")[0]  # no page has a query
    return RequestHead(found[1], path, headers, keeps)


def answer(status: HTTPStatus, text: str, keeps: bool, seconds: float = 0) -> bytes:
    """An answer with a line of text; `seconds` tell when to come back."""
    return page(status, f"{text}\n".encode(), "text/plain; charset=utf-8", keeps, seconds)


def page(status: HTTPStatus, body: bytes, kind: str, keeps: bool, seconds: float = 0) -> bytes:
    """An answer with any body, of this content type."""
    extra = f"Retry-After: {int(seconds) + 1}" if seconds else ""
    return head_of(status, len(body), kind, keeps, extra) + body


def head_of(status: HTTPStatus, length: int, kind: str, keeps: bool, extra: str = "") -> bytes:
    """The head of an answer with a body of `length` bytes; `extra` is one more header."""
    lines = [f"Content-Length: {length}", *([extra] if extra else [])]
    return _head(status, kind, *lines, *([] if keeps else ["Connection: close"]))


def stream_head(kind: str) -> bytes:
    """The head of an answer that lasts as long as the connection."""
    return _head(HTTPStatus.OK, kind, "Cache-Control: no-store", "Connection: close")


def _head(status: HTTPStatus, kind: str, *more: str) -> bytes:
    first = f"HTTP/1.1 {status.value} {status.phrase}"
    return "\r\n".join((first, "Server: edgekit", f"Content-Type: {kind}", *more, "", "")).encode()
