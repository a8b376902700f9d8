"""TensorFlow trains what the reference trains: alone, around a ring, and from files."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ablating import breakdown
from image_files import PHOTO, SIDE, digits, photos, without_resizing
from launching import (
    LaunchResult,
    check_job,
    interpreter_for,
    launch,
    launch_ok,
    relative_error,
    timing_job,
    weight_error,
)

import steptime
from steptime.catalog.workloads.layers import Network

pytestmark = pytest.mark.framework("tensorflow")


def losses(result: LaunchResult, worker: int = 0) -> list[float]:
    """The losses of a check, by one worker."""
    found: list[float] = result.record("check", f"worker-{worker}")["losses"]
    return found


def test_dropout_differs_from_step_to_step(tmp_path: Path) -> None:
    """On one and the same batch, with a learning rate that changes nothing."""
    net = Network((6,))
    net.linear("fc", net.dropout("dropout", net.input, 0.5), 3)
    still = {"learning_rate": 1e-30, "momentum": 0.0}
    job = check_job("tensorflow", "single", net.finish("dropped", classes=3), steps=2, optimizer=still)
    job["workload"]["layers"][0]["attributes"]["rate"] = 0.5
    job["loader"]["distinct_batches"] = 1
    first, second = losses(launch_ok(tmp_path, job, preloaded=True))
    assert first != second


def test_mixed_precision_is_near_the_reference(tmp_path: Path) -> None:
    """Eight bits of mantissa keep the first loss to 2 %, and it is not the loss of 32 bits."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "lenet5", steps=1), preloaded=True))
    job = check_job("tensorflow", "single", "lenet5", steps=1, precision="bf16")
    found = losses(launch_ok(tmp_path, job, preloaded=True))
    assert 1e-6 < relative_error(found[0], expected[0]) < 2e-2


def test_xla_trains_the_same(tmp_path: Path) -> None:
    """The compiled step is another program for the same computation."""
    how: dict[str, Any] = {"steps": 3}
    plain, compiled = (
        launch_ok(tmp_path, check_job("tensorflow", "single", "lenet5", options=options, **how), preloaded=True)
        for options in ({}, {"xla": True})
    )
    assert weight_error(compiled.weights[0], plain.weights[0])[0] < 1e-4


@pytest.mark.parametrize(
    "options",
    [{"pack_mb": 4.0}, {"pack_mb": 0.01}, {"xla": True}, {"one_process": True}],
    ids=" ".join,
)
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, options: dict[str, Any]) -> None:
    """Every worker that holds weights has what one process computes from both shards, by whatever way."""
    how: dict[str, Any] = {"batch": 8, "steps": 5}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("tensorflow", "allreduce", "lenet5", workers=2, options=options, **how)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert max(weight_error(weights, expected)[0] for weights in result.weights.values()) < 1e-4
    facts = result.record("session")["facts"]
    assert {name: facts[name] for name in options} == options


def test_one_process_computes_for_both_workers(tmp_path: Path) -> None:
    """On the cores of both, and each tells the same ends of steps and the loss of its own batch."""
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    job = timing_job("tensorflow", "allreduce", "lenet5", workers=2, steps=6, options={"one_process": True})
    result = launch_ok(tmp_path, job, workers=2, cores=cores, preloaded=True)
    first, second = (result.record("steps", f"worker-{rank}") for rank in range(2))
    assert first["ends_s"] == second["ends_s"]
    assert len(first["ends_s"]) == 6
    assert first["loss"] != second["loss"]
    facts = result.record("session")["facts"]
    assert (facts["strategy"], facts["operations_at_once"]) == ("MirroredStrategy", 2)


def test_the_stages_of_one_process_are_those_of_two(tmp_path: Path) -> None:
    """Both workers tell of the same steps; nothing is marked, since every replica would have its own moments."""
    first, second = breakdown(tmp_path, "tensorflow", "allreduce", options={"one_process": True})
    assert set(first["stages"]) == {"input", "forward", "backward", "local", "communication", "exchange", "step"}
    assert first["stages"] == second["stages"]
    assert all(seconds > 0 for blocks in first["stages"].values() for block in blocks for seconds in block)


