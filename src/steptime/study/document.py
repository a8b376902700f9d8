"""What a study file says, before anybody judged it: plain values, and for each of them where it was written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]
"""Keys and list indices from the top of the file to a value."""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong, in words, and the value that it is about."""

    path: Path
    text: str


@dataclass
class Document:
    """Plain values of a study file, with overrides applied."""

    name: str
    """The file, as it is named in messages."""
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, int | str] = field(default_factory=dict)
    """Where values were written: a line of the file, counted from 1, or an override as it was typed."""
    mistakes: list[Mistake] = field(default_factory=list)
    """Mistakes found while reading; what they are about is judged no further."""

    def at(self, path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
        """Return the value at ``path``, or None where there is none."""
        value: Any = self.data
        for key in path:
            inside = isinstance(value, list) and isinstance(key, int) and key < len(value)
            if not inside and not (isinstance(value, Mapping) and key in value):
                return None
            value = value[key]
        return value

    def each(self, *path: str | int) -> Iterator[tuple[Path, Any]]:
        """Yield the items of the list at ``path``, or the single value that stands for a list of one."""
        value = self.at(path)
        if isinstance(value, list):
            yield from (((*path, index), item) for index, item in enumerate(value))
        elif value is not None:
            yield path, value

    def items(self, *path: str | int) -> Iterator[tuple[str, Any]]:
        """Yield the keys and values of the mapping at ``path``; nothing where there is no mapping."""
        value = self.at(path)
        if isinstance(value, dict):
            yield from value.items()

    def place(self, path: Path) -> int | str | None:
        """Return where ``path``, or the nearest value around it, was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None

    def sentences(self, mistakes: list[Mistake]) -> list[str]:
        """Return ``mistakes`` as sentences with their places, in the order of the file, one for each value."""
        first: dict[Path, Mistake] = {}
        for mistake in mistakes:
            path = self._as_written(mistake.path)
            first.setdefault(path, Mistake(path, mistake.text))
        return [self._sentence(mistake) for mistake in sorted(first.values(), key=self._order)]

    def _as_written(self, path: Path) -> Path:
        """The path without the indices of lists of one that were written without a list."""
        written: Path = ()
        for key in path:
            if not isinstance(key, int) or isinstance(self.at(written), list):
                written = (*written, key)
        return written

    def _order(self, mistake: Mistake) -> tuple[int, int, str]:
        place = self.place(mistake.path)
        if isinstance(place, int):
            return (1, place, _dotted(mistake.path))
        return (0 if place is None else 2, 0, _dotted(mistake.path))

    def _sentence(self, mistake: Mistake) -> str:
        place = self.place(mistake.path)
        where = f"{self.name}:{place}" if isinstance(place, int) else f"override {place!r}" if place else self.name
        key = _dotted(mistake.path[:-1] if self._quoted(mistake) else mistake.path)
        return f"{where}: {key}: {mistake.text}" if key else f"{where}: {mistake.text}"

    def _quoted(self, mistake: Mistake) -> bool:
        """Whether the mistake is about an item of a list that its text quotes, so that the index says nothing."""
        value = self.at(mistake.path)
        is_item = bool(mistake.path) and isinstance(mistake.path[-1], int)
        return is_item and not isinstance(value, dict) and repr(value) in mistake.text


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
