"""Every loader of every framework gives the samples of the protocol; a new one is tested by being in a manifest.

Sample i has class i, so that targets tell which samples came and when.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_feeds import Fed, Feed, fed, fed_tokens
from PIL import Image

import steptime
from steptime.catalog.choices import LOADERS, SYNTHETIC
from steptime.catalog.manifest import load_manifests
from steptime.datasets.dataset import Dataset
from steptime.datasets.stored_forms import STORED_FORMS, store
from steptime.datasets.validation import loader_json
from steptime.worker.samples import batch_indices, scale_and_shift
from steptime.worker.stored_images import crops

SAMPLES, SIDE, WORKERS = 24, 32, 2
BATCH, RAGGED = 4, 5
"""The first divides a worker's share of 12; the second leaves two of it."""
EPOCHS = 3
SIZES = [(96 + 4 * index, 80 + index) for index in range(SAMPLES)]
WHOLE = SAMPLES // WORKERS // BATCH

FEEDS = [
    Feed(EPOCHS * WHOLE, BATCH, 0, WORKERS),
    Feed(EPOCHS * WHOLE, BATCH, 1, WORKERS),
    Feed(WHOLE, BATCH, 0, WORKERS),
    Feed(WHOLE, BATCH, 0, WORKERS, seed=6),
    Feed(4, RAGGED, 0, WORKERS),
]
PAIRS = [
    pytest.param(name, loader, marks=pytest.mark.framework(name))
    for name, manifest in load_manifests().items()
    for loader in manifest.loaders
    if loader != "synthetic"
]
OF_TOKENS = [
    pytest.param(name, loader, marks=pytest.mark.framework(name))
    for name, manifest in load_manifests().items()
    for loader in manifest.loaders
    if LOADERS[loader].reads_tokens and not manifest.without_transformers
]
OWN_RANDOM_CROPS: set[str] = set()
"""Loaders that cannot cut a given rectangle; they are held to equal statistics."""


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A folder of JPEG files of different sizes, one of each class."""
    folder = tmp_path_factory.mktemp("photographs")
    stream = np.random.default_rng(0)
    for index, size in enumerate(SIZES):
        coarse = Image.fromarray(stream.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(folder / f"{index}.jpg", quality=95)
    files = [[f"{index}.jpg", index] for index in range(SAMPLES)]
    classes = [str(index) for index in range(SAMPLES)]
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": classes, "sizes": SIZES}))
    return Dataset("own", "image_folder", folder, folder / "index.json", SAMPLES, tuple(classes), None, 1)


@cache
def pixels_of(path: Path) -> Image.Image:
    with Image.open(path) as file:
        return file.convert("RGB")


def expected(dataset: Dataset, transform: dict[str, Any], epoch: int, chosen: np.ndarray, seed: int) -> np.ndarray:
    """Return the normalised samples ``chosen``, cut by the protocol's rectangles with Pillow."""
    boxes, flips = crops(transform, np.array(SIZES)[chosen], seed, epoch, chosen)
    scale, shift = scale_and_shift(transform, 3)
    images = []
    for index, (left, top, width, height), flipped in zip(chosen, boxes.tolist(), flips, strict=True):
        part = pixels_of(dataset.path / f"{index}.jpg").crop((left, top, left + width, top + height))
        image = np.asarray(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        images.append((image[:, ::-1] if flipped else image).transpose(2, 0, 1) * scale + shift)
    return np.stack(images)


_FED: dict[tuple[str, str], list[Fed]] = {}


@pytest.fixture
def found(request: pytest.FixtureRequest, photographs: Dataset, tmp_path: Path) -> list[Fed]:
    """What the loader gave for each of ``FEEDS``; it runs once for all tests."""
    framework, loader = request.getfixturevalue("framework"), request.getfixturevalue("loader")
    if (framework, loader) not in _FED:
        form = LOADERS[loader].form
        stored = store(photographs, form, tmp_path / form) if form in STORED_FORMS else photographs
        settings = loader_json(stored, (3, SIDE, SIDE), loader, processes=1)
        _FED[framework, loader] = fed(tmp_path, framework, settings, SIDE, FEEDS, SAMPLES)
    return _FED[framework, loader]


def epochs_of(given: Fed, batches: int) -> np.ndarray:
    """Return the samples of each epoch in their order, (epochs, samples)."""
    return given.targets.astype(int).reshape(-1, batches * given.targets.shape[1])


@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_every_sample_comes_once_an_epoch_to_one_worker(found, framework, loader):
    first, second = (epochs_of(found[rank], WHOLE) for rank in range(WORKERS))
    for epoch in range(EPOCHS):
        assert sorted([*first[epoch], *second[epoch]]) == list(range(SAMPLES))


@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_what_does_not_fill_a_batch_is_left_out(found, framework, loader):
    for epoch in epochs_of(found[4], 2):
        assert len(set(epoch)) == 2 * RAGGED


@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_the_order_is_that_of_the_seed_and_another_in_every_epoch(found, framework, loader):
    order = epochs_of(found[0], WHOLE)
    np.testing.assert_array_equal(epochs_of(found[2], WHOLE)[0], order[0])
    assert (epochs_of(found[3], WHOLE)[0] != order[0]).any()
    assert (order[0] != order[1]).any()


@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_pixels_are_those_of_the_protocols_rectangles(found, photographs, framework, loader):
    """Decoders and filters round differently: by two of 255 on average."""
    if loader in OWN_RANDOM_CROPS:
        pytest.skip("this loader draws rectangles of its own")
    transform = loader_json(photographs, (3, SIDE, SIDE), loader)["dataset"]["transform"]
    std = np.array(transform["std"]).reshape(3, 1, 1)
    for given in found[:2]:
        for number, (inputs, targets) in enumerate(zip(given.inputs, given.targets, strict=True)):
            wanted = expected(photographs, transform, number // WHOLE, targets.astype(int), 5)
            assert np.abs((inputs - wanted) * std * 255).mean() < 2


@pytest.mark.parametrize(("framework", "loader"), PAIRS)
def test_mean_and_variance_are_those_of_the_protocol(found, photographs, framework, loader):
    """Over three epochs; a loader with rectangles of its own is within the spread of such rectangles."""
    transform = loader_json(photographs, (3, SIDE, SIDE), loader)["dataset"]["transform"]
    own = loader in OWN_RANDOM_CROPS
    everything = np.concatenate([each.inputs.reshape(-1, 3, SIDE, SIDE) for each in found[:2]])
    wanted = np.concatenate([expected(photographs, transform, epoch, np.arange(SAMPLES), 5) for epoch in range(EPOCHS)])
    assert np.abs(everything.mean(axis=(0, 2, 3)) - wanted.mean(axis=(0, 2, 3))).max() < (0.15 if own else 0.02)
    ratio = everything.var(axis=(0, 2, 3)) / wanted.var(axis=(0, 2, 3))
    assert np.abs(ratio - 1).max() < (0.15 if own else 0.03)


def test_every_loader_of_a_manifest_is_in_the_table():
    assert {loader for manifest in load_manifests().values() for loader in manifest.loaders} <= set(LOADERS)


def test_the_core_writes_the_name_of_the_synthetic_loader_once():
    """Workers have the word of the protocol; everything above them has ``catalog/choices.py``."""
    core = Path(steptime.__file__).parent
    workers = ("worker", "libraries", "frameworks")
    sources = [path for path in core.rglob("*.py") if path.relative_to(core).parts[0] not in workers]

    naming = [str(path.relative_to(core)) for path in sources if f'"{SYNTHETIC.name}"' in path.read_text("utf-8")]
    assert naming == ["synonyms.py", "catalog/choices.py"]  # the other words for it, whose choices have a test


@pytest.mark.parametrize(("framework", "loader"), OF_TOKENS)
def test_tokens_are_those_of_the_protocols_sequences(framework, loader, tmp_path):
    """Sequence i begins at token 10 i of the part that is read, and each target is the token behind.

    Or the token itself at the two places that the last token of the vocabulary hides.
    """
    tokens = np.random.default_rng(0).integers(0, 5000, 1006, dtype=np.uint16)
    np.concatenate([tokens[:7], tokens, tokens]).tofile(tmp_path / "own.bin")
    dataset = Dataset("own", "tokens", tmp_path / "own.bin", None, len(tokens), (), None, 1, first_token=7)
    workload = {"input_shape": [10], "classes": 5000, "loss": "next_token_cross_entropy", "layers": []}
    settings = loader_json(dataset, (10,), loader)
    hiding = {**settings, "dataset": {**settings["dataset"], "hidden_by": 5000}}
    feeds = [Feed(15, 4, rank, WORKERS) for rank in range(WORKERS)]
    shown, masked = fed_tokens(tmp_path, framework, [settings, hiding], workload, feeds)
    for rank, (given, other) in enumerate(zip(shown, masked, strict=True)):
        order = batch_indices(100, 4, 5, rank, WORKERS)
        for inputs, targets, (_, chosen) in zip(given.inputs, given.targets, order, strict=False):
            np.testing.assert_array_equal(inputs, [tokens[10 * index : 10 * index + 10] for index in chosen])
            np.testing.assert_array_equal(targets, [tokens[10 * index + 1 : 10 * index + 11] for index in chosen])
        hidden = other.inputs == 5000
        assert (hidden.sum(axis=2) == 2).all()
        np.testing.assert_array_equal(other.targets, np.where(hidden, given.inputs, -1))
        np.testing.assert_array_equal(other.inputs[~hidden], given.inputs[~hidden])
