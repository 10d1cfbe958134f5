"""Resolves addresses in another process to function names, from its maps and their ELF files."""

from __future__ import annotations

import bisect
import struct
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from edgekit.device.runtime.record import Record

UNKNOWN = "?"
_OURS = "ek_"  # prefix of every symbol of a compiled model or kernel
_LOAD, _TABLES, _FUNCTION = 1, (2, 11), 2  # PT_LOAD; SHT_SYMTAB, SHT_DYNSYM; STT_FUNC
_LARGEST = 1 << 28  # bytes of a file whose symbols are read


class CodePlace(NamedTuple):
    """The library's file name, and the function in it or UNKNOWN."""

    library: str
    function: str


class _Mapping(Record):
    start: int
    end: int
    offset: int
    path: str


class Symbols:
    """A snapshot of a process's symbols: libraries it opens later are not included."""

    def __init__(self, process: int) -> None:
        """OSError if the process is gone."""
        text = Path(f"/proc/{process}/maps").read_text("utf-8", "replace")
        self._mappings = [m for m in map(_parse_mapping, text.splitlines()) if m]
        self._starts = [m.start for m in self._mappings]
        self._files: Dict[str, Optional[_Elf]] = {}

    def at(self, address: int) -> CodePlace:
        """Returns the function at an address."""
        i = bisect.bisect(self._starts, address) - 1
        if i < 0 or address >= self._mappings[i].end:
            return CodePlace(UNKNOWN, UNKNOWN)
        found = self._mappings[i]
        if found.path not in self._files:
            self._files[found.path] = _read_elf(Path(found.path))
        elf = self._files[found.path]
        name = elf.at(address - found.start + found.offset) if elf else UNKNOWN
        return CodePlace(Path(found.path).name or UNKNOWN, name)


class _Elf:
    """Segments and functions of a file; ValueError or struct.error if it is not ELF."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or data[5] != 1:
            raise ValueError("expected a little-endian ELF file")
        self._wide = data[4] == 2
        self._arm = struct.unpack_from("<H", data, 18)[0] == 40
        self._segments = self._read_segments(data)
        found = sorted(set(self._read_functions(data)))
        self._values = [value for value, _, _ in found]
        self._functions = found

    def at(self, offset: int) -> str:
        """Returns the function at a file offset.

        An offset after one of our functions is attributed to it: static functions follow the first
        function that calls them.
        """
        for start, size, address in self._segments:
            if start <= offset < start + size:
                value = address + offset - start
                break
        else:
            return UNKNOWN
        i = bisect.bisect(self._values, value) - 1
        if i < 0:
            return UNKNOWN
        begin, length, name = self._functions[i]
        return name if value < begin + length or name.startswith(_OURS) else UNKNOWN

    def _read_segments(self, data: bytes) -> List[Tuple[int, int, int]]:
        """Returns (offset, bytes in the file, address) of each loaded segment."""
        (at,) = struct.unpack_from("<Q" if self._wide else "<I", data, 32 if self._wide else 28)
        width, count = struct.unpack_from("<HH", data, 54 if self._wide else 42)
        layout = "<IIQQQQ" if self._wide else "<IIIII"
        found = []
        for i in range(count):
            row = struct.unpack_from(layout, data, at + i * width)
            if row[0] == _LOAD:
                wide = (row[2], row[5], row[3])
                found.append(wide if self._wide else (row[1], row[4], row[2]))
        return found

    def _read_functions(self, data: bytes) -> List[Tuple[int, int, str]]:
        """Returns (address, bytes, name) of each function in the symbol tables."""
        (at,) = struct.unpack_from("<Q" if self._wide else "<I", data, 40 if self._wide else 32)
        width, count = struct.unpack_from("<HH", data, 58 if self._wide else 46)
        layout = "<IIQQQQI" if self._wide else "<IIIIIII"
        sections = [struct.unpack_from(layout, data, at + i * width) for i in range(count)]
        found = []
        for section in sections:
            if section[1] in _TABLES and section[6] < count:
                names = data[sections[section[6]][4] :][: sections[section[6]][5]]
                found += self._read_table(data[section[4] : section[4] + section[5]], names)
        return found

    def _read_table(self, table: bytes, names: bytes) -> List[Tuple[int, int, str]]:
        found = []
        width = 24 if self._wide else 16
        for row in struct.iter_unpack(
            "<IBBHQQ" if self._wide else "<IIIBBH", table[: len(table) // width * width]
        ):
            if self._wide:
                name, info, _, section, value, size = row
            else:
                name, value, size, info, _, section = row
            if info & 15 == _FUNCTION and section:
                text = names[name : names.find(b"\0", name)].decode("ascii", "replace")
                found.append((value & ~1 if self._arm else value, size, text))  # Thumb: odd
        return found


def _parse_mapping(line: str) -> Optional[_Mapping]:
    """Parses a line of /proc/PID/maps; None if the mapping is not executable."""
    words = line.split(None, 5)
    if len(words) < 6 or "x" not in words[1]:
        return None
    start, _, end = words[0].partition("-")
    return _Mapping(int(start, 16), int(end, 16), int(words[2], 16), words[5])


def _read_elf(path: Path) -> Optional[_Elf]:
    """Reads a file's functions; None if it is unreadable, or not ELF."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return _Elf(path.read_bytes())
    except (OSError, ValueError, IndexError, struct.error):
        return None
