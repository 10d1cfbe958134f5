"""Decides whose releases this board accepts: SSH signatures of manifests, checked by ssh-keygen.

trusted_keys holds one public key per line (ssh-keygen's allowed_signers format), added by
enrollment. The file `unsigned` means that this board was enrolled to accept unsigned bundles. Dates
are not checked, because the board's clock may be unset.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import struct
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from edgekit.device.runtime.agent.store import Store, write_synced
from edgekit.device.runtime.errors import InputError, TransferError
from edgekit.device.runtime.record import Record

NAMESPACE = "edgekit-bundle"
PRINCIPAL = "edgekit"
KEY_TYPE = "ssh-ed25519"
MAX_SIGNATURE_BYTES = 4096

_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
_LINE_CHARACTERS = 70
_HEAD = b"SSHSIG" + struct.pack(">I", 1)  # with the version, which is not signed
_VERIFY_SECONDS = 60.0
_ENROLL = "enroll this host with: edgekit board add"


class PublicKey(Record):
    """An Ed25519 key in OpenSSH format; `blob` is the decoded second word."""

    blob: bytes

    @property
    def line(self) -> str:
        return f"{KEY_TYPE} {base64.b64encode(self.blob).decode('ascii')}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii")
        return "SHA256:" + digest.rstrip("=")


class Trust(Record):
    """Fingerprints of this board's trusted keys, and whether it accepts unsigned bundles."""

    keys: Tuple[str, ...]
    unsigned: bool


def parse_key(line: str) -> PublicKey:
    """Parses `ssh-ed25519 BASE64 [comment]`; InputError if it is anything else."""
    words = line.split()
    if len(words) >= 2 and words[0] == KEY_TYPE:
        with contextlib.suppress(binascii.Error, ValueError, struct.error):
            blob = base64.b64decode(words[1], validate=True)
            kind, rest = _split_string(blob)
            key, rest = _split_string(rest)
            if kind == KEY_TYPE.encode() and len(key) == 32 and not rest:
                return PublicKey(blob)
    raise InputError(f"expected a public key '{KEY_TYPE} BASE64', found '{line.strip()[:40]}'")


def trust(store: Store) -> Trust:
    """Returns the board's enrollment."""
    return Trust(
        tuple(key.fingerprint for key in _read_trusted_keys(store)), store.unsigned.exists()
    )


def enroll(store: Store, line: str, only: bool = False) -> Trust:
    """Adds a trusted key and rejects unsigned bundles from now on; with `only`, removes all other
    keys. Installed releases stay. The deploy lock is held."""
    key = parse_key(line)
    if store.unsigned.exists():
        store.remove_note(store.unsigned)
    known = [] if only else list(_read_trusted_keys(store))
    if key not in known:
        _write_trusted_keys(store, [*known, key])
    return trust(store)


def replace_keys(store: Store, old: List[str], new: List[str]) -> None:
    """Removes trusted keys and adds others, unless this board accepts unsigned bundles. The deploy
    lock is held."""
    if store.unsigned.exists():
        return
    wanted = [parse_key(line) for line in new]
    dropped = [parse_key(line) for line in old]
    kept = [key for key in _read_trusted_keys(store) if key not in (*dropped, *wanted)]
    _write_trusted_keys(store, [*kept, *wanted])


def enroll_unsigned(store: Store) -> Trust:
    """Accepts bundles without a signature, or with any."""
    write_synced(store.unsigned, b"")
    return trust(store)


