"""Flips each byte of a manifest and of its signature: the board must reject every change.

    python -m tests.long.flip_bytes [--bits]

Each byte is changed once, or with --bits in each of its eight bits. The rejection must come before
anything is extracted, name the expected and the actual value, and still admit the correct manifest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from edgekit.device.runtime.agent.release import plan
from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import TransferError
from edgekit.host.deploy.bundle import signing_key
from tests.support.tiny_bundles import tiny_bundle


def refused(store: Store, release: str, manifest: bytes, signature: bytes) -> bool:
    folder = store.incoming / release
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(manifest)
    (folder / "manifest.json.sig").write_bytes(signature)
    try:
        plan(store, release)
    except TransferError as error:
        message = str(error)
        clean = not any(folder.iterdir()) and not any(store.releases.iterdir())
        return clean and "expected a signature" in message and "found" in message
    return False


def run(folder: Path, masks: tuple[int, ...]) -> int:
    key = signing_key(folder / "keys")
    store = Store(folder / "board")
    store.create()
    enroll(store, key.public.line)
    bundle = tiny_bundle(folder, key)
    manifest, signature, id_ = bundle.manifest.to_json(), bundle.signature, bundle.manifest.id
    flips, taken = 0, []
    for data, other in ((manifest, "manifest"), (signature, "signature")):
        for place in range(len(data)):
            for mask in masks:
                flipped = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
                pair = (flipped, signature) if other == "manifest" else (manifest, flipped)
                flips += 1
                if not refused(store, id_, *pair):
                    taken.append(f"byte {place} of the {other}, mask {mask}")
    print(f"{flips} flips, {len(taken)} not refused as they should be")
    for line in taken:
        print(line)
    return 1 if taken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", action="store_true")
    arguments = parser.parse_args()
    masks = tuple(1 << bit for bit in range(8)) if arguments.bits else (1,)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), masks)


if __name__ == "__main__":
    sys.exit(main())
