"""Runs random language models of GGUF files, of all architectures and block forms.

    python -m tests.long.gguf_networks [--count 20] [--seed 1] [--compiled 5] [--only SUBSTRING]

Each architecture gets `--count` models with random sizes, groups of heads, ways in which angles are
scaled and mixtures of block forms. With weights as floats, all logits must be those of NumPy;
as blocks, they must point the same way (cosine). One in `--compiled` also runs as this machine's
code, whose most likely tokens must be those of the graph. Needs the package `gguf`. Prints each
difference; exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.options import DecoderOptions
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import EdgekitError
from edgekit.kb.targets.board import load_board
from tests.compiler.frontends.test_gguf import stepped
from tests.support.architectures import ARCHS, SCALINGS
from tests.support.decoder_networks import logits_of
from tests.support.gguf_files import Array
from tests.support.kernel_runs import build, runs_here
from tests.support.random_decoders import KINDS, random_decoder

_TOKENS, _CONTEXT = 14, 20
_EXACT, _COSINE = 3e-5, 0.99


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20, help="models of each architecture")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compiled", type=int, default=5, help="one in so many runs as code")
    parser.add_argument("--only", default="", help="architectures whose name holds this")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    done = compiled = wrong = 0
    for name in ARCHS:
        for _ in range(options.count):
            kinds = [int(kind) for kind in rng.choice(KINDS, int(rng.integers(1, 4)))]
            known = [each for each in SCALINGS if (name, each) != ("gemma3", "yarn")]
            scaling = str(rng.choice(known)) if ARCHS[name].rope else ""
            seed = int(rng.integers(1 << 30))
            if options.only not in name:
                continue
            done += 1
            runs = done % options.compiled == 0
            compiled += runs
            found = _difference(name, kinds, scaling, seed, runs)
            wrong += bool(found)
            if found:
                print(f"{name!r} of {kinds}, {scaling!r}, seed {seed}: {found}", flush=True)
        print(f"{name}: {done} models so far", flush=True)
    print(f"{done} models, {compiled} of them as code, {wrong} differ")
    return 1 if wrong else 0


def _difference(name: str, kinds: Sequence[int], scaling: str, seed: int, compiled: bool) -> str:
    made = random_decoder(name, kinds, scaling, seed)
    words = len(made.model.values["token_embd.weight"])
    tokens = tuple(int(t) for t in np.random.default_rng(seed).integers(0, words, _TOKENS))
    wanted = logits_of(made, tokens)
    with tempfile.TemporaryDirectory() as folder:
        file = made.model.write(Path(folder) / "m.gguf")
        try:
            exact = stepped(
                import_model(file, decoder=DecoderOptions(_CONTEXT, floats=True)), tokens
            )
            graph = import_model(file, decoder=DecoderOptions(_CONTEXT))
            blocks = stepped(graph, tokens)
            code = _as_code(file, Path(folder), tokens) if compiled else blocks
        except EdgekitError as error:
            return f"{made.said}: {error}"
    apart = float(np.abs(exact - wanted).max() / np.abs(wanted).max())
    if not apart < _EXACT:
        return f"{made.said}: logits differ by {apart:.2g} of the largest"
    for what, found in (("blocks", blocks), ("code", code)):
        if not _cosine(found, wanted) > _COSINE:
            return f"{made.said}: logits of {what} have a cosine of {_cosine(found, wanted):.4f}"
    differ = np.abs(code - blocks).max() / np.abs(blocks).max()
    if not differ < 0.02 or _sure(blocks, code):
        return f"{made.said}: logits of the code differ by {differ:.2g} from the graph's"
    return ""


def _as_code(file: Path, folder: Path, tokens: Sequence[int]) -> Array:
    board = load_board("local")
    graph, _ = run_passes(import_model(file, decoder=DecoderOptions(_CONTEXT)))
    build(graph, board, folder / "code")
    steps = [
        {"tokens": np.array([[token]], np.int32), "position": np.array([at], np.int32)}
        for at, token in enumerate(tokens)
    ]
    return np.array([made["logits"][0] for made in runs_here(folder / "code", steps)])


def _cosine(a: Array, b: Array) -> float:
    """The least of all tokens."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / norms).min())


def _sure(one: Array, other: Array) -> bool:
    """Whether the most likely token is another one where it is far ahead of the second."""
    ordered = np.sort(one, axis=1)
    ahead = ordered[:, -1] - ordered[:, -2] > 0.05 * np.abs(one).max()
    return bool((one.argmax(1) != other.argmax(1))[ahead].any())


if __name__ == "__main__":
    sys.exit(main())
