"""``dataset.json``: what a made dataset is, and a checksum of it; written before the folder gets its name."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptime.datasets.dataset import Dataset
from steptime.datasets.table import Builtin

SCHEMA = 1
"""1: name, address, parameters, checksum, bytes, samples, classes."""
NAME = "dataset.json"


def write_marker(folder: Path, builtin: Builtin, address: str, parameters: Mapping[str, int]) -> None:
    """Describe the dataset that a maker has just left in ``folder``."""
    checksum, total = checksum_of(folder)
    content = {
        "schema": SCHEMA,
        "name": builtin.name,
        "address": address,
        "parameters": dict(parameters),
        "checksum": checksum,
        "bytes": total,
        "samples": parameters.get("count", builtin.samples),
        "classes": list(builtin.classes),
    }
    (folder / NAME).write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Return what ``folder`` says that it is; None if it says nothing that this version understands."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("schema") == SCHEMA else None


def made_dataset(folder: Path, builtin: Builtin, address: str) -> Dataset | None:
    """Return the built-in dataset in ``folder`` if it is the one at ``address`` and every byte is still there."""
    marker = read_marker(folder)
    if marker is None or marker["address"] != address or checksum_of(folder) != (marker["checksum"], marker["bytes"]):
        return None
    arrays = builtin.form == "arrays"
    return Dataset(
        name=builtin.name,
        form=builtin.form,
        path=folder.absolute() / f"{builtin.name}.npz" if arrays else folder.absolute(),
        index=None if arrays else folder.absolute() / "index.json",
        samples=marker["samples"],
        class_names=tuple(marker["classes"]),
        input_shape=builtin.input_shape,
        bytes=marker["bytes"],
    )


def checksum_of(folder: Path) -> tuple[str, int]:
    """Return a checksum of the names and bytes of all files below ``folder`` but the marker, and how many bytes."""
    digest, total = hashlib.sha256(), 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
        total += len(content)
    return digest.hexdigest(), total
