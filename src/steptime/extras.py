"""Optional parts of steptime: large libraries that few verbs need, and the command that installs them."""

import resource
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from steptime.errors import SteptimeError
from steptime.units import format_bytes


@dataclass(frozen=True)
class Extra:
    """A part that ``pip install 'steptime[NAME]'`` adds."""

    module: str
    """What is imported of it."""
    purpose: str
    """What needs it, as the beginning of a sentence."""
    address_space: int = 0
    """Bytes of addresses that it reserves; where a limit leaves fewer, it ends the process."""


EXTRAS = {
    "export": Extra("polars", "Tables for Parquet, CSV and Python"),
    "mlflow": Extra("mlflow", "Runs in MLflow"),
    "otel": Extra("opentelemetry.exporter.otlp.proto.http", "Runs in OpenTelemetry"),
    "page": Extra("vl_convert", "Pictures", address_space=128 << 30),  # V8 starts with 100 GiB, and not with 64
    "prometheus": Extra("prometheus_client", "Runs in Prometheus"),
    "ray": Extra("ray", "Studies on a Ray cluster"),
    "tensorboard": Extra("tensorboard", "Runs in TensorBoard"),
    "wandb": Extra("wandb", "Runs in Weights & Biases"),
}
"""By the names of pyproject.toml."""


class MissingExtra(SteptimeError):  # noqa: N818 - nothing failed
    """A verb needs a library that cannot be used here; the message has what helps."""


def why_absent(name: str) -> str | None:
    """Return what an extra leaves out here, why, and what helps; None if it can be used."""
    extra = EXTRAS[name]
    if hiding := _hidden_by(extra.module):
        return (
            f"{extra.purpose} need the extra '{name}', and Python takes {hiding} for its {extra.module}: start "
            "steptime in another folder"
        )
    if not _is_installed(extra.module):
        return f"{extra.purpose} need the extra '{name}': pip install 'steptime[{name}]' (in a checkout '.[{name}]')"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < extra.address_space:
        return f"{extra.purpose} need {format_bytes(extra.address_space)} of addresses, not memory: ulimit -v unlimited"
    return None


def _hidden_by(module: str) -> Path | None:
    """Return the user's own file or package of that name in the current folder, if Python would import it instead."""
    spec = find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    place = Path(spec.origin).absolute()
    place = place.parent if spec.submodule_search_locations is not None else place
    return place if place.parent == Path.cwd() else None


def _is_installed(module: str) -> bool:
    """Whether a module has a file; a folder of that name without one, anywhere on the path, is none."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # of a package above it
        return False
    return spec is not None and spec.has_location


def require_extra(name: str) -> None:
    """Raise MissingExtra where the library of an extra cannot be used."""
    if reason := why_absent(name):
        raise MissingExtra(reason)