def check_signature(store: Store, manifest: bytes, signature: Optional[Path]) -> None:
    """TransferError unless `signature` is a trusted key's signature of `manifest`."""
    if store.unsigned.exists():
        return
    trusted = trust(store).keys
    if not trusted:
        raise TransferError(
            f"expected a board that trusts a signing key, found none enrolled; {_ENROLL}"
        )
    expected = f"expected a signature of the manifest by {' or '.join(trusted)}"
    if signature is None:
        raise TransferError(f"{expected}, found none; build the bundle again: edgekit compile")
    signer = _read_signer(signature)
    if signer is None:
        raise TransferError(f"{expected}, found a damaged one; deploy again")
    if signer.fingerprint not in trusted:
        raise TransferError(f"{expected}, found one by {signer.fingerprint}; {_ENROLL}")
    if not _verify_signature(store.trusted_keys, NAMESPACE, manifest, signature):
        raise TransferError(
            f"{expected}, found one that does not match these bytes; deploy again, or build the "
            "bundle again: edgekit compile"
        )


def _write_trusted_keys(store: Store, keys: List[PublicKey]) -> None:
    rows = [f'{PRINCIPAL} namespaces="{NAMESPACE}" {key.line}\n' for key in keys]
    write_synced(store.trusted_keys, "".join(rows).encode("ascii"))


def _read_trusted_keys(store: Store) -> Iterator[PublicKey]:
    try:
        lines = store.trusted_keys.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        start = line.find(KEY_TYPE + " ")
        if start > 0:
            yield parse_key(line[start:])


def _read_signer(file: Path) -> Optional[PublicKey]:
    """Returns the key named in a signature file, without verifying it; None if it is not a
    signature."""
    with contextlib.suppress(OSError, ValueError, struct.error, InputError):
        with file.open("rb") as reader:
            text = reader.read(MAX_SIGNATURE_BYTES + 1)
        data = base64.b64decode(text[len(_BEGIN) : -len(_END)])
        # ssh-keygen is lenient about white space; here every byte must match.
        if text == _armor(data) and data.startswith(_HEAD):
            blob, _ = _split_string(data[len(_HEAD) :])
            return parse_key(PublicKey(blob).line)
    return None


def _armor(data: bytes) -> bytes:
    """Formats a signature exactly like ssh-keygen."""
    text = base64.b64encode(data)
    lines = [text[i : i + _LINE_CHARACTERS] + b"\n" for i in range(0, len(text), _LINE_CHARACTERS)]
    return _BEGIN + b"".join(lines) + _END


def is_signature_by(line: str, namespace: str, data: bytes, signature: bytes, folder: Path) -> bool:
    """Whether `signature` is that of `data` by the public key `line`; `folder` takes the two files
    that ssh-keygen reads."""
    allowed, file = folder / ".allowed", folder / ".signature"
    try:
        allowed.write_text(f'{PRINCIPAL} namespaces="{namespace}" {line}\n', encoding="ascii")
        file.write_bytes(signature[: MAX_SIGNATURE_BYTES + 1])
        signer = _read_signer(file)
        own = signer is not None and signer.line == line
        return own and _verify_signature(allowed, namespace, data, file)
    finally:
        allowed.unlink(missing_ok=True)
        file.unlink(missing_ok=True)


def _verify_signature(allowed: Path, namespace: str, data: bytes, signature: Path) -> bool:
    """Whether a key of the file `allowed` signed; TransferError without ssh-keygen."""
    import shutil
    import subprocess

    program = shutil.which("ssh-keygen")
    if program is None:
        raise TransferError(
            "expected ssh-keygen on the board to check the signature, found none; install "
            "openssh-client there, or add the board with --allow-unsigned"
        )
    command = [program, "-Y", "verify", "-f", str(allowed.absolute())]
    command += ["-I", PRINCIPAL, "-n", namespace, "-s", str(signature.absolute())]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_VERIFY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TransferError(
            f"expected ssh-keygen to check a signature, found: {error}; see what the board is doing"
        ) from None
    return done.returncode == 0


def _split_string(data: bytes) -> Tuple[bytes, bytes]:
    """Splits an SSH string (length, then bytes) from the start of `data`."""
    (size,) = struct.unpack_from(">I", data)
    if size > len(data) - 4:
        raise ValueError("a string longer than its data")
    return data[4 : 4 + size], data[4 + size :]
