"""The batches that a framework's loader makes, by a program that runs in the framework's environment."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import interpreter_for
from preloading import preloaded_interpreter

from steptime.catalog.manifest import Manifest, load_manifests
from steptime.execution.run_folder import make_run_folder

PROGRAM = """
import itertools, json, os, sys
import numpy
from steptime.frameworks.%s.contract import CONTRACT
from steptime.worker.process_context import ProcessContext

if __name__ == "__main__":
    with open("job.json") as file:
        jobs = json.load(file)["jobs"]
    for number, job in enumerate(jobs):
        rank, workers = str(job["rank"]), str(job["workers"])
        context = ProcessContext({"STEPTIME_RANK": rank, "STEPTIME_WORKERS": workers}, os.getcwd())
        try:
            pairs = list(itertools.islice(CONTRACT.batches(job, context), job["batches"]))
        except Exception as error:
            with open("fault-%%d.txt" %% number, "w") as file:
                file.write(str(error))
            if job["loader"].get("fails"):
                continue
            raise
        inputs, targets = [numpy.stack(each) for each in zip(*pairs)]
        numpy.savez("fed-%%d.npz" %% number, inputs=inputs, targets=targets)
    sys.stdout.flush()
    os._exit(0)
"""


def shared_loaders(manifest: Manifest) -> list[Any]:
    """Return a mark that skips a slow test of loaders for a framework that shares them with another."""
    shared = manifest.contract.loaders_of
    return [pytest.mark.skip(reason=f"{manifest.name} has the loaders of {shared}")] if shared else []


@dataclass(frozen=True)
class Fed:
    """What a loader gave: images of shape (batches, batch, channels, height, width), and their classes."""

    inputs: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class Feed:
    """What one worker asks its loader for."""

    batches: int
    batch: int
    rank: int = 0
    workers: int = 1
    seed: int = 5
    device: str = "cpu"


def fed(  # noqa: PLR0913, PLR0917 - one per fact of a loader
    folder: Path, framework: str, loader: dict[str, Any], side: int, feeds: Sequence[Feed], classes: int
) -> list[Fed]:
    """Run a framework's loader in its environment, once for each of ``feeds``, in one process."""
    return _read(_run(folder, framework, [(feed, loader) for feed in feeds], _of_images(side, classes)), feeds)


def fed_tokens(
    folder: Path, framework: str, loaders: Sequence[dict[str, Any]], workload: dict[str, Any], feeds: Sequence[Feed]
) -> list[list[Fed]]:
    """Run a framework's loaders of tokens as ``fed`` does, each on all feeds; arrays are (batches, batch, tokens)."""
    asked = [(feed, loader) for loader in loaders for feed in feeds]
    found = _read(_run(folder, framework, asked, workload), [feed for feed, _ in asked])
    return [found[at : at + len(feeds)] for at in range(0, len(found), len(feeds))]


def _of_images(side: int, classes: int) -> dict[str, Any]:
    return {"input_shape": [3, side, side], "classes": classes, "loss": "softmax_cross_entropy", "layers": []}


def _read(run: Path, feeds: Sequence[Feed]) -> list[Fed]:
    found = []
    for number in range(len(feeds)):
        with np.load(run / f"fed-{number}.npz") as file:
            found.append(Fed(file["inputs"], file["targets"]))
    return found


def faults(  # noqa: PLR0913, PLR0917 - one per fact of a loader
    folder: Path, framework: str, loaders: Sequence[dict[str, Any]], side: int, feed: Feed, classes: int
) -> list[str]:
    """Return the message of the error that each of ``loaders`` ends with; empty where one ends well."""
    failing = [(feed, {**loader, "fails": True}) for loader in loaders]
    run = _run(folder, framework, failing, _of_images(side, classes))
    paths = [run / f"fault-{number}.txt" for number in range(len(loaders))]
    return [path.read_text() if path.exists() else "" for path in paths]


def _run(folder: Path, framework: str, feeds: Sequence[tuple[Feed, dict[str, Any]]], workload: dict[str, Any]) -> Path:
    """Take the batches of each feed from its loader; return the run folder."""
    jobs = [
        {
            "framework": framework,
            "workload": workload,
            "batch_per_worker": feed.batch,
            "seed": feed.seed,
            "label_smoothing": 0.0,
            "device": feed.device,
            "loader": loader,
            "rank": feed.rank,
            "workers": feed.workers,
            "batches": feed.batches,
        }
        for feed, loader in feeds
    ]
    (kind,) = {loader["kind"] for _, loader in feeds}
    run = folder / "run"
    manifest = load_manifests()[framework]
    make_run_folder(run, manifest.folder, {"framework": framework, "jobs": jobs}, manifest.libraries, framework)
    (run / "feed.py").write_text(PROGRAM % framework)
    python = interpreter_for(framework, kind)
    if kind not in manifest.loader_environments:
        python = preloaded_interpreter(framework, python)
    environment = {**os.environ, "STEPTIME_ROLE": "worker"}
    ended = subprocess.run(
        [str(python), "feed.py"], cwd=run, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run
