"""Scales of a study: the same question on a small machine and on a cluster, in one file.

The keys of a study are its scale ``small``; each item of ``scales`` names the keys that another scale has instead.
"""

from collections.abc import Iterator
from typing import Any

from steptime.errors import choices_message
from steptime.file_name import MOST_CHARACTERS, file_name_mistake
from steptime.study.document import Document, Mistake
from steptime.study.study import SMALL, Study

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
