"""The host's signing key, and signatures of manifests by it: OpenSSH's own format and tool."""

from __future__ import annotations

import errno
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.signing import KEY_TYPE, NAMESPACE, PublicKey, parse_key
from edgekit.host.bundle.bundle import Bundle
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.paths import data_folder

_NAME = "signing"
_SECONDS = 60.0


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 key pair: the private key's file and its public half."""

    file: Path
    public: PublicKey


def host_key() -> SigningKey:
    """This user's signing key, made when it is first asked for."""
    return signing_key(data_folder() / "keys")


def signing_key(folder: Path) -> SigningKey:
    """The key pair in `folder`, which is made if it is not there."""
    if not folder.exists():
        _make_key(folder)
    public = folder / f"{_NAME}.pub"
    try:
        return SigningKey(folder / _NAME, parse_key(public.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(
            f"{public}: expected the public half of the signing key, found: {error.strerror}; "
            f"write it again: ssh-keygen -y -f {folder / _NAME} > {public}"
        ) from None


def sign_bundle(bundle: Bundle, key: SigningKey | None = None) -> Bundle:
    """`bundle` with a signature of its manifest by `key` (the host's if left out).

    Ed25519 signatures hold no chance and no time: the same key gives the same bytes.
    """
    key = key or host_key()
    command = ["-Y", "sign", "-q", "-f", str(key.file), "-n", NAMESPACE]
    return replace(bundle, signature=_ssh_keygen(command, bundle.manifest.to_json()))


def _make_key(folder: Path) -> None:
    """Made aside and renamed, so that two processes at once end up with one whole pair."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".keys-") as aside:
            made = Path(aside) / "keys"
            made.mkdir(mode=0o700)
            kind = ["-t", KEY_TYPE.removeprefix("ssh-")]
            _ssh_keygen(["-q", *kind, "-N", "", "-C", "edgekit", "-f", str(made / _NAME)], b"")
            made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise InputError(
                f"{folder}: expected room for the signing key, found: {error.strerror}; "
                "set EDGEKIT_HOME to a folder of your own"
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
        raise EdgekitError(f"expected ssh-keygen to sign the bundle, found: {found}")
    return done.stdout
