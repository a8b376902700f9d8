"""The pixels that loaders give, one by one, for the frameworks whose loader this file knows how to open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_feeds import Fed, Feed, fed, shared_loaders
from PIL import Image

from steptime.catalog.manifest import load_manifests
from steptime.worker.samples import epoch_indices

SAMPLES = 11
BATCH = 3
WORKERS = 2
RANK = 1
BATCHES = 4  # with one batch per epoch and worker, this is four epochs
MEAN = [0.5, 0.4, 0.3]
STD = [0.25, 0.2, 0.3]


def frameworks(*, on_cuda: bool = False) -> list[Any]:
    """Every framework with a native loader; with ``on_cuda``, those with one of their own for CUDA devices."""
    return [
        pytest.param(name, marks=[pytest.mark.framework(name), *(shared_loaders(manifest) if on_cuda else [])])
        for name, manifest in load_manifests().items()
        if "native" in manifest.loaders and ("cuda" in manifest.devices or not on_cuda)
    ]


def fed_worker(folder: Path, framework: str, loader: dict[str, Any], side: int) -> Fed:
    """Run a framework's loader in its environment, as worker 1 of 2."""
    (found,) = fed(folder, framework, loader, side, [Feed(BATCHES, BATCH, RANK, WORKERS)], SAMPLES)
    return found


def expected(images: np.ndarray) -> Fed:
    """What the protocol says that worker 1 gets; sample i is of class i."""
    order = [epoch_indices(SAMPLES, epoch, 5, RANK, WORKERS)[:BATCH] for epoch in range(BATCHES)]
    mean, std = (np.array(each).reshape(3, 1, 1) for each in (MEAN, STD))
    inputs = (images[np.array(order)] / 255.0 - mean) / std
    return Fed(inputs, np.array(order))


def photographs(folder: Path, side: int) -> np.ndarray:
    """Save smooth square pictures as JPEG files; return them as Pillow decodes them, channels first."""
    across, down = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side))
    pictures = []
    for index in range(SAMPLES):
        phase = index / SAMPLES
        layers = [across * (1 - phase) + down * phase, down, np.cos(4 * (across + phase)) / 2 + 0.5]
        Image.fromarray((np.stack(layers, axis=-1) * 255).astype(np.uint8)).save(folder / f"{index}.jpg", quality=95)
        with Image.open(folder / f"{index}.jpg") as file:
            pictures.append(np.asarray(file).transpose(2, 0, 1))
    files = [[f"{index}.jpg", index] for index in range(SAMPLES)]
    sizes = [[side, side]] * SAMPLES
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": list("abcdefghijk"), "sizes": sizes}))
    return np.stack(pictures)


def folder_loader(folder: Path, side: int, processes: int) -> dict[str, Any]:
    """The loader of ``photographs``, without chance: nothing is left to crop, nothing is flipped."""
    whole = {"area": [1.0, 1.0], "aspect": [1.0, 1.0], "flip": False}
    transform = {"size": [side, side], **whole, "mean": MEAN, "std": STD}
    dataset = {
        "form": "image_folder",
        "root": str(folder),
        "index": str(folder / "index.json"),
        "samples": SAMPLES,
        "transform": transform,
    }
    return {"kind": "native", "processes": processes, "dataset": dataset}


