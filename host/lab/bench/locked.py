"""The costs of models that a lock file holds, and how they differ from what was measured again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edgekit.host.common.text import printable
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from edgekit.kb.decoding import convert, decode_json

SCHEMA = "edgekit.lock/1"
_LEAST_COSINE = 1e-4  # a smaller loss of similarity is rounding
_MOST = 12  # operators in a table
_MOST_BYTES = 64 << 20  # of a lock file
_Count = Annotated[int, Meta(ge=0)]


class LockedOperator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bytes`: of the tensors and constants that the operator reads and writes."""

    name: str
    op: str
    kernel: str
    cycles: _Count
    instructions: _Count
    bytes: _Count


class LockedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model on one board's core. `model`: its path relative to the lock file; `options`: the
    compile options that are not the default; `cosine`: the similarity of the outputs to those of
    the model in f32, None if nothing was quantized."""

    model: str
    sha256: str
    board: str
    options: Mapping[str, Any]
    threads: _Count
    cycles: _Count
    arena_bytes: _Count
    state_bytes: _Count
    weights_bytes: _Count
    cosine: float | None
    operators: tuple[LockedOperator, ...]


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a lock file; `edgekit` is the version that wrote it."""

    schema: str
    edgekit: str
    models: tuple[LockedModel, ...]


def lock_bytes(lock: Lock) -> bytes:
    """The content of the file: indented, so that a change is a short difference in Git."""
    return msgspec.json.format(msgspec.json.encode(lock), indent=1) + b"\n"


def read_lock(file: Path) -> Lock:
    """Reads a lock file. Raises InputError."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file}: expected at most {_MOST_BYTES} bytes, found more")
        lock = decode_json(file.read_bytes(), Lock)
    except FileNotFoundError:
        raise InputError(
            f"{file}: expected a lock file, found none; write it: edgekit lock MODEL --board BOARD"
        ) from None
    except OSError as error:
        raise InputError(f"{file}: expected a lock file, found {error.strerror}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: expected a lock file of edgekit, found {error}; write it again: edgekit lock"
        ) from None
    if lock.schema != SCHEMA:
        raise InputError(
            f"{file}: expected {SCHEMA}, found {printable(lock.schema)}; use the edgekit that "
            "wrote it"
        )
    return lock


def options_document(options: CompileOptions, folder: Path) -> dict[str, Any]:
    """The options that are not the default; `samples` become relative to `folder`."""
    found: dict[str, Any] = {}
    for each in fields(options):
        value = getattr(options, each.name)
        default = each.default if each.default is not MISSING else {}
        if each.name == "samples" and value is not None:
            found[each.name] = relative(value, folder)
        elif value != default:
            found[each.name] = msgspec.to_builtins(value)
    return found


def options_of(document: Mapping[str, Any], folder: Path) -> CompileOptions:
    """The reverse of `options_document`. Raises InputError."""
    values = dict(document)
    if isinstance(values.get("samples"), str):
        values["samples"] = folder / values["samples"]
    unknown = values.keys() - {each.name for each in fields(CompileOptions)}
    if unknown:
        raise InputError(
            f"lock file: expected compile options, found {printable(min(unknown))}; "
            "write it again: edgekit lock"
        )
    try:
        return convert(values, CompileOptions, _keep_path)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"lock file: expected compile options, found {error}; write it again: edgekit lock"
        ) from None


def _keep_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, Path):
        return value
    raise ValueError(f"expected a path, found {value!r}")


def relative(path: Path, folder: Path) -> str:
    """The path as the lock file has it, so that a checkout elsewhere finds the same file."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


@dataclass(frozen=True)
class LockedChange:
    """A figure of the file and as it is now; `is_worse`: by more than was allowed."""

    what: str
    before: float | None
    after: float | None
    is_worse: bool

    @property
    def ratio(self) -> float | None:
        return None if not self.before or self.after is None else self.after / self.before


@dataclass(frozen=True)
class LockedDifference:
    """What changed in one model: `totals` decide, `operators` explain, the largest change first."""

    model: str
    board: str
    is_other_file: bool
    totals: tuple[LockedChange, ...]
    operators: tuple[LockedChange, ...]

    @property
    def is_worse(self) -> bool:
        return any(change.is_worse for change in self.totals)


def difference(before: LockedModel, after: LockedModel, allowed: float) -> LockedDifference:
    """Compares a model with its entry in the file. `allowed`: the fraction by which cycles and
    bytes may grow."""
    totals = []
    for what in ("cycles", "arena_bytes", "state_bytes", "weights_bytes"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            totals.append(LockedChange(what.replace("_", " "), old, new, new > old * (1 + allowed)))
    if before.threads != after.threads:
        totals.append(LockedChange("threads", before.threads, after.threads, False))
    old, new = before.cosine, after.cosine
    if old != new:
        lost = (1.0 if old is None else old) - (1.0 if new is None else new)
        totals.append(LockedChange("cosine to f32", old, new, lost > _LEAST_COSINE))
    return LockedDifference(
        after.model,
        after.board,
        before.sha256 != after.sha256,
        tuple(totals),
        _operator_changes(before.operators, after.operators),
    )


def _operator_changes(
    before: Sequence[LockedOperator], after: Sequence[LockedOperator]
) -> tuple[LockedChange, ...]:
    old = {o.name: o.cycles for o in before}
    new = {o.name: o.cycles for o in after}
    changed = [
        LockedChange(name, old.get(name), new.get(name), False)
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
    return tuple(sorted(changed, key=lambda c: -abs((c.after or 0) - (c.before or 0))))


def markdown(
    found: Sequence[LockedDifference], allowed: float, locked_by: str, version: str
) -> str:
    """A comment for a pull request: a table of all models, and the operators that changed.
    `locked_by`: the version of edgekit that wrote the file; `version`: this one."""
    lines = ["| model | board | | locked | now | change |", "|---|---|---|--:|--:|--:|"]
    for each in found:
        where = f"| {_cell(each.model)} | {_cell(each.board)} "
        if not each.totals:
            lines.append(f"{where}| as locked | | | |")
        for change in each.totals:
            sign = "**worse** " if change.is_worse else ""
            lines.append(f"{where}| {sign}{change.what} {_figures(change)}")
    lines += ["", f"Allowed: {100 * allowed:g}% more cycles and bytes."]
    if locked_by != version:
        other = f"edgekit {_cell(locked_by)} locked them, this is {version}"
        lines += ["", f"{other}: kernels and estimates may differ."]
    for each in found:
        if each.is_other_file:
            lines += ["", f"`{_cell(each.model)}` is not the file that was locked."]
        if each.operators:
            head = f"{_cell(each.model)} on {_cell(each.board)}: cycles of operators"
            lines += ["", f"<details><summary>{head}</summary>", ""]
            lines += ["| operator | locked | now | change |", "|---|--:|--:|--:|"]
            lines += [f"| {_cell(c.what)} {_figures(c)}" for c in each.operators[:_MOST]]
            if len(each.operators) > _MOST:
                lines += ["", f"{len(each.operators) - _MOST} more operators changed."]
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _figures(change: LockedChange) -> str:
    ratio = "" if change.ratio is None else f"{100 * (change.ratio - 1):+.2f}%"
    return f"| {number_text(change.before)} | {number_text(change.after)} | {ratio} |"


def number_text(value: float | None) -> str:
    """A count with commas, or a similarity."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _cell(text: str) -> str:
    """Text of a file, so that it cannot end its cell or become HTML."""
    for char, other in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'")):
        text = text.replace(char, other)
    return printable(text)
