"""Damaged pictures and shards under the loaders that are not native: the file is named, with the next step.

``test_framework_loaders.py`` has the same for native loaders. Damage is done after the core has looked at the files.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from image_folders import cut_off, write_folder
from loader_feeds import Feed, faults, shared_loaders

from steptime.catalog.choices import LOADERS, NATIVE, SYNTHETIC
from steptime.catalog.manifest import load_manifests
from steptime.datasets.creation import open_dataset
from steptime.datasets.dataset import Dataset
from steptime.datasets.stored_forms import STORED_FORMS, store
from steptime.datasets.validation import loader_json
from steptime.worker.batches import worker_order
from steptime.worker.samples import read_index
from steptime.worker.stored_images import TarMembers

CLASSES, EACH, SIDE = ("cat", "dog"), 6, 32
FEED = Feed(batches=3, batch=4)
PAIRS = [
    pytest.param(name, loader, marks=[pytest.mark.framework(name), *shared_loaders(manifest)])
    for name, manifest in load_manifests().items()
    for loader in manifest.loaders
    if loader not in {SYNTHETIC.name, NATIVE.name}
]
HOW = ("overwritten", "cut off")
HELPERS = (0, 2)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A folder of pictures, looked through."""
    base = tmp_path_factory.mktemp("pictures")
    return open_dataset(str(write_folder(base / "mine", CLASSES, EACH)), base / "cache")


def settings_of(dataset: Dataset, loader: str, processes: int = 0) -> dict[str, Any]:
    """Return the job's loader, whose rectangles cover the whole of a picture: DALI decodes no rows below them."""
    found = loader_json(dataset, (3, SIDE, SIDE), loader, processes)
    found["dataset"]["transform"].update(area=[1.0, 1.0], aspect=[4 / 3, 4 / 3])
    return found


def damage(settings: dict[str, Any], form: str, how: str) -> Path:
    """Damage the file of the first batch's last sample, and return it; overwriting leaves its length as it was."""
    dataset = settings["dataset"]
    job = {"loader": settings, "batch_per_worker": FEED.batch, "seed": FEED.seed}
    last = int(next(worker_order(job, FEED.rank, FEED.workers))[1][-1])
    if form == "image_folder":
        path = Path(read_index(dataset)[0][last])
    else:
        (path,) = [each for each in Path(dataset["root"]).iterdir() if _holds(dataset, form, each, last)]
    if how == "cut off":
        return cut_off(path)
    content = bytearray(path.read_bytes())
    begin, end = _PLACES.get(form, lambda *_: (0, len(content)))(dataset, last)
    content[begin:end] = b"#" * (end - begin)
    path.write_bytes(content)
    return path


def _holds(dataset: dict[str, Any], form: str, path: Path, sample: int) -> bool:
    if form == "tar_shards":
        return TarMembers(dataset).fault(sample, "").startswith(f"{path} ")
    if form == "tfrecord":
        return path.suffix == ".tfrecord" and _example_of(sample) in path.read_bytes()
    return path.name in {"pixels.bin", "images.rec"}


def _example_of(sample: int) -> bytes:
    """Return the end of the record of a sample: the feature ``index``."""
    return b"\x0a\x05index\x12" + bytes([5, 0x1A, 3, 0x0A, 1, sample])


def _place_in_tar(dataset: dict[str, Any], sample: int) -> tuple[int, int]:
    _, begin, length = TarMembers(dataset).place(sample)
    return begin, begin + length


_PLACES = {
    "tar_shards": _place_in_tar,
    # Behind the length and its checksum; and the magic number of the first record.
    "tfrecord": lambda *_: (40, 60),
    "recordio": lambda *_: (0, 4),
}


_OF_PROGRAMMERS = ("Traceback", "recursion", " object at ", "{{", "[Op:", "not subscriptable")


@pytest.mark.sampled("framework")
@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_a_damaged_file_is_named_with_the_next_step(pictures, framework, loader, tmp_path):
    """In the training process and from helpers; nothing is trained on what is left of it."""
    form = LOADERS[loader].form
    assert form is not None
    cases = [(how, helpers) for how in HOW for helpers in HELPERS if (form, how) != ("decoded", "overwritten")]
    loaders, damaged = [], []
    for number, (how, helpers) in enumerate(cases):
        settings = _prepared(pictures, loader, form, helpers, tmp_path / str(number))
        damaged.append(damage(settings, form, how))
        loaders.append(settings)

    said = faults(tmp_path, framework, loaders, SIDE, FEED, len(CLASSES))

    for case, path, message in zip(cases, damaged, said, strict=True):
        assert str(path) in message, (case, message)
        assert "and run again" in message, (case, message)
        assert not any(word in message for word in _OF_PROGRAMMERS), (case, message)
        assert len(message.splitlines()) == 1, (case, message)


def _prepared(pictures: Dataset, loader: str, form: str, helpers: int, folder: Path) -> dict[str, Any]:
    """Return the settings of a loader over files of its own."""
    if form in STORED_FORMS:
        return settings_of(store(pictures, form, folder), loader, helpers)
    shutil.copytree(pictures.path, folder)
    settings = settings_of(pictures, loader, helpers)
    settings["dataset"]["root"] = str(folder)
    return settings
