"""The batches that a framework's loader makes, by a program that runs in the framework's environment."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from launching import interpreter_for
from preloading import preloaded_interpreter

from steptime.frameworks.manifest import load_manifests
from steptime.runner.run_folder import make_run_folder

# Of each room: Python that makes `batches` of `job` and `context`: an iterator of numpy pairs, images channels first.
OPENING = {
    "reference": """
from steptime.frameworks.reference.loader import open_reference_batches
batches = open_reference_batches(job, context.rank, context.workers, lambda x, t: (x, t))
""",
    "pytorch": """
import torch
from steptime.libraries.torch.loader import open_torch_batches
own = open_torch_batches(job, context, torch.device("cpu"), False)
batches = ((x.numpy(), t.numpy()) for x, t in own)
""",
    "tensorflow": """
from steptime.libraries.tensorflow.loader import open_tensorflow_batches
own = open_tensorflow_batches(job, context.rank, context.workers, "/CPU:0" if job["device"] == "cuda" else None)
batches = ((x.numpy().transpose(0, 3, 1, 2), t.numpy()) for x, t in own)
""",
    "tensorflow1": """
import tensorflow
tf1 = tensorflow.compat.v1
tf1.disable_eager_execution()
from steptime.frameworks.tensorflow1.loader import GraphNativeBatches
own = GraphNativeBatches(job, context)
session = tf1.Session()
own.start(session)
def fetched():
    for steps in itertools.count():
        try:
            inputs, targets = session.run(own.tensors)
        except tensorflow.errors.OpError as error:
            own.explain(error, steps)
            raise
        yield inputs.transpose(0, 3, 1, 2), targets
batches = fetched()
""",
    "mxnet": """
import mxnet
from steptime.libraries.mxnet.loader import open_mxnet_batches
batches = ((x.asnumpy(), t.asnumpy()) for x, t in open_mxnet_batches(job, context, mxnet.cpu()))
""",
    "jax": """
import numpy
from steptime.frameworks.jax.loader import open_jax_batches
batches = ((x.transpose(0, 3, 1, 2), t) for x, t in open_jax_batches(job, context, numpy.asarray))
""",
    "chainer": """
import chainer
from steptime.frameworks.chainer.loader import open_chainer_batches, start_helper_server
start_helper_server(job["loader"])
batches = open_chainer_batches(job, context, chainer.get_device("@numpy"))
""",
    "caffe": """
from steptime.frameworks.caffe.loader import open_loader
loader = open_loader(job, context)
def ring():
    slots = len(loader.targets) // job["batch_per_worker"]
    for slot in itertools.cycle(range(slots)):
        loader.fill()
        inputs = loader.inputs.reshape((slots, -1) + loader.inputs.shape[1:])
        yield inputs[slot].copy(), loader.targets.reshape(slots, -1)[slot].copy()
batches = ring()
""",
    "cntk": """
import warnings
warnings.simplefilter("ignore")
import cntk
from steptime.frameworks.cntk.loader import open_cntk_batches
cntk.device.try_set_default_device(cntk.device.cpu())
batches = ((x.asarray(), t.asarray().argmax(axis=1)) for x, t in open_cntk_batches(job, context))
""",
}
# Rooms that are fed by another's loader, in an environment of their own.
SHARED = {
    "deepspeed": "pytorch",
    "horovod_mxnet": "mxnet",
    "horovod_pytorch": "pytorch",
    "horovod_tensorflow": "tensorflow",
}
OPENING.update({room: OPENING[source] for room, source in SHARED.items()})

PROGRAM = """
import itertools, json, os, sys
import numpy
from steptime.worker.process_context import ProcessContext

if __name__ == "__main__":
    with open("job.json") as file:
        jobs = json.load(file)["jobs"]
    for number, job in enumerate(jobs):
        rank, workers = str(job["rank"]), str(job["workers"])
        context = ProcessContext({"STEPTIME_RANK": rank, "STEPTIME_WORKERS": workers}, os.getcwd())
        try:
            exec(%r)
            pairs = list(itertools.islice(batches, job["batches"]))
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
    run = _run(folder, framework, [(feed, loader) for feed in feeds], side, classes)
    found = []
    for number in range(len(feeds)):
        with np.load(run / f"fed-{number}.npz") as file:
            found.append(Fed(file["inputs"], file["targets"]))
    return found


def faults(  # noqa: PLR0913, PLR0917 - one per fact of a loader
    folder: Path, framework: str, loaders: Sequence[dict[str, Any]], side: int, feed: Feed, classes: int
) -> list[str]:
    """Return the message of the error that each of ``loaders`` ends with; empty where one ends well."""
    run = _run(folder, framework, [(feed, {**loader, "fails": True}) for loader in loaders], side, classes)
    paths = [run / f"fault-{number}.txt" for number in range(len(loaders))]
    return [path.read_text() if path.exists() else "" for path in paths]


def _run(folder: Path, framework: str, feeds: Sequence[tuple[Feed, dict[str, Any]]], side: int, classes: int) -> Path:
    """Take the batches of each feed from its loader; return the run folder."""
    workload = {"input_shape": [3, side, side], "classes": classes, "loss": "softmax_cross_entropy", "layers": []}
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
    make_run_folder(run, manifest.folder, {"framework": framework, "jobs": jobs}, manifest.libraries)
    (run / "feed.py").write_text(PROGRAM % OPENING[framework])
    python = interpreter_for(framework, kind)
    if kind not in manifest.loader_environments:
        python = preloaded_interpreter(framework, python)
    environment = {**os.environ, "STEPTIME_ROLE": "worker"}
    ended = subprocess.run(
        [str(python), "feed.py"], cwd=run, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run
