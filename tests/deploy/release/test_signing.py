"""Boards accept only releases signed by a trusted key: wrong, missing, damaged signatures."""

from __future__ import annotations

import base64
import re
import resource
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.release import plan
from edgekit.device.runtime.agent.signing import check_signature, enroll, parse_key, trust
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.device.runtime.errors import TransferError as DeviceTransferError
from edgekit.host.deploy.api import Device, connect
from edgekit.host.deploy.bundle import Bundle, SigningKey, host_key, sign_bundle, signing_key
from edgekit.host.deploy.release import enroll as enroll_board
from edgekit.host.deploy.release import enroll_unsigned
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import EdgekitError, InputError, TransferError

TinyBundle = Callable[..., Bundle]


@pytest.fixture
def stranger(tmp_path: Path) -> SigningKey:
    """A key that no board trusts."""
    return signing_key(tmp_path / "stranger" / "keys")


def test_wrong_key_is_refused_with_both_fingerprints(
    device: Device, tiny: TinyBundle, trusted: SigningKey, stranger: SigningKey, board_root: Path
) -> None:
    with pytest.raises(TransferError) as caught:
        device.deploy(sign_bundle(tiny(), stranger))
    assert f"by {trusted.public.fingerprint}, found one by {stranger.public.fingerprint}" in str(
        caught.value
    )
    assert caught.value.exit_code == 6
    assert not any((board_root / "releases").iterdir())
    enroll_board(device, stranger.public)
    assert device.deploy(sign_bundle(tiny(), stranger)).release.changed


def test_missing_signature_is_refused(device: Device, tiny: TinyBundle, board_root: Path) -> None:
    with pytest.raises(TransferError, match=r"expected a signature .* by SHA256:.*, found none"):
        device.deploy(replace(tiny(), signature=b""))
    assert not any((board_root / "releases").iterdir())
    assert device.deploy(tiny()).release.changed


def test_every_flipped_byte_is_refused(board_root: Path, tiny: TinyBundle) -> None:
    """Every 23rd byte of manifest and signature; tests/long/flip_bytes.py flips all of them."""
    bundle, store = tiny(), Store(board_root)
    folder = store.incoming / bundle.manifest.id
    folder.mkdir()
    good = {"manifest.json": bundle.manifest.to_json(), "manifest.json.sig": bundle.signature}
    for name, data in good.items():
        for place in range(0, len(data) - 1, 23):
            for other, text in good.items():
                (folder / other).write_bytes(text)
            flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            (folder / name).write_bytes(flipped)
            with pytest.raises(DeviceTransferError, match=r"expected a signature .*, found"):
                plan(store, bundle.manifest.id)
            assert not any(folder.iterdir())
    assert not any(store.releases.iterdir())


def test_signature_of_another_version(board_root: Path, tiny: TinyBundle, tmp_path: Path) -> None:
    """ssh-keygen accepts version 0 as version 1 and does not sign the version."""
    bundle, file = tiny(), tmp_path / "manifest.json.sig"
    one, zero = (base64.b64encode(b"SSHSIG\0\0\0" + version) for version in (b"\1", b"\0"))
    changed = bundle.signature.replace(one[:14], zero[:14])
    assert changed != bundle.signature
    file.write_bytes(changed)
    with pytest.raises(DeviceTransferError, match="found a damaged one"):
        check_signature(Store(board_root), bundle.manifest.to_json(), file)


def test_signature_of_another_manifest(device: Device, tiny: TinyBundle) -> None:
    other = tiny('TINY_NAME="other"')
    with pytest.raises(TransferError, match="found one that does not match these bytes"):
        device.deploy(replace(tiny(), signature=other.signature))


