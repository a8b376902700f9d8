"""The keys of a workload that is a user's own module."""

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from steptime.study.quantities import Strict

_KEYS = ("module", "data", "loss")
"""Keys of a workload that is a module of the user's."""


class OwnModuleKeys(Strict):
    """What a workload has that is a module of the user's."""

    module: str | None = None
    """Your own torch module, as `PACKAGE.MODULE:FUNCTION`; docs/own-module.md describes its functions."""
    data: str | None = None
    """Its function of `(rank, size, batch)` that returns an iterable of batches."""
    loss: str | None = None
    """Its function of `(module, batch)`; by default cross entropy, or the `.loss` of a mapping's output."""

    @model_serializer(mode="wrap")
    def _without_module(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the form that there was before there were modules of users, where there is none."""
        written: dict[str, Any] = serialized(self)
        return {key: value for key, value in written.items() if key not in _KEYS or value is not None}
