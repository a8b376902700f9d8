"""The helpers of a loader are counted alike in every framework: one more is one more process, or one more thread.

Helpers are threads in some frameworks and processes in others, some of which have a process or threads more to manage
them; what each has is read back by the worker.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from image_files import PHOTO, photos
from launching import LaunchResult, launch_ok, timing_job

from steptime.catalog.manifest import load_manifests

MANIFESTS = load_manifests()
NAMES = [
    pytest.param(name, marks=pytest.mark.framework(name))
    for name, manifest in MANIFESTS.items()
    if "native" in manifest.loaders
]


def trained(folder: Path, name: str, processes: int) -> LaunchResult:
    """Train from photographs with so many helpers."""
    strategy = next(iter(MANIFESTS[name].strategies))
    (folder / str(processes)).mkdir()
    loader = photos(folder / str(processes), processes=processes)
    job = timing_job(name, strategy, "cifar_cnn", batch=2, loader=loader, warmup_steps=3, steps=8, **PHOTO)
    # A fork that loads what another one compiled has fewer threads than that one.
    return launch_ok(folder / str(processes), job, preloaded=name != "jax")


def living(result: LaunchResult) -> tuple[int, int]:
    """Return the worker's threads and helpers that are processes, in numbers."""
    found = result.record("threads")
    return found["live_threads"], found["helper_processes"]


@pytest.mark.parametrize("name", NAMES)
def test_each_helper_of_a_loader_is_one_thread_or_process(tmp_path: Path, name: str) -> None:
    without = MANIFESTS[name].contract.without_loader_helpers
    if without:
        pytest.skip(f"{name} has no helpers: {without}")
    launches = [trained(tmp_path, name, processes) for processes in (0, 1, 2)]
    none, one, two = map(living, launches)

    threads, processes = ([each[kind] for each in (none, one, two)] for kind in (0, 1))
    assert processes[0] == 0
    assert sum(one) > sum(none)
    if processes[1]:  # PyTorch has a thread for the orders to each of them besides
        assert processes[2] == processes[1] + 1
    else:
        assert threads[2] == threads[1] + 1
    for record in (each.record("steps") for each in launches):
        assert math.isfinite(record["loss"])
        assert np.all(np.diff([record["origin_s"], *record["ends_s"]]) > 0)
