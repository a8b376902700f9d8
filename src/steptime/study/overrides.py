"""What replaces values of a study for one run: a scale that it has, and ``key.path=value`` on the command line."""

from collections.abc import Iterator, Sequence
from typing import Any

from steptime.errors import StudyError, choices_message
from steptime.file_name import MOST_CHARACTERS, file_name_mistake
from steptime.study.document import Document, Mistake, Path, read_value
from steptime.study.study import AXIS_NAMES, SMALL, Study

_FIXED = ("version", "name", "scale", "scales")
_KEYS = tuple(key for key in Study.model_fields if key not in _FIXED)


def apply_scale(document: Document) -> None:
    """Replace the keys of ``document`` that its chosen scale names; ``null`` takes a key away."""
    chosen = document.data.get("scale")
    if not isinstance(chosen, str):
        return
    changes = _scales(document).get(chosen)
    if not isinstance(changes, dict):
        return
    for key, value in changes.items():
        if key not in _KEYS:
            continue
        document.data.pop(key, None)
        if value is not None:
            document.data[key] = value
        written: tuple[str | int, ...] = ("scales", chosen, key)
        moved = {
            (key, *path[len(written) :]): place
            for path, place in document.places.items()
            if path[: len(written)] == written
        }
        document.places = {path: place for path, place in document.places.items() if path[0] != key} | moved


def scale_mistakes(document: Document) -> Iterator[Mistake]:
    """Yield a scale that the study does not have, and keys of its scales that no scale can change."""
    scales = _scales(document)
    chosen = document.data.get("scale")
    if isinstance(chosen, str) and chosen not in (SMALL, *scales):
        yield Mistake(("scale",), choices_message("scale", chosen, [SMALL, *scales]))
    for name, changes in scales.items():
        if mistake := file_name_mistake(str(name), MOST_CHARACTERS):
            yield Mistake(("scales", name), mistake)
        if name == SMALL:
            yield Mistake(("scales", name), "is what the keys of the study itself say; name another scale")
        for key in changes if isinstance(changes, dict) else ():
            if key in _FIXED:
                yield Mistake(("scales", name, key), "is the same at every scale")
            elif key not in _KEYS:
                yield Mistake(("scales", name, key), choices_message("key", key, _KEYS))


def _scales(document: Document) -> dict[str, Any]:
    found = document.data.get("scales")
    return found if isinstance(found, dict) else {}


_NAMED = ("workloads", "loaders")
"""Lists whose items may be bare names."""


def apply_overrides(document: Document, overrides: Sequence[str]) -> list[str]:
    """Replace values of ``document``; where two overrides name one key, the later one counts.

    Returns a sentence for each override that cannot be applied. ``null`` takes a key away.
    """
    wrong: list[str] = []
    for override in overrides:
        try:
            _apply(document, override)
        except StudyError as error:
            wrong += error.mistakes
    return wrong


def _apply(document: Document, override: str) -> None:
    key, equals, text = override.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        message = f"override {override!r}: write KEY=VALUE, for example workers=[1,2] or equivalence.enabled=false"
        raise StudyError(message)
    name = f"override {override!r}"
    steps = _KeySteps(name)
    kept = document.data
    path = steps.resolve(kept, keys)
    value, mistakes = read_value(_listed(text, path), name)
    document.data = steps.replaced(kept, path, value, ())
    document.mistakes = [mistake for mistake in document.mistakes if mistake.path[: len(path)] != path]
    document.mistakes += [Mistake((*path, *mistake.path), mistake.text) for mistake in mistakes]
    document.places = {where: place for where, place in document.places.items() if where[: len(path)] != path}
    document.places[path] = override


def _listed(text: str, path: Path) -> str:
    """``1,2,4`` means a list where a list is allowed."""
    takes_list = path[-1] in (*AXIS_NAMES, "processes") or "options" in path or "environment_variables" in path
    written = text.strip()
    return f"[{written}]" if takes_list and "," in written and written[0] not in "[{\"'" else written


class _KeySteps:
    """Goes down a path of keys; what the file wrote short (a name, one value) is spelled out on the way."""

    def __init__(self, name: str) -> None:
        self._name = name

    def resolve(self, data: Any, keys: Sequence[str]) -> Path:  # noqa: ANN401 - whatever the file holds
        """Return the path that ``keys`` mean: items of lists by index from 0, or by name."""
        path: Path = ()
        for key in keys:
            data = self._spelled_out(data, key, path)
            if isinstance(data, list):
                index = self._index(data, key, path)
                path, data = (*path, index), data[index]
            elif data is None or isinstance(data, dict):
                path, data = (*path, key), (data or {}).get(key)
            else:
                message = f"{self._name}: {_dotted(path)} is {data!r}, which has no {key!r} in it"
                raise StudyError(message)
        return path

    def replaced(self, data: Any, path: Path, value: Any, above: Path) -> Any:  # noqa: ANN401
        """Return ``data`` with ``value`` at ``path``; ``above`` is where ``data`` itself is."""
        if not path:
            return value
        first, rest = path[0], path[1:]
        data = self._spelled_out(data, str(first), above)
        if isinstance(data, list):
            return [
                self.replaced(item, rest, value, (*above, first)) if index == first else item
                for index, item in enumerate(data)
            ]
        kept = dict(data or {})
        below = self.replaced(kept.get(str(first)), rest, value, (*above, first))
        if below is None:
            kept.pop(str(first), None)
        else:
            kept[str(first)] = below
        return kept

    def _spelled_out(self, data: Any, key: str, path: Path) -> Any:  # noqa: ANN401
        if path and path[-1] in _NAMED and data is not None and not isinstance(data, list):
            return [data]
        if isinstance(data, str) and len(path) > 1 and path[-2] in _NAMED:
            return {"name": data}
        if isinstance(data, bool) and path in {("breakdown",), ("loader_alone",)}:
            return {}  # what `true` stands for
        if path and key.isdecimal() and data is not None and not isinstance(data, list):
            return [data]
        return data

    def _index(self, items: list[Any], key: str, path: Path) -> int:
        names = [item.get("name") if isinstance(item, dict) else item for item in items]
        if key.isdecimal() and int(key) < len(items):
            return int(key)
        if key in names:
            return names.index(key)
        known = ", ".join(f"{index} ({name})" for index, name in enumerate(names))
        message = f"{self._name}: {_dotted(path)} has no {key!r}; it has {known or 'nothing'}"
        raise StudyError(message)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
