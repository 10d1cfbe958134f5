#!/usr/bin/env python3
"""Compares the compiler output of two commits for all boards, without compiling any C.

    scripts/replay BASE [--board NAME ...] [--only TEXT] [--jobs N] [--show LINES]

Each side runs its own scripts/replay_models.py, or this one's if BASE has none. Exit code 0 if
nothing differs, 1 if something does, 2 if a side cannot be built.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgekit.host.lab.zoo.models import extended_zoo
from edgekit.kb.targets.board import board_names, load_profile, profile_names

_ROOT = Path(__file__).resolve().parents[1]
_SCRIPT = Path("scripts") / "replay_models.py"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replay", description=__doc__.partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="a commit, tag or branch")
    parser.add_argument("--board", action="append", help="only these profiles (default: all)")
    parser.add_argument("--only", default="", help="models whose file name holds this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, default=12, metavar="LINES", help="of each difference")
    options = parser.parse_args()
    boards = options.board or _board_names()
    zoo = extended_zoo(_ROOT / "models")
    models = [m for m in (*zoo.models, *zoo.onnx) if options.only in m.name]
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        base, place = Path(folder) / "base", Path(folder) / "worktree"
        here = Path(folder) / "here"
        if not _checked_out(options.base, place):
            return 2
        try:
            for root, target in ((place, base), (_ROOT, here)):
                _compile_all(root, target, models, boards, options.jobs)
        finally:
            _run_git("worktree", "remove", "--force", str(place))
        return _print_differences(base, here, options.show)


def _checked_out(commit: str, place: Path) -> bool:
    done = _run_git("worktree", "add", "--quiet", "--detach", str(place), commit)
    if done.returncode:
        found = done.stderr.strip().splitlines()
        print(f"replay: expected a commit, found {commit!r}: {found[-1] if found else ''}")
    return done.returncode == 0


def _run_git(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *command], cwd=_ROOT, capture_output=True, text=True, check=False)


def _board_names() -> list[str]:
    """All boards to compile for; `local` is one of the x86 profiles."""
    named = set(board_names())
    return [n for n in profile_names() if n in named or load_profile(n).arch == "x86_64"]


def _compile_all(
    root: Path, target: Path, models: Sequence[Path], boards: Sequence[str], jobs: int
) -> None:
    script = root / _SCRIPT if (root / _SCRIPT).is_file() else _ROOT / _SCRIPT
    known = {p.stem for p in (root / "kb").glob("**/boards/*.toml")}
    wanted = [b for b in boards if b in known]
    variables = {**os.environ, "PYTHONPATH": str(root / "src"), "OPENBLAS_NUM_THREADS": "1"}

    def one(model: Path) -> None:
        command = [sys.executable, str(script), str(target), str(model), *wanted]
        done = subprocess.run(
            command, cwd=root, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            (target / f"{model.name}.crash").parent.mkdir(parents=True, exist_ok=True)
            (target / f"{model.name}.crash").write_text(done.stderr)
        print(".", end="", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, models))
    print(f" {root.name}: {len(models)} models for {len(wanted)} boards")


def _print_differences(base: Path, here: Path, show: int) -> int:
    """Print differences; one shared by many boards or models is shown once."""
    files = sorted({p.relative_to(side) for side in (base, here) for p in _files_below(side)})
    shown: Counter[str] = Counter()
    places: dict[str, str] = {}
    differing = set()
    for file in files:
        old, new = (_read_lines(side / file) for side in (base, here))
        if old == new:
            continue
        differing.add(file.parent)
        kind = file.suffix if file.suffix == ".c" else file.name
        change = kind + "\n" + "\n".join(_changed_lines(old, new))
        shown[change] += 1
        places.setdefault(change, str(file))
    for change, count in shown.most_common():
        _, *lines = change.splitlines()
        print(f"\n{places[change]}" + (f" and {count - 1} more alike" if count > 1 else ""))
        print("\n".join(lines[:show]) + ("\n..." if len(lines) > show else ""))
    whole = len({f.parent for f in files})
    print(
        f"\n{whole - len(differing)} of {whole} compiled models are the same, {len(differing)} not"
    )
    return int(bool(differing))


def _files_below(side: Path) -> Iterator[Path]:
    return (p for p in side.rglob("*") if p.is_file())


def _read_lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.is_file() else []


def _changed_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    lines = difflib.unified_diff(old, new, lineterm="", n=0)
    return [x for x in lines if not x.startswith(("---", "+++", "@@"))]


if __name__ == "__main__":
    raise SystemExit(main())
