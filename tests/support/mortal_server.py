"""A server of field profiles that dies at random moments, again and again.

    python -m tests.support.mortal_server FOLDER LIVES SEED

The first line on stdout is its port, each further one a death; after LIVES of them it lives on.
Three of ten acknowledgements it never sends, though all is stored.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from edgekit.host.profiles import ProfileServer, ProfileStore
from edgekit.host.profiles.parquet import libraries
from edgekit.host.profiles.store import Stored

_LEAST_SECONDS, _MOST_SECONDS = 0.001, 0.2  # of the processor, in a life


class _Forgetful(ProfileServer):
    chance = random.Random()

    def store_stream(self, board: str, stream: bytes) -> Stored:
        stored = super().store_stream(board, stream)
        if self.chance.random() < 0.3:
            raise RuntimeError("this answer is lost")
        return stored


def main(folder: str, lives: str, seed: str) -> None:
    libraries()  # once, so that a life is spent with storing
    server = _Forgetful(ProfileStore(Path(folder)), ("127.0.0.1", 0))
    print(server.server_port, flush=True)
    for life in range(int(lives)):
        child = os.fork()
        if child == 0:
            server.chance.seed(f"{seed}/{life}")
            signal.setitimer(
                signal.ITIMER_PROF, server.chance.uniform(_LEAST_SECONDS, _MOST_SECONDS)
            )
            server.serve_forever()
        os.waitpid(child, 0)
        print("died", flush=True)
    server.chance.seed(seed)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
