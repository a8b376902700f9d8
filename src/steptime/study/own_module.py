"""The keys of a workload that is a user's own module, and what may not be beside them."""

from collections.abc import Iterator
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from steptime.file_name import MOST_CHARACTERS, file_name_mistake
from steptime.study.document import Document, Mistake, Path
from steptime.study.known_names import KnownNames
from steptime.study.quantities import Strict

_KEYS = ("module", "data", "loss")
"""Keys of a workload that is a module of the user's."""


class OwnModuleKeys(Strict):
    """What a workload has that is a module of the user's."""

    module: str | None = None
    """Your own torch module, as `PACKAGE.MODULE:FUNCTION`: the function returns it."""
    data: str | None = None
    """Of your own module, the function of `(rank, size, batch)` that returns an iterable of batches."""
    loss: str | None = None
    """Likewise, of `(module, batch)` the loss; by default cross entropy, or the `.loss` of a mapping's output."""

    @model_serializer(mode="wrap")
    def _without_module(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the form that there was before there were modules of users, where there is none."""
        written: dict[str, Any] = serialized(self)
        return {key: value for key, value in written.items() if key not in _KEYS or value is not None}


_OF_LAYERS = ("dataset", "validation", "image", "sequence", "classes")
"""Keys of a workload that mean nothing to a module of the user's."""


def own_module_mistakes(document: Document, path: Path, known: KnownNames) -> Iterator[Mistake]:
    """Yield what of the workload at ``path`` contradicts that it is, or is not, a module of the user's."""
    item = document.at(path)
    if not isinstance(item, dict):
        return
    if item.get("module") is None:
        for key in ("data", "loss"):
            if item.get(key) is not None:
                yield Mistake((*path, key), "belongs to a module of your own; name it: module: my_module:build")
        return
    if item.get("data") is None:
        yield Mistake((*path, "module"), "needs data, the function that gives its batches, as data: my_module:loader")
    name = item.get("name")
    if name in known.workloads:
        yield Mistake((*path, "name"), f"{name!r} is a workload of steptime; name yours otherwise")
    elif isinstance(name, str) and (mistake := file_name_mistake(name, MOST_CHARACTERS)):
        yield Mistake((*path, "name"), mistake)
    for key in _OF_LAYERS:
        if item.get(key) is not None:
            yield Mistake((*path, key), "means nothing to a module of your own, which brings its data itself")
