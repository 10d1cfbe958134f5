"""Reads Matrix Market files (.mtx) in coordinate format.

SciPy's reader is not used: boards lack it, and this one reports a damaged file in one line with the
position, and checks sizes against available memory before allocating.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Tuple

from edgekit.device.runtime.arrays.sparse_input import DTYPES, check_memory, numpy
from edgekit.device.runtime.errors import InputError

_FIELDS = ("real", "integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_LARGEST = (1 << 31) - 1
_TIMES_TEXT = 20  # memory of its words, as text and as numbers, relative to the file size
_SHOWN = 40  # characters of an invalid line


@dataclass(frozen=True)
class Entries:
    """Row, column and value of each entry, symmetric counterparts included; zero-based indices."""

    shape: Tuple[int, int]
    rows: Any
    cols: Any
    values: Any


@dataclass(frozen=True)
class _Header:
    field: str
    symmetry: str
    shape: Tuple[int, int]
    entries: int
    lines: int  # before the first entry

    @property
    def columns(self) -> int:
        """Numbers per entry line."""
        return 2 if self.field == "pattern" else 3


def read_matrix_market(path: Path, dtype: Any = "float32") -> Entries:
    """Reads a file's entries, with values as `dtype`; pattern matrices have ones.

    InputError names the line and what is wrong with it.
    """
    np = numpy()
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted is None or wanted.name not in DTYPES:
        raise InputError(f"{path.name}: expected a type of {', '.join(DTYPES)}, found {dtype!r}")
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: expected a Matrix Market file, found no regular file")
        check_memory(f"{path.name}: text", _TIMES_TEXT * path.stat().st_size)
        text = path.read_bytes().decode("ascii")
    except OSError as error:
        raise InputError(f"{path}: expected a Matrix Market file, found {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name}: expected text, found the byte {error.object[error.start]:#04x} at "
            f"{error.start}"
        ) from None
    header = _parse_header(path.name, text)
    return _expand_symmetry(
        np, path.name, header, *_parse_entries(np, path.name, header, text, wanted)
    )


def _line_error(name: str, line: int, expected: str, found: str) -> InputError:
    return InputError(f"{name}: line {line}: expected {expected}, found '{found[:_SHOWN]}'")


def _parse_header(name: str, text: str) -> _Header:
    first, end = _split_line(text, 0)
    words = first.split()
    if len(words) != 5 or words[0].lower() != "%%matrixmarket":
        raise _line_error(name, 1, "%%MatrixMarket matrix coordinate FIELD SYMMETRY", first)
    kind, layout, field, symmetry = (word.lower() for word in words[1:])
    for what, found, known in (
        ("object", kind, ("matrix",)),
        ("format", layout, ("coordinate",)),
        ("field", field, _FIELDS),
        ("symmetry", symmetry, _SYMMETRIES),
    ):
        if found not in known:
            raise _line_error(name, 1, f"the {what} {' or '.join(known)}", found)
    if field == "pattern" and symmetry == "skew-symmetric":
        raise _line_error(name, 1, "a pattern that is general or symmetric", symmetry)
    at = 1
    while end < len(text):
        line, end = _split_line(text, end)
        at += 1
        if line.strip() and not line.lstrip().startswith("%"):
            rows, cols, entries = _parse_sizes(name, at, line, symmetry)
            return _Header(field, symmetry, (rows, cols), entries, at)
    raise InputError(f"{name}: expected a line 'ROWS COLUMNS ENTRIES', found the end of the file")


def _split_line(text: str, start: int) -> Tuple[str, int]:
    """Returns the line that starts at `start`, and the start of the next one."""
    end = text.find("\n", start)
    return (text[start:], len(text)) if end < 0 else (text[start:end], end + 1)


def _parse_sizes(name: str, at: int, line: str, symmetry: str) -> Tuple[int, int, int]:
    words = line.split()
    if len(words) != 3:
        raise _line_error(name, at, "three sizes: rows, columns and entries", line)
    for what, word in zip(("rows", "columns", "entries"), words):
        if not (word.isdecimal() and len(word) < 19):
            raise _line_error(name, at, f"a number of {what}", word)
        if what != "entries" and int(word) > _LARGEST:
            raise _line_error(name, at, f"at most {_LARGEST} {what}", word)
    rows, cols, entries = (int(word) for word in words)
    if symmetry != "general" and rows != cols:
        raise _line_error(name, at, f"as many columns as rows of a {symmetry} matrix", line)
    return rows, cols, entries


def _parse_entries(
    np: Any, name: str, header: _Header, text: str, dtype: Any
) -> Tuple[Any, Any, Any]:
    body = _after_lines(text, header.lines)
    words = body.split()
    uneven = any(len(line.split()) not in (0, header.columns) for line in body.split("\n"))
    if uneven or len(words) != header.columns * header.entries:
        _raise_format_error(name, header, body)
    try:
        table = np.array(words, np.float64).reshape(header.entries, header.columns)
    except ValueError:
        _raise_format_error(name, header, body)
        raise
    rows, cols = table[:, 0], table[:, 1]
    values = np.ones(header.entries) if header.columns == 2 else table[:, 2]
    bounds = ((rows, header.shape[0]), (cols, header.shape[1]))
    wrong = np.zeros(header.entries, bool)
    for index, size in bounds:
        wrong |= ~((index >= 1) & (index <= size) & (index == np.floor(index)))
    if header.field == "integer":
        wrong |= values != np.floor(values)
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        wrong |= ~((values >= limits.min) & (values <= limits.max) & (values == np.floor(values)))
    elif header.columns == 3:
        with np.errstate(over="ignore"):
            wrong |= np.isinf(values.astype(dtype)) & np.isfinite(values)
    if wrong.any():
        _explain_entry(name, header, table[int(np.flatnonzero(wrong)[0])], wrong, dtype, body)
    places = ((index - 1).astype(np.int32) for index, _ in bounds)
    with np.errstate(invalid="ignore"):
        return (*places, values.astype(dtype))


def _after_lines(text: str, count: int) -> str:
    at = 0
    for _ in range(count):
        at = text.find("\n", at) + 1
        if at == 0:
            return ""
    return text[at:]


def _raise_format_error(name: str, header: _Header, body: str) -> None:
    """Raises InputError for the first malformed line, or for a wrong number of entries."""
    found = 0
    for at, line in enumerate(body.split("\n"), header.lines + 1):
        words = line.split()
        if not words:
            continue
        if len(words) != header.columns:
            parts = "row and column" if header.columns == 2 else "row, column and value"
            raise _line_error(name, at, parts, line)
        if bad := [word for word in words if not _is_number(word)]:
            raise _line_error(name, at, "a number", bad[0])
        found += 1
    raise InputError(
        f"{name}: expected {header.entries} entries as line {header.lines} says, found {found}"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def _explain_entry(
    name: str, header: _Header, entry: Any, wrong: Any, dtype: Any, body: str
) -> None:
    """Raises InputError for an entry whose numbers are out of range."""
    number = int(wrong.argmax())
    lines = [at for at, line in enumerate(body.split("\n"), header.lines + 1) if line.split()]
    at = lines[number]
    for what, value, size in zip(("row", "column"), entry, header.shape):
        if not (1 <= value <= size and value == int(value)):
            raise _line_error(name, at, f"a {what} from 1 to {size}", f"{value:.17g}")
    whole = header.field == "integer" or dtype.kind == "i"
    raise _line_error(
        name, at, f"a {'whole ' if whole else ''}value within {dtype}", f"{entry[-1]:.17g}"
    )


def _expand_symmetry(
    np: Any, name: str, header: _Header, rows: Any, cols: Any, values: Any
) -> Entries:
    if header.symmetry == "general":
        return Entries(header.shape, rows, cols, values)
    below = rows != cols
    skew = header.symmetry == "skew-symmetric"
    if skew and bool(np.any(values[~below] != 0)):
        row = int(rows[~below][np.flatnonzero(values[~below])[0]]) + 1
        raise InputError(
            f"{name}: expected zeros on the diagonal of a skew-symmetric matrix, "
            f"found another value in row {row}"
        )
    other = -values[below] if skew else values[below]
    return Entries(
        header.shape,
        np.concatenate([rows, cols[below]]),
        np.concatenate([cols, rows[below]]),
        np.concatenate([values, other]),
    )
