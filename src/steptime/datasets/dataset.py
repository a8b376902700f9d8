"""A dataset on disk, in one of its forms."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from steptime.errors import DatasetError


@dataclass(frozen=True)
class Dataset:
    """Samples on disk in one of the forms of docs/worker-protocol.md."""

    name: str
    """A built-in's name, or the folder as the user wrote it."""
    form: Literal["arrays", "image_folder", "decoded", "tar_shards", "tfrecord", "recordio"]
    path: Path
    """The npz file of ``arrays``, the folder of all others; absolute."""
    index: Path | None
    """``index.json`` of all forms but ``arrays``."""
    samples: int
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...] | None
    """Channels, height, width; None if the loader cuts the shape that is asked for."""
    bytes: int
    """Of the files on disk."""
    validation: "Dataset | None" = None
    """The samples that are not trained on, with the same classes; None if the dataset has no folder of them."""
    skipped: tuple[str, ...] = ()
    """What was left out because it is broken, and why; only where that was asked for."""

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def location(self) -> Path:
        """The folder that holds it."""
        return self.path.parent if self.form == "arrays" else self.path


def require_batch(samples: int, global_batch: int) -> None:
    """Raise DatasetError unless the samples of an epoch fill one step of all workers."""
    if samples < global_batch:
        message = (
            f"{samples} samples do not fill one step of {global_batch} over all workers; "
            f"use a smaller batch, fewer workers, or at least {global_batch} samples"
        )
        raise DatasetError(message)