@pytest.mark.parametrize("onednn", ["default", "on"])
def test_onednn_is_switched_on_where_it_is_asked_for(onednn: str) -> None:
    """TensorFlow's own word for it, in a process of its own; the default is left to TensorFlow."""
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(steptime.__file__).parents[1])!r})
from steptime.libraries.tensorflow.startup import import_tensorflow
import_tensorflow(dict(threads=1, device="cpu", options=dict(onednn={onednn!r})), 0)
from tensorflow.python.util import _pywrap_util_port
print(os.environ.get("TF_ENABLE_ONEDNN_OPTS"), _pywrap_util_port.IsMklEnabled())
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    command = [str(interpreter_for("tensorflow")), "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    said, enabled = done.stdout.split()
    assert said == {"default": "None", "on": "1"}[onednn]
    assert enabled == "True" or onednn == "default"


def test_a_worker_reports_the_loss_of_its_own_batch(tmp_path: Path) -> None:
    """And not the share of it that is differentiated, nor the other worker's."""
    both = check_job("tensorflow", "allreduce", "lenet5", workers=2, steps=1)
    result = launch_ok(tmp_path, both, workers=2, preloaded=True)
    job = check_job("tensorflow", "single", "lenet5", steps=1)
    alone = losses(launch_ok(tmp_path, job, preloaded=True))
    assert losses(result) == alone
    assert losses(result, worker=1) != alone


def test_a_proxy_does_not_come_between_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that leads nowhere would keep them from ever meeting."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    launch_ok(tmp_path, timing_job("tensorflow", "allreduce", "lenet5", workers=2, steps=2), workers=2)


@pytest.mark.parametrize("input_shape", [(1, 28, 28), (784,)], ids=["images", "flat"])
def test_arrays_are_loaded(tmp_path: Path, input_shape: tuple[int, ...]) -> None:
    """For several epochs, with a batch that leaves a rest, for workloads with and without images."""
    net = Network(input_shape)
    net.linear("fc", net.flatten("flatten", net.input), 10)
    job = timing_job(
        "tensorflow", "single", net.finish("one_layer", classes=10), loader=digits(tmp_path), batch=5, steps=8
    )
    assert np.isfinite(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])


WHOLE = without_resizing(SIDE + 9, SIDE + 20)


@pytest.mark.parametrize(("processes", "cut"), [(0, WHOLE), (2, {})], ids=["as they are", "resized"])
def test_photographs_are_loaded_by_both_workers(tmp_path: Path, processes: int, cut: dict[str, Any]) -> None:
    """With one thread and with two, which the session's facts say."""
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE + 9, SIDE + 20, 3), dtype=np.uint8)
    loader = photos(tmp_path, processes=processes, pixels=pixels, **cut)
    job = timing_job("tensorflow", "allreduce", "lenet5", loader=loader, workers=2, batch=2, steps=8, **PHOTO)
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert np.isfinite(result.record("steps", "worker-1")["loss"])
    assert result.record("session")["facts"]["loader_threads"] == processes


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(tmp_path: Path) -> None:
    """The message says what to choose instead; skipped where there is one."""
    job = check_job("tensorflow", "single", "lenet5", steps=1)
    result = launch(tmp_path, {**job, "device": "cuda"}, preloaded=True)
    if result.outcome.ok:
        pytest.skip("this interpreter's tensorflow sees a GPU")
    assert "choose the device 'cpu'" in result.record("error")["message"]


AHEAD = """
import sys, types
sys.path.insert(0, sys.argv[1])
from steptime.libraries.tensorflow.startup import import_tensorflow
job = {"threads": 1, "device": "cuda", "precision": "fp32", "options": {}}
try:
    import_tensorflow(job, 0)
except RuntimeError:
    pass  # no GPU; the threads are set before it is looked for
import tensorflow as tf
threads = tf.config.threading.get_inter_op_parallelism_threads()
(processor,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
from steptime.libraries.tensorflow.loader import NativeBatches, batches_of
loader = types.SimpleNamespace(_device="/CPU:1")
copied = NativeBatches._prefetched(loader, tf.data.Dataset.range(int(sys.argv[2])))
print(threads, sum(int(each) for each in copied), next(iter(copied)).device.rsplit("/", 1)[1])
"""


def test_batches_are_copied_ahead_to_another_device_with_a_thread_more() -> None:
    """Between two parts of the processor, by the threads that a job for a GPU gets."""
    command = [str(interpreter_for("tensorflow")), "-c", AHEAD, str(Path(steptime.__file__).parents[1]), "500"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.split(maxsplit=2) == ["2", str(sum(range(500))), "device:CPU:1\n"]


@pytest.mark.cuda
def test_a_gpu_trains_what_the_reference_trains(tmp_path: Path) -> None:
    """LeNet-5's first loss to 1e-3 (a GPU may round products to 19 bits), and the last to 1e-2."""
    expected = losses(launch_ok(tmp_path, check_job("reference", "single", "lenet5")))
    result = launch(tmp_path, check_job("tensorflow", "single", "lenet5", device="cuda"), preloaded=True)
    if not result.outcome.ok and "sees no GPU" in result.record("error")["message"]:
        pytest.skip("this interpreter's tensorflow sees no GPU")
    assert relative_error(losses(result)[0], expected[0]) < 1e-3
    assert relative_error(losses(result)[-1], expected[-1]) < 1e-2