def test_board_without_ssh_keygen(
    board_root: Path, tiny: TinyBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    device = Device(LocalTransport(board_root))
    asked = r"expected ssh-keygen on the board .* --allow-unsigned"
    with pytest.raises(TransferError, match=asked):
        device.deploy(tiny())
    assert enroll_unsigned(device).unsigned
    assert device.deploy(replace(tiny(), signature=b"")).release.changed


def test_enrolled_key_ends_unsigned_days(
    device: Device, tiny: TinyBundle, trusted: SigningKey
) -> None:
    enroll_unsigned(device)
    assert not enroll_board(device, trusted.public).unsigned
    with pytest.raises(TransferError, match="found none"):
        device.deploy(replace(tiny(), signature=b""))


def test_keys_are_enrolled_once(
    board_root: Path, trusted: SigningKey, stranger: SigningKey
) -> None:
    store = Store(board_root)
    for key in (stranger, trusted, stranger):
        found = enroll(store, key.public.line + " with a comment")
    assert found.keys == (trusted.public.fingerprint, stranger.public.fingerprint)
    assert trust(store) == found
    assert stat.S_IMODE(store.trusted_keys.stat().st_mode) & 0o022 == 0


@pytest.mark.slow
def test_a_replaced_key_signs_no_more(
    device: Device, tiny: TinyBundle, trusted: SigningKey, stranger: SigningKey
) -> None:
    """What a lost key signed is refused, whether sent before or after; what runs goes on."""
    old, new = sign_bundle(tiny(), trusted), sign_bundle(tiny('TINY_NAME="new"'), stranger)
    refusal = re.escape(f"found one by {trusted.public.fingerprint}")
    device.deploy(old)
    assert enroll_board(device, stranger.public, only=True).keys == (stranger.public.fingerprint,)
    with pytest.raises(TransferError, match=refusal):
        device.deploy(sign_bundle(tiny('TINY_NAME="evil"'), trusted))
    assert device.verify().current.id == old.manifest.id
    device.deploy(new)
    with pytest.raises(TransferError, match=refusal):
        device.deploy(old)
    assert device.rollback().current.id == old.manifest.id


def test_board_that_nobody_enrolled(tmp_path: Path, tiny: TinyBundle) -> None:
    device = Device(LocalTransport(tmp_path / "new"))
    with pytest.raises(TransferError, match="expected a board that trusts a signing key, found"):
        device.deploy(tiny())


def test_own_board_is_enrolled_by_its_first_deploy(
    tmp_path: Path, tiny: TinyBundle, stranger: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    device = connect("local")
    assert device.deploy(sign_bundle(tiny())).release.changed
    with pytest.raises(TransferError, match=re.escape(stranger.public.fingerprint)):
        device.deploy(sign_bundle(tiny('TINY_NAME="other"'), stranger))


_CUT_SHORT = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x21" + bytes(32)).decode()


@pytest.mark.parametrize(
    "line",
    [
        *("", "ssh-rsa AAAA", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-ed25519 %", "x y z"),
        f"ssh-ed25519 {_CUT_SHORT}",
    ],
)
def test_odd_keys(line: str) -> None:
    with pytest.raises(DeviceInputError, match="expected a public key"):
        parse_key(line)


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n",
        b"-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n",
        b"x" * 100_000,
    ],
)
def test_odd_signatures(board_root: Path, tmp_path: Path, signature: bytes) -> None:
    (tmp_path / "sig").write_bytes(signature)
    with pytest.raises(DeviceTransferError, match="found a damaged one"):
        check_signature(Store(board_root), b"{}", tmp_path / "sig")


def test_host_key_is_private_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: host_key(), range(4)))
    assert len(set(keys)) == 1
    assert stat.S_IMODE(keys[0].file.stat().st_mode) == 0o600
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(keys[0].file)], capture_output=True, text=True, check=True
    )
    assert keys[0].public.fingerprint in shown.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["keys"]


def test_host_without_ssh_keygen(
    tiny: TinyBundle, trusted: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tiny()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt-get install openssh-client"):
        sign_bundle(bundle, trusted)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (
            "public cut",
            r"signing\.pub: expected the public half .*, found: something else",
        ),
        (
            "public binary",
            r"signing\.pub: expected the public half .* recreate it: ssh-keygen -y -f /",
        ),
        ("public gone", r"signing\.pub: expected the public half .*, found: No such file"),
        ("public of another", r"signing\.pub: expected .*, found: that of another key"),
        ("private cut", r"signing: expected ssh-keygen to sign .*; restore it .*, or .*: mv /"),
        ("private empty", r"signing: expected ssh-keygen to sign with this host's key, found"),
        ("private gone", r"signing: expected ssh-keygen to sign with this host's key, found"),
        ("private open", r"signing: expected .* others may read it; run: chmod 600 /"),
    ],
)
def test_damaged_key_says_how_to_mend_it(
    tiny: TinyBundle, stranger: SigningKey, tmp_path: Path, damage: str, match: str
) -> None:
    key = signing_key(tmp_path / "keys").file
    which, how = damage.split(" ", 1)
    file = key if which == "private" else key.with_name("signing.pub")
    whole = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "open":
        file.chmod(0o644)
    else:
        other = stranger.file.with_name("signing.pub").read_bytes()
        changed = {"cut": whole[:40], "empty": b"", "binary": b"\xff" * 80, "of another": other}
        file.write_bytes(changed[how])
    with pytest.raises(InputError, match=match) as caught:
        sign_bundle(tiny(), signing_key(tmp_path / "keys"))
    assert "\n" not in str(caught.value)


def test_no_room_for_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="signing key, found: Not a directory"):
        signing_key(tmp_path / "file" / "keys")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(EdgekitError, match="expected ssh-keygen to make the signing"):
            signing_key(tmp_path / "keys")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "keys").exists()
