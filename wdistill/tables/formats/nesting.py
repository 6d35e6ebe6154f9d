"""The shape of JSON text, looked at before Arrow parses it: how deep its brackets nest, and how many fields it has."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEPTH_LIMIT = 64  # brackets open at once; Arrow's parser takes a time that grows with the square, and crashes at thousands
FIELD_LIMIT = 1 << 14  # different fields in one block
CELL_LIMIT = 1 << 22  # fields times objects: Arrow keeps an entry for every field that an object could have

_OTHERS = bytes(set(range(256)) - set(b'"[]{}\n'))
_NO_BRACES = bytes(set(range(256)) - set(b"{}"))
_STRING = re.compile(rb'"[^"\n]*"?')
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_DECODER = json.JSONDecoder(strict=False, parse_int=len, parse_float=len, parse_constant=len)
_NAME = re.compile(rb'"([^"]*)"[ \t\r\n]*:')
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass
class Nesting:
    """The brackets that are open after the blocks seen so far; a line end closes strings, as JSON knows no other way."""

    line: int = 1
    depth: int = 0
    pending: bytes = b""  # a string, and a backslash, that the last block left open

    def too_deep(self, block: bytes) -> int | None:
        """The line of the first bracket beyond the limit in the next block, if there is one."""
        block = self.pending + block
        block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = block.translate(None, _OTHERS)
        open_string = marks[marks.rfind(b"\n") + 1 :].count(b'"') % 2 == 1
        self.pending = b'"' * open_string + b"\\" * block.endswith(b"\\")
        marks = marks.replace(b'""', b"")
        marks = _STRING.sub(b"", marks) if b'"' in marks else marks
        if not marks:
            return None
        codes = np.frombuffer(marks, np.uint8)
        sums = self.depth + np.cumsum(_STEPS[codes], dtype=np.int64)
        depths = sums - np.minimum(np.minimum.accumulate(sums), 0)
        deep = np.flatnonzero(depths > DEPTH_LIMIT)
        if len(deep):
            return self.line + marks[: int(deep[0])].count(b"\n")
        self.depth = int(depths[-1])
        self.line += marks.count(b"\n")
        return None


@dataclass
class Fields:
    """The fields of the objects at one place of a text: those of the records, or those of a field's values."""

    objects: int = 0
    below: dict[str, Fields] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        """Count the fields of a value, or of the values of a list."""
        if isinstance(value, dict):
            self.objects += 1
            for name, inner in value.items():
                known = self.below.setdefault(name, Fields())
                if isinstance(inner, dict | list):
                    known.add(inner)
        else:
            for inner in value:
                if isinstance(inner, dict | list):
                    self.add(inner)

    def size(self) -> tuple[int, int]:
        """The number of fields, and of fields times objects, over all places."""
        below = [fields.size() for fields in self.below.values()]
        cells = self.objects * len(self.below) + sum(cells for _, cells in below)
        return len(below) + sum(count for count, _ in below), cells


def too_many_fields(head: bytes) -> bool:
    """Whether the fields of the first block, whole objects only, are beyond a limit; a ValueError where it is not JSON."""
    flat = b"\\" not in head and not head.translate(None, _NO_BRACES).replace(b"{}", b"")
    names = len(set(_NAME.findall(head))) if flat else 0
    if flat and names <= FIELD_LIMIT and names * head.count(b"{") <= CELL_LIMIT:
        return False
    count, cells = _fields(head.decode("utf-8-sig", errors="replace")).size()
    return count > FIELD_LIMIT or cells > CELL_LIMIT


def _fields(text: str) -> Fields:
    found, at = Fields(), _skipped(text, 0)
    while at < len(text):
        value, at = _DECODER.raw_decode(text, at)
        if isinstance(value, dict | list):
            found.add(value)
        at = _skipped(text, at)
    return found


def _skipped(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
