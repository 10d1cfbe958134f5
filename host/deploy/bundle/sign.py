"""The host's signing key and manifest signatures, in OpenSSH's format and made by its tool."""

from __future__ import annotations

import binascii
import contextlib
import errno
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.runtime.agent.signing import KEY_TYPE, NAMESPACE, PublicKey, parse_key
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.files import open_file, read_file
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle.bundle import Bundle
from edgekit.host.errors import EdgekitError, InputError

_NAME = "signing"
_SECONDS = 60.0
_LARGEST = 1 << 16  # bytes of a key


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 key pair: the private key file and the public key."""

    file: Path
    public: PublicKey


def host_key() -> SigningKey:
    """Returns this user's signing key; generates it on first use."""
    return signing_key(data_folder() / "keys")


def known_key() -> SigningKey | None:
    """Returns this user's signing key, or None if it has not been generated yet."""
    folder = data_folder() / "keys"
    return signing_key(folder) if folder.exists() else None


def signing_key(folder: Path) -> SigningKey:
    """Returns the key pair in `folder`, generating it if missing."""
    if not folder.exists():
        _make_key(folder)
    public = folder / f"{_NAME}.pub"
    try:
        return SigningKey(folder / _NAME, parse_key(read_file(public).decode()))
    except OSError as error:
        raise _no_public_half(folder / _NAME, error.strerror or str(error)) from None
    except (DeviceInputError, UnicodeDecodeError):
        raise _no_public_half(folder / _NAME, "something else") from None


def sign_bundle(bundle: Bundle, key: SigningKey | None = None) -> Bundle:
    """Returns `bundle` with its manifest signed by `key` (default: the host's)."""
    data = bundle.manifest.to_json()
    return replace(bundle, signature=sign_data(data, key or host_key(), NAMESPACE))


def sign_data(data: bytes, key: SigningKey, namespace: str) -> bytes:
    """Returns the signature of `data` for this `namespace` by `key`, in OpenSSH's format.

    Ed25519 signatures are deterministic: the same key gives the same bytes.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            open_file(key.file, _LARGEST).close()  # ssh-keygen would wait for a FIFO
    except OSError as error:
        raise _no_key(key.file, error.strerror or str(error)) from None
    command = ["-Y", "sign", "-q", "-f", str(key.file), "-n", namespace]
    try:
        signature = _ssh_keygen(command, data)
    except _SshKeygenError as error:
        if "doesn't match" in str(error):
            raise _no_public_half(key.file, "that of another key") from None
        raise _no_key(key.file, str(error)) from None
    if key.public.blob not in binascii.a2b_base64(b"".join(signature.splitlines()[1:-1])):
        raise _no_public_half(key.file, "that of another key")
    return signature


class _SshKeygenError(EdgekitError):
    """ssh-keygen failed; the message is its output."""


def _no_public_half(key: Path, found: str) -> InputError:
    return InputError(
        f"{key}.pub: expected the public half of the signing key, found: {found}; recreate it: "
        f"ssh-keygen -y -f {key} > {key}.pub"
    )


def _no_key(key: Path, found: str) -> InputError:
    if key.is_file() and key.stat().st_mode & 0o077:
        return InputError(
            f"{key}: expected the signing key to be readable by this user only, found "
            f"that others may read it; run: chmod 600 {key}"
        )
    folder = key.parent
    return InputError(
        f"{key}: expected ssh-keygen to sign with this host's key, found: {found}; restore it "
        f"from a backup, or get a new one: mv {folder} {folder}.old (then enroll the boards "
        "again: edgekit board add)"
    )


def _make_key(folder: Path) -> None:
    """Generates in a temporary folder and renames, so that concurrent processes end up with one
    intact pair."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".keys-") as temporary:
            made = Path(temporary) / "keys"
            made.mkdir(mode=0o700)
            kind = ["-t", KEY_TYPE.removeprefix("ssh-")]
            _ssh_keygen(["-q", *kind, "-N", "", "-C", "edgekit", "-f", str(made / _NAME)], b"")
            made.rename(folder)
    except _SshKeygenError as error:
        raise InputError(
            f"{folder}: expected ssh-keygen to make the signing key, found: {error}; check that "
            "the disk is neither full nor read-only, or set EDGEKIT_HOME"
        ) from None
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise InputError(
                f"{folder}: expected to store the signing key, found: {error.strerror}; set "
                "EDGEKIT_HOME to a folder of your own"
            ) from None


def _ssh_keygen(arguments: list[str], data: bytes) -> bytes:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError(
            "expected ssh-keygen to sign the bundle, found none; "
            "install it: apt-get install openssh-client"
        )
    done = subprocess.run(
        [program, *arguments], input=data, capture_output=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        found = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise _SshKeygenError(found or f"exit code {done.returncode}")
    return done.stdout
