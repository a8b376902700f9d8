"""Events of a trace in Chrome's form, read in pieces: no more of the file is held than a few mebibytes."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from steptime.errors import FileError
from steptime.imported.source import SourceFile
from steptime.units import format_bytes

EVENTS = "traceEvents"
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY = re.compile(rb"\s*\[")
_PIECE = 4 << 20
_TRIES = 8
"""Places at which a piece is cut, before its events are read one by one."""
_BETWEEN = re.compile(r"[\s,]*")
_MOST_INFO = 1 << 20


@dataclass
class TraceStream:
    """The events of a file, and what lies beside them, which is known when all events are read."""

    source: SourceFile
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.source.path

    def batches(self) -> Iterator[list[Any]]:
        """Yield the events; raises FileError where it has no list of them, or is cut."""
        left = self._head()
        while piece := self.source.read(_PIECE):
            left += piece
            events, left, ended = self._events(left)
            yield events
            if ended:
                self._read_info(left.decode("latin-1"))
                return
            if len(left) > self.source.limits.line + _PIECE:
                raise FileError(self.path, f"an event is longer than {format_bytes(self.source.limits.line)}")
        events, left, ended = self._one_by_one(left)
        yield events
        if not ended:
            raise FileError(self.path, "its events have no end: the file is cut, or not JSON; copy it again")
        self._read_info(left.decode("latin-1"))

    def _head(self) -> bytes:
        data = b""
        while piece := self.source.read(_PIECE):
            data += piece
            if known := _KEY.search(data) or _ARRAY.match(data):
                self._read_info(data[: known.start()].decode("latin-1"))
                return data[known.end() :]
            if len(data) > self.source.limits.line:
                break
        raise FileError(self.path, f"it has no list {EVENTS}")

    def _events(self, data: bytes) -> tuple[list[Any], bytes, bool]:
        """Return the whole events of a piece, what is left of it, and whether the list has ended."""
        place = len(data)
        for _ in range(_TRIES):
            place = data.rfind(b"{", 0, place)
            before = data[max(0, place - 64) : place].rstrip()
            if place <= 0:
                break
            if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
                whole = data[:place].rstrip()[:-1]
                try:
                    events: list[Any] = from_json(b"[" + whole.lstrip(b", \r\n\t") + b"]")
                except ValueError:
                    continue
                return events, data[place:], False
        return self._one_by_one(data)

    def _one_by_one(self, data: bytes) -> tuple[list[Any], bytes, bool]:
        text = data.decode("latin-1")  # a character for a byte
        events: list[Any] = []
        decoder = json.JSONDecoder()
        at = _end_of(_BETWEEN, text, 0)
        while at < len(text) and text[at] != "]":
            try:
                event, at = decoder.raw_decode(text, at)
            except ValueError:
                return events, data[at:], False
            except RecursionError as error:
                raise FileError(self.path, "an event is nested too deeply") from error
            events.append(event)
            at = _end_of(_BETWEEN, text, at)
        return events, data[at:], at < len(text)

    def _read_info(self, text: str) -> None:
        """Keep what is known of the trace beside its events, of the part of the file before or behind them."""
        for name in ("distributedInfo", "baseTimeNanoseconds"):
            place = text[:_MOST_INFO].find(f'"{name}"')
            known = re.compile(r"\s*:\s*").match(text, place + len(name) + 2) if place >= 0 else None
            if known:
                try:
                    self.info[name] = json.JSONDecoder().raw_decode(text, known.end())[0]
                except (ValueError, RecursionError):
                    continue


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    known = pattern.match(text, at)
    return known.end() if known else at
