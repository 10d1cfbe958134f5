"""Root shell on a running board, over a virtio port accessible only to the user who started it."""

from __future__ import annotations

import socket
from pathlib import Path

from edgekit.host.errors import UnreachableError

_BLOCK = 65536


def run_as_root(folder: Path, line: str, *, seconds: float) -> str:
    """Runs a shell line on the board with the given control folder and returns its output.

    UnreachableError if it fails or does not finish within `seconds`.
    """
    with socket.socket(socket.AF_UNIX) as port:
        port.settimeout(seconds)
        try:
            port.connect(str(folder / "root"))
            port.sendall(line.encode() + b"\n")
            answer = b""
            while not _is_complete(answer):
                block = port.recv(_BLOCK)
                if not block:
                    raise ConnectionResetError("the board ended")
                answer += block
        except OSError as error:
            raise UnreachableError(
                f"virtual board: expected an answer within {seconds:.0f} s, found: {error}; "
                "try: edgekit board down, then up"
            ) from None
    output, _, status = answer.decode(errors="replace").rstrip("\n").rpartition("=")
    if status != "0":
        raise UnreachableError(
            f"virtual board: expected '{line[:60]}' to succeed, found: {output.strip()[-200:]}"
        )
    return output


def _is_complete(answer: bytes) -> bool:
    last = answer.rpartition(b"\n")[0].rpartition(b"\n")[2]
    return answer.endswith(b"\n") and last[:1] == b"=" and last[1:].isdigit()
