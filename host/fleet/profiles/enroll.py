"""Ways for profiles to arrive other than a pull: boards push them, or files are imported."""

from __future__ import annotations

from pathlib import Path

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.push import PushTarget, home_bytes
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.deploy.release import BoardCalls
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.server import certificate_of, tokens_of
from edgekit.host.fleet.profiles.store import ProfileStore, StoredBatches

BITS_PER_SECOND = 64_000
_SECONDS = 60.0
_STREAM_BYTES = 4 << 20


def enroll(
    board: BoardCalls,
    store: ProfileStore,
    host: str,
    port: int,
    bits_per_second: int = BITS_PER_SECOND,
) -> PushTarget:
    """Gives a board a token and the certificate of the store's server at `host`. Invalidates any
    earlier token of the board once the board has the new one."""
    fingerprint = certificate_of(store)[1]
    board.call("profile", "--most-bytes", "1", deadline=_SECONDS)  # creates the spool folder
    with tokens_of(store).issuing(board.name) as token:
        home = PushTarget(host, port, board.name, token, fingerprint, bits_per_second)
        board.transport.put(home_bytes(home), "spool/home.json", deadline=_SECONDS)
    return home


def sender_line(board: BoardCalls) -> str:
    """Returns the shell command with which the board sends its profiles; empty if nothing is
    deployed there yet."""
    answer = board.call("profile", "--most-bytes", "1", "--sender", deadline=_SECONDS)
    return str(answer.get("sender", ""))


def revoke(store: ProfileStore, board: str) -> None:
    """Revokes the token of a board."""
    tokens_of(store).revoke(board)


def upload(store: ProfileStore, board: str, folder: Path) -> tuple[StoredBatches, tuple[str, ...]]:
    """Stores the spool files in `folder` as batches of `board`, without deleting them; also returns
    why any files were rejected. InputError if there are none."""
    files = sorted(folder.rglob("*.batch"))
    if not files:
        raise InputError(
            f"{folder}: expected files of a board's spool, *.batch, found none; "
            "on the board they are in ~/.edgekit/spool"
        )
    stored, damaged, waiting = StoredBatches(), [], b""
    for file in files:
        data = file.read_bytes() if file.stat().st_size <= _STREAM_BYTES else b""
        try:
            if sum(1 for _ in bodies(data)) == 0:
                raise DeviceInputError("profile batch: expected one, found none")
        except DeviceInputError as error:
            damaged.append(f"{file}: {error}")
            continue
        if len(waiting) + len(data) > _STREAM_BYTES:
            stored, waiting = stored + store.add(board, waiting), b""
        waiting += data
    if waiting:
        stored += store.add(board, waiting)
    return stored, tuple(damaged)
