"""Chainer's settings take effect, and what it lacks is refused; what it trains, tests/contract looks at."""

import json
import subprocess
from pathlib import Path

import pytest
from launching import LaunchResult, check_job, interpreter_for, launch, launch_ok, weight_errors

import steptime
from steptime.catalog.manifest import load_manifests

pytestmark = pytest.mark.framework("chainer")


def test_a_communicator_for_other_devices_is_refused(tmp_path: Path) -> None:
    """The message lists what works here."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"communicator": "pure_nccl"})
    result = launch(tmp_path, job)
    assert "choices: auto, naive" in result.record("error")["message"]


def test_a_precision_that_chainer_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("chainer", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]


def test_double_buffering_without_nccl_is_refused(tmp_path: Path) -> None:
    """The message names the communicator that it needs; updating one step late must not happen unsaid."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"double_buffering": True})
    result = launch(tmp_path, job)
    assert "needs ChainerMN's communicator pure_nccl" in result.record("error")["message"]


def test_the_tier_tuned_computes_with_ideep_where_it_is_installed(tmp_path: Path) -> None:
    """The fact is read back from Chainer; the weights are those of the tier documented but for rounding."""
    settings = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}
    found: dict[str, LaunchResult] = {}
    for tuning in ("documented", "tuned"):
        options = load_manifests()["chainer"].tier_options(tuning, "allreduce", "cpu")
        job = check_job("chainer", "allreduce", "lenet5", workers=2, options=options, optimizer=settings)
        found[tuning] = launch_ok(tmp_path, job, workers=2)
    used = {tuning: result.record("session")["facts"]["ideep"] for tuning, result in found.items()}
    assert used == {"documented": "not used", "tuned": installed_ideep()}
    for rank in range(2):
        assert max(weight_errors(found["tuned"].weights[rank], found["documented"].weights[rank]).values()) < 1e-5


def installed_ideep() -> str:
    """The version of iDeep in Chainer's environment, or what the adapter says where there is none."""
    code = "import importlib; print(importlib.import_module('ideep4py').__version__)"
    command = [str(interpreter_for("chainer")), "-c", code]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "not used"


COUNTED = """
import collections, contextlib, json, sys, types
import numpy, chainer
from chainer.backends import cuda
from steptime.frameworks.chainer.loader import _converter

counts = collections.Counter()


class Stream(object):
    null = None

    def __init__(self, non_blocking=False):
        pass

    def wait_event(self, event):
        counts["stream waits"] += 1


class Event(object):
    def synchronize(self):
        counts["event waits"] += 1

    def record(self, stream):
        pass


class Array(numpy.ndarray):
    def set(self, values, stream):
        self[...] = values


def wait_for_device():
    counts["device waits"] += 1


Stream.null = Stream()
runtime = types.SimpleNamespace(deviceSynchronize=wait_for_device)
library = types.SimpleNamespace(runtime=runtime, alloc_pinned_memory=bytearray)
cuda.cupy = types.SimpleNamespace(cuda=library, empty=lambda *how: numpy.empty(*how).view(Array))
cuda.Stream, cuda.Event, cuda.get_device_from_id = Stream, Event, lambda _: contextlib.ExitStack()
convert = _converter(types.SimpleNamespace(xp=cuda.cupy, device=types.SimpleNamespace(id=0)))
right, by_step = True, []
for step in range(6):
    samples = [(numpy.full((1, 4, 4), 10 * step + k, "uint8"), numpy.int32(k)) for k in range(3)]
    before = collections.Counter(counts)
    pixels, labels = convert(samples)
    right = right and pixels[:, 0, 0, 0].tolist() == [10 * step + k for k in range(3)] and labels.tolist() == [0, 1, 2]
    by_step.append(dict(counts - before))
print(json.dumps([right, by_step[-1]]))
"""


def test_a_batch_for_a_gpu_waits_for_a_stream_and_not_for_the_device() -> None:
    """Counted on stand-ins of CuPy's stream, event and device, below Chainer's own copying."""
    path = str(Path(steptime.__file__).parents[1])
    code = f"import sys\nsys.path.insert(0, {path!r})\n{COUNTED}"
    python = str(interpreter_for("chainer"))
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [True, {"event waits": 1, "stream waits": 1}]
