"""Batches that the reference reads from a dataset on disk."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from steptime.frameworks.reference.loader import open_reference_batches

PLAIN = {"mean": [0.0], "std": [1.0]}
WHOLE = {"area": [1.0, 1.0], "aspect": [1.0, 1.0], "flip": False}


def arrays(folder: Path, images: np.ndarray, transform: dict) -> dict:
    """Return a loader over ``images``, each labelled with its index."""
    path = folder / "images.npz"
    np.savez(path, images=images, labels=np.arange(len(images)))
    dataset = {"form": "arrays", "path": str(path), "samples": len(images), "transform": transform}
    return {"kind": "native", "processes": 0, "dataset": dataset}


def photos(folder: Path, pixels: list[np.ndarray], **transform: object) -> dict:
    """Return a loader over PNG files of ``pixels`` (height, width, 3), each labelled with its index."""
    for index, each in enumerate(pixels):
        Image.fromarray(each).save(folder / f"{index}.png")
    files = [[f"{index}.png", index] for index in range(len(pixels))]
    sizes = [[each.shape[1], each.shape[0]] for each in pixels]
    index_path = folder / "index.json"
    index_path.write_text(
        json.dumps({"files": files, "classes": [str(index) for index in range(len(pixels))], "sizes": sizes})
    )
    return {
        "kind": "native",
        "processes": 0,
        "dataset": {
            "form": "image_folder",
            "root": str(folder),
            "index": str(index_path),
            "samples": len(pixels),
            "transform": {"size": [8, 8], **WHOLE, **PLAIN, **transform},
        },
    }


def native_batches(loader: dict, shape: tuple[int, ...], batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return the batches of the only worker."""
    workload = {"input_shape": list(shape), "loss": "softmax_cross_entropy"}
    job = {"loader": loader, "workload": workload, "batch_per_worker": batch, "seed": 0}
    return open_reference_batches(job, 0, 1, lambda inputs, targets: (inputs, targets))


def one_epoch(loader: dict, shape: tuple[int, ...], batch: int = 2) -> dict[int, np.ndarray]:
    """Return the samples of one worker's first epoch by label."""
    count = loader["dataset"]["samples"] // batch
    batches = islice(native_batches(loader, shape, batch), count)
    return {label: sample for inputs, labels in batches for sample, label in zip(inputs, labels, strict=True)}


def random_pixels(count: int, height: int = 8, width: int = 8) -> list[np.ndarray]:
    return list(np.random.RandomState(0).randint(0, 256, (count, height, width, 3)).astype(np.uint8))


def test_array_samples_are_normalised(tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (6, 3, 4, 5)).astype(np.uint8)
    loader = arrays(tmp_path, images, {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]})
    samples = one_epoch(loader, (3, 4, 5))
    mean, std = (np.array(values).reshape(3, 1, 1) for values in ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]))
    assert sorted(samples) == list(range(6))
    for label, sample in samples.items():
        np.testing.assert_allclose(sample, (images[label] / 255 - mean) / std, rtol=1e-5, atol=1e-6)


def test_batches_are_float32(tmp_path):
    loader = arrays(tmp_path, np.zeros((4, 1, 2, 2), dtype=np.uint8), PLAIN)
    assert next(native_batches(loader, (1, 2, 2), 2))[0].dtype == np.float32


def test_a_flat_workload_gets_flat_samples(tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (4, 1, 2, 3)).astype(np.uint8)
    samples = one_epoch(arrays(tmp_path, images, PLAIN), (6,))
    np.testing.assert_allclose(samples[3], images[3].ravel() / 255, rtol=1e-6)


def test_a_photo_of_the_right_size_is_taken_as_it_is(tmp_path):
    pixels = random_pixels(4)
    samples = one_epoch(photos(tmp_path, pixels), (3, 8, 8))
    for label, sample in samples.items():
        np.testing.assert_allclose(sample, pixels[label].transpose(2, 0, 1) / 255, rtol=1e-5, atol=1e-7)


def test_photos_become_grey_where_the_workload_is(tmp_path):
    pixels = random_pixels(4)
    samples = one_epoch(photos(tmp_path, pixels), (1, 8, 8))
    grey = np.asarray(Image.fromarray(pixels[2]).convert("L"))
    np.testing.assert_allclose(samples[2][0], grey / 255, rtol=1e-5)


def test_a_rectangle_of_an_oblong_photo_is_resized_to_the_whole_crop(tmp_path):
    """A photo of one colour stays that colour everywhere."""
    pixels = [np.full((16, 40, 3), (index, 50, 200), dtype=np.uint8) for index in range(4)]
    samples = one_epoch(photos(tmp_path, pixels, area=[0.2, 0.6]), (3, 8, 8))
    for label, sample in samples.items():
        np.testing.assert_allclose(sample[0], label / 255, rtol=1e-5)


def test_crops_lie_at_different_places_inside_the_photo(tmp_path):
    ramp = np.stack(np.meshgrid(np.arange(20), np.arange(20), indexing="ij"), axis=-1)
    pixels = np.concatenate([ramp, ramp[..., :1]], axis=-1).astype(np.uint8)
    loader = photos(tmp_path, [pixels] * 2, area=[64 / 400, 64 / 400])
    batches = islice(native_batches(loader, (3, 8, 8), 2), 100)
    corners = {tuple(np.rint(sample[:2, 0, 0] * 255).astype(int)) for inputs, _ in batches for sample in inputs}
    assert {row for row, _ in corners} == set(range(13))
    assert {column for _, column in corners} == set(range(13))


def test_half_of_the_photos_are_flipped_left_to_right(tmp_path):
    ramp = np.zeros((8, 8, 3), dtype=np.uint8) + np.arange(8, dtype=np.uint8)[:, None]
    loader = photos(tmp_path, [ramp] * 2, flip=True)
    batches = islice(native_batches(loader, (3, 8, 8), 2), 200)
    firsts = [round(float(sample[0, 0, 0] * 255)) for inputs, _ in batches for sample in inputs]
    assert set(firsts) == {0, 7}
    assert firsts.count(7) / len(firsts) == pytest.approx(0.5, abs=0.08)


def test_a_broken_photo_is_named(tmp_path):
    loader = photos(tmp_path, random_pixels(4))
    (tmp_path / "2.png").write_bytes((tmp_path / "2.png").read_bytes()[:60])
    with pytest.raises(ValueError, match=r"2\.png cannot be decoded"):
        one_epoch(loader, (3, 8, 8))