@pytest.mark.parametrize("framework", frameworks())
def test_arrays_are_the_same_samples_in_the_same_order(tmp_path: Path, framework: str) -> None:
    """Equal to the protocol's formula but for the last bit of a 32-bit float."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 3, 5, 5), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(SAMPLES))
    transform = {"mean": MEAN, "std": STD}
    dataset = {"form": "arrays", "path": str(tmp_path / "set.npz"), "samples": SAMPLES, "transform": transform}
    found = fed_worker(tmp_path, framework, {"kind": "native", "processes": 0, "dataset": dataset}, 5)
    wanted = expected(images)
    np.testing.assert_array_equal(found.targets, wanted.targets)
    np.testing.assert_allclose(found.inputs, wanted.inputs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("framework", frameworks())
def test_photographs_are_the_same_samples_in_the_same_order(tmp_path: Path, framework: str, processes: int) -> None:
    """JPEG decoders may round differently: by at most two of 255 on average, and eight anywhere."""
    images = photographs(tmp_path, 32)
    found = fed_worker(tmp_path, framework, folder_loader(tmp_path, 32, processes), 32)
    wanted = expected(images)
    np.testing.assert_array_equal(found.targets, wanted.targets)
    levels = np.abs(found.inputs - wanted.inputs) * np.array(STD).reshape(3, 1, 1) * 255
    assert levels.mean() < 2
    assert levels.max() < 8.5  # whole levels, but for the rounding of the normalisation


@pytest.mark.parametrize("framework", frameworks())
def test_photographs_are_shrunk_alike(tmp_path: Path, framework: str) -> None:
    """Bilinear filters of different libraries agree on smooth pictures to two of 255 on average."""
    images = photographs(tmp_path, 48)
    shrunk = np.stack(
        [
            np.asarray(Image.fromarray(image.transpose(1, 2, 0)).resize((32, 32), Image.Resampling.BILINEAR))
            for image in images
        ]
    ).transpose(0, 3, 1, 2)
    found = fed_worker(tmp_path, framework, folder_loader(tmp_path, 32, 0), 32)
    levels = np.abs(found.inputs - expected(shrunk).inputs) * np.array(STD).reshape(3, 1, 1) * 255
    assert levels.mean() < 2


def detailed_photographs(folder: Path, side: int, smaller: int) -> np.ndarray:
    """Save pictures with details of a few pixels; return them as Pillow decodes them whole and then shrinks them."""
    stream = np.random.default_rng(3)
    pictures = []
    for index in range(SAMPLES):
        coarse = Image.fromarray(stream.integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{index}.jpg", quality=95)
        with Image.open(folder / f"{index}.jpg") as file:
            shrunk = file.convert("RGB").resize((smaller, smaller), Image.Resampling.BILINEAR)
        pictures.append(np.asarray(shrunk).transpose(2, 0, 1))
    files = [[f"{index}.jpg", index] for index in range(SAMPLES)]
    sizes = [[side, side]] * SAMPLES
    (folder / "index.json").write_text(json.dumps({"files": files, "classes": list("abcdefghijk"), "sizes": sizes}))
    return np.stack(pictures)


@pytest.mark.parametrize("framework", frameworks())
def test_photographs_are_decoded_at_their_full_size_and_every_pixel_counts(tmp_path: Path, framework: str) -> None:
    """Within the rounding of decoders; decoding at a quarter of the size, or looking at four pixels, is further off.

    OpenCV, with which MXNet shrinks, averages by another filter, and the Pillow of CNTK's Python 3.6 has the older
    library for JPEG files, which makes colours whole in another way.
    """
    wanted = expected(detailed_photographs(tmp_path, 144, 32))
    found = fed_worker(tmp_path, framework, folder_loader(tmp_path, 32, 0), 32)
    levels = np.abs(found.inputs - wanted.inputs) * np.array(STD).reshape(3, 1, 1) * 255
    mean, largest = {"mxnet": (9, 40), "horovod_mxnet": (9, 40), "cntk": (3, 12)}.get(framework, (0.5, 2.5))
    assert levels.mean() < mean
    assert levels.max() < largest


@pytest.mark.parametrize("form", ["arrays", "image_folder"])
@pytest.mark.parametrize("framework", frameworks(on_cuda=True))
def test_bytes_that_a_device_normalises_are_the_floats_that_the_host_makes(
    tmp_path: Path, framework: str, form: str
) -> None:
    """The processor stands for the device; PyTorch asks its device itself, and makes floats twice."""
    loader = folder_loader(tmp_path, 32, 1)
    images = photographs(tmp_path, 32)
    if form == "arrays":
        np.savez(tmp_path / "set.npz", images=images, labels=np.arange(SAMPLES))
        dataset = {"form": "arrays", "path": str(tmp_path / "set.npz"), "samples": SAMPLES}
        loader = {"kind": "native", "processes": 0, "dataset": {**dataset, "transform": {"mean": MEAN, "std": STD}}}

    feeds = [Feed(BATCHES, BATCH, RANK, WORKERS, device=device) for device in ("cpu", "cuda")]
    of_host, of_device = fed(tmp_path, framework, loader, 32, feeds, SAMPLES)

    np.testing.assert_array_equal(of_device.targets, of_host.targets)
    np.testing.assert_allclose(of_device.inputs, of_host.inputs, rtol=0, atol=1e-6)
