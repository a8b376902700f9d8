"""Every framework feeds the samples that the protocol says from files; a new framework is tested by being there."""

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from image_files import PHOTO, SAMPLES, digits, photos
from launching import check_job, launch, launch_ok, timing_job

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.layers import Network, Workload
from steptime.worker.samples import epoch_indices
from steptime.worker.weights import initial_weights

MANIFESTS = load_manifests()
NAMES = [
    pytest.param(name, marks=pytest.mark.framework(name))
    for name, manifest in MANIFESTS.items()
    if "native" in manifest.loaders
]
STILL = {"learning_rate": 1e-30, "momentum": 0.0, "weight_decay": 0.0}
MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.3]
SIDE, BATCH, STEPS = 5, 3, 6


def together(name: str) -> tuple[str, dict[str, int]]:
    """Return a strategy of two workers that wait for each other, and how many processes it has."""
    manifest = MANIFESTS[name]
    for strategy, support in manifest.strategies.items():
        if STRATEGIES[strategy].exact and support.max_workers != 1:
            return strategy, {"workers": 2, "servers": 1 if STRATEGIES[strategy].servers else 0}
    pytest.skip(f"no strategy of {name} has several workers that wait for each other")


def still_alive(folder: Path) -> list[str]:
    """Return the processes that run below ``folder``, or were started with it, after a moment for those that end."""
    deadline = time.monotonic() + 10
    while True:
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
            words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
            if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in words):
                found.append(" ".join(words))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def one_layer() -> Workload:
    net = Network((3, SIDE, SIDE))
    net.linear("fc", net.flatten("flatten", net.input), SAMPLES)
    return net.finish("one_layer", classes=SAMPLES)


def losses_of(images: np.ndarray, job: dict[str, Any], rank: int) -> list[float]:
    """Return the loss of each step by the protocol's order of samples; sample i is of class i."""
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    matrix, bias = (weights[f"fc.{role}"].astype(np.float64) for role in ("weight", "bias"))
    losses: list[float] = []
    epoch = 0
    while len(losses) < STEPS:
        order = epoch_indices(SAMPLES, epoch, job["seed"], rank, 2)
        for start in range(0, SAMPLES // 2 // BATCH * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            mean, std = (np.array(each).reshape(3, 1, 1) for each in (MEAN, STD))
            inputs = ((images[chosen] / 255.0 - mean) / std).reshape(BATCH, -1)
            scores = inputs @ matrix.T + bias
            picked = scores[np.arange(BATCH), chosen]
            losses.append(float(np.mean(np.log(np.exp(scores).sum(axis=1)) - picked)))
        epoch += 1
    return losses[:STEPS]


@pytest.mark.parametrize("name", NAMES)
def test_every_worker_trains_on_the_samples_of_the_protocol_in_its_order(trained_framework, name, tmp_path):
    """By the losses of fixed weights over three epochs: another sample, class, order or scale gives another loss."""
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 3, SIDE, SIDE), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(SAMPLES))
    transform = {"mean": MEAN, "std": STD}
    dataset = {"form": "arrays", "path": str(tmp_path / "set.npz"), "samples": SAMPLES, "transform": transform}
    strategy, processes = together(name)
    job = check_job(name, strategy, one_layer(), workers=2, batch=BATCH, steps=STEPS, seed=5, optimizer=STILL)
    job["loader"] = {"kind": "native", "processes": 0, "dataset": dataset}
    result = launch_ok(tmp_path, job, preloaded=True, **processes)
    for rank in range(2):
        found = result.record("check", f"worker-{rank}")["losses"]
        np.testing.assert_allclose(found, losses_of(images, job, rank), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_loaded_for_several_epochs_with_a_batch_that_leaves_a_rest(trained_framework, name, tmp_path):
    job = timing_job(name, "single", "lenet5", loader=digits(tmp_path), batch=5, steps=8)
    assert math.isfinite(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_photographs_are_loaded_by_both_workers_and_no_helper_is_left(trained_framework, name, tmp_path):
    """By helpers, whose workers start as users start them; ends of steps are in order.

    In the training process, ``test_loader_helpers.py`` has them loaded, and worker 1 of a broken one below.
    """
    strategy, launched = together(name)
    loader = photos(tmp_path, processes=2)
    job = timing_job(name, strategy, "lenet5", loader=loader, batch=2, steps=8, **{**PHOTO, "workers": 2})
    result = launch_ok(tmp_path, job, **launched)
    for rank in range(2):
        record = result.record("steps", f"worker-{rank}")
        assert math.isfinite(record["loss"])
        assert np.all(np.diff([record["origin_s"], *record["ends_s"]]) > 0)
    assert still_alive(tmp_path) == []


BROKEN = [
    pytest.param(name.values[0], content, processes, marks=name.marks, id=f"{name.values[0]}-{label}-{processes}")
    for turn, name in enumerate(NAMES)
    for processes in (0, 2)
    for label, content in [[("text", b"no photograph"), ("cut off", None)][(turn + processes // 2) % 2]]
]
"""Of each framework both kinds of damage, one in the training process and one in helpers, by turns."""


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "content", "processes"), BROKEN)
def test_a_broken_photograph_ends_both_workers_and_is_named(trained_framework, name, content, processes, tmp_path):
    """Worker 1 meets it in its second batch; all who wait for its gradients are ended long before the limit."""
    strategy, launched = together(name)
    loader = photos(tmp_path, processes=processes)
    broken = tmp_path / f"{int(epoch_indices(SAMPLES, 0, 0, 1, 2)[3])}.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] if content is None else content)
    job = timing_job(name, strategy, "lenet5", loader=loader, batch=2, steps=8, **{**PHOTO, "workers": 2})
    result = launch(tmp_path, job, time_limit_s=100, preloaded=True, **launched)
    assert not result.outcome.ok
    assert str(broken) in result.record("error", "worker-1")["message"]
    assert "time limit" not in (result.outcome.reason or "")
    assert result.outcome.wall_s < 60
    assert still_alive(tmp_path) == []


def test_the_index_of_photographs_names_every_file(tmp_path):
    photos(tmp_path, processes=0)
    named = {name for name, _ in json.loads((tmp_path / "index.json").read_text())["files"]}
    assert named == {path.name for path in tmp_path.glob("*.jpg")}
