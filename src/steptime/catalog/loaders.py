"""The loaders that feed a trial: what each is, and which stored form of a folder of images it reads.

A framework has the loaders that its manifest lists. Each gives the same samples: the protocol's augmentation
(``worker/augmentation.py``) of every image once an epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.errors import StudyError, choices_message


@dataclass(frozen=True)
class Loader:
    """One way from images on disk to batches."""

    name: str
    summary: str
    form: str | None = "image_folder"
    """The form of ``Dataset`` that it reads images in; None if nothing is read."""
    reads_arrays: bool = False
    """Whether a dataset that is one small array in memory can be its input."""
    reads_tokens: bool = False
    """Whether it reads text."""


SYNTHETIC = Loader("synthetic", "random batches made once, in memory: no input pipeline at all", None)
NATIVE = Loader(
    "native", "the framework's own input pipeline over a dataset on disk", reads_arrays=True, reads_tokens=True
)
CACHED = Loader(
    "cached",
    "images decoded once, their pixels mapped from a file: crop, resize and flip are left; or tokens mapped",
    "decoded",
    reads_tokens=True,
)

OWN = Loader("own", "the iterable of the user's own module", None)
"""Of workloads that are modules of the user's; no study chooses it."""

LOADERS: Mapping[str, Loader] = {
    loader.name: loader
    for loader in (
        SYNTHETIC,
        NATIVE,
        Loader("dali", "NVIDIA's DALI over a folder of images, in an environment of its own"),
        CACHED,
        Loader("webdataset", "JPEG files in tar shards, as WebDataset reads them", "tar_shards"),
        Loader("tfrecord", "JPEG files in TFRecord shards, read by tf.data", "tfrecord"),
        Loader("recordio", "JPEG files in MXNet's RecordIO, read by their numbers", "recordio"),
    )
}


def loader_named(name: str) -> Loader:
    """Return a loader; raises StudyError with the choices for an unknown name."""
    if name == OWN.name:
        return OWN
    if name not in LOADERS:
        raise StudyError([choices_message("loader", name, LOADERS)])
    return LOADERS[name]
