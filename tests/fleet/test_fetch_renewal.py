"""Keys and certificates that their owner replaces, and boards that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.push import connect, home_bytes, read_home
from edgekit.device.runtime.agent.signing import trust
from edgekit.device.runtime.errors import InputError, TransferError
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.errors import InputError as HostInputError
from edgekit.host.fleet.profiles import ProfileServer, renew_certificate
from edgekit.host.fleet.updates.metadata import read_signed, sign
from tests.support.fetching import Fetching, owner_keys, rewrite
from tests.support.profile_servers import serving
from tests.support.proxy import http_proxy

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]


def test_keys_rotate(place: Fetching, tiny: TinyBundle, tmp_path: Path) -> None:
    place.offer(tiny())
    place.poll()
    # A thief of the server's key counts its versions up; the new key ends that.
    rewrite(place, "timestamp.json", lambda signed: signed.update(version=1 << 30))
    place.poll()
    new = replace(owner_keys(tmp_path / "new", "one", "two", needed=2), targets=place.owner.targets)
    place.folder.rotate(new, place.owner, new_online=True)
    place.owner = new
    place.offer(tiny(counter=1))
    place.poll()
    assert place.current == tiny(counter=1).manifest.id
    # Two of two keys must sign the next root.
    place.folder.rotate(new, new)
    place.poll()
    signed = read_signed(place.folder.path / "metadata" / "3.root.json")
    path = place.folder.path / "metadata" / "4.root.json"
    path.write_bytes(sign({**signed, "version": 4}, new.root[:1]))
    with pytest.raises(
        TransferError, match="root metadata: expected signatures by 2 of its keys, found 1"
    ):
        place.poll()


@pytest.mark.exhaustive
def test_boards_follow_a_new_signing_key(
    place: Fetching, tiny: TinyBundle, tmp_path: Path, trusted: SigningKey
) -> None:
    old = replace(place.owner, targets=(trusted,))
    place.folder.rotate(old, place.owner)
    place.poll()
    place.owner = old
    place.offer(tiny())
    new = replace(old, targets=owner_keys(tmp_path / "new").targets)
    place.folder.rotate(new, old)
    place.owner = new
    place.poll()  # what was offered before is signed again
    assert place.current == tiny().manifest.id
    keys = trust(place.store).keys
    assert new.targets[0].public.fingerprint in keys
    assert trusted.public.fingerprint not in keys
    place.offer(tiny(counter=1))
    with pytest.raises(TransferError, match="expected a signature of the manifest by"):
        place.poll()
    place.offer(sign_bundle(tiny(counter=1), new.targets[0]))
    place.poll()
    assert place.current == tiny(counter=1).manifest.id


def test_targets_that_a_thief_changed_are_not_signed_again(
    place: Fetching, tiny: TinyBundle
) -> None:
    place.offer(tiny())
    rewrite(place, "2.targets.json", lambda signed: signed.update(targets={}))
    for change in (lambda: place.offer(tiny()), lambda: place.folder.rotate(*[place.owner] * 2)):
        with pytest.raises(HostInputError, match="expected targets that this host has signed"):
            change()


def test_a_changed_manifest_is_not_signed_again(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    sha256 = hashlib.sha256(tiny().manifest.to_json()).hexdigest()
    (place.folder.path / "files" / sha256).write_bytes(b"{}")
    with pytest.raises(HostInputError, match="expected metadata, found: ValueError"):
        place.folder.rotate(place.owner, place.owner)


def test_boards_follow_a_new_certificate(place: Fetching, tiny: TinyBundle) -> None:
    old, away = place.home.certificate, place.home
    place.poll()
    new = renew_certificate(place.server.store)
    place.folder.rotate(place.owner, place.owner, certificate=new)
    with serving(ProfileServer(place.server.store, ("127.0.0.1", 0), releases=place.folder)) as two:
        for expected in (old, new):  # it hears of the new one, then asks for it
            place.home = replace(read_home(place.store.spool / "home.json"), port=two.port)
            write_home(place)
            place.poll()
            assert read_home(place.store.spool / "home.json").certificate == expected
        place.home = replace(away, port=two.port)  # a board that polls for the first time since
        write_home(place)
        place.offer(tiny())
        place.poll()
        assert read_home(place.store.spool / "home.json").certificate == new
        with pytest.raises(InputError, match="expected the certificate 0000"):
            connect(replace(place.home, certificate="0" * 64))
    assert place.current == tiny().manifest.id


def write_home(place: Fetching) -> None:
    (place.store.spool / "home.json").write_bytes(home_bytes(place.home))


def test_a_proxy_of_the_environment_is_used(
    place: Fetching, tiny: TinyBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.offer(tiny())
    with http_proxy() as (port, asked):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        place.poll()
    # ONNX Runtime's wheel, which other tests load, calls its makers from this process, too.
    assert [one for one in asked if "microsoft" not in one] == [f"127.0.0.1:{place.home.port}"]
    assert place.current == tiny().manifest.id
