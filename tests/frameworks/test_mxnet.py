"""MXNet trains what the reference trains: alone, with parameter servers, and from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import SAMPLES, SIDE, photos, without_resizing
from launching import (
    LaunchResult,
    check_job,
    launch,
    launch_ok,
    printed_in,
    relative_error,
    timing_job,
    weight_error,
)

from steptime.catalog.manifest import load_manifests
from steptime.catalog.options import Tuning
from steptime.catalog.workloads.table import build_workload
from steptime.worker.samples import epoch_indices
from steptime.worker.weights import initial_weights

pytestmark = pytest.mark.framework("mxnet")


@pytest.mark.parametrize("tier", ["documented", "tuned"])
def test_a_tier_takes_effect_and_trains_what_the_oracle_trains(tmp_path: Path, tier: Tuning) -> None:
    """MXNet reports the size of its bulks and of its grouped updates; neither changes what is computed."""
    how: dict[str, Any] = {"batch": 8, "steps": 3, "optimizer": {"learning_rate": 0.02, "momentum": 0.9}}
    expected = launch_ok(tmp_path, check_job("reference", "single", "mlp", **how), preloaded=True).weights[0]
    options = load_manifests()["mxnet"].tier_options(tier, "single", "cpu")
    result = launch_ok(tmp_path, check_job("mxnet", "single", "mlp", options=options, **how))
    assert weight_error(result.weights[0], expected)[0] < 1e-4
    facts = result.record("session")["facts"]
    assert facts["bulk_nodes"] == options["bulk_nodes"]
    assert facts["arrays_per_update"] == (options["arrays_per_update"] or 1)


def test_a_norm_between_convolutions_has_the_right_gradient(tmp_path: Path) -> None:
    """MXNet 1.9 with oneDNN got it wrong by a thousandth, where a convolution that blocks its channels follows."""
    how: dict[str, Any] = {"batch": 8, "steps": 1, "optimizer": {"learning_rate": 0.01, "momentum": 0.0}}
    first = initial_weights(build_workload("cifar_cnn").to_json()["layers"], 0)
    expected = launch_ok(tmp_path, check_job("reference", "single", "cifar_cnn", **how), preloaded=True).weights[0]
    found = launch_ok(tmp_path, check_job("mxnet", "single", "cifar_cnn", **how), preloaded=True).weights[0]
    for name in expected:
        assert relative_error(found[name] - first[name], expected[name] - first[name]) < 1e-4, name


def test_a_store_on_the_device_trains_what_a_store_on_the_host_trains(tmp_path: Path) -> None:
    """The kind of the store is read back from MXNet."""
    found = {}
    for memory, kind in (("host", "dist_sync"), ("device", "dist_device_sync")):
        job = check_job("mxnet", "ps_sync", "lenet5", workers=2, options={"store_memory": memory})
        result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
        assert result.record("session")["facts"]["kvstore"] == kind
        found[memory] = result.weights[0]
    assert weight_error(found["device"], found["host"])[0] < 1e-5


def test_two_bits_update_by_the_threshold_or_not_at_all(tmp_path: Path) -> None:
    """After one step without momentum a weight has moved by rate / samples times what the workers sent."""
    settings = {"learning_rate": 1.0, "momentum": 0.0}
    options = {"compression": "2bit", "compression_threshold": 0.25}
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, batch=8, steps=1, options=options, optimizer=settings)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert result.record("session")["facts"]["compression"] == "2bit"
    first = initial_weights(build_workload("lenet5").to_json()["layers"], 0)
    moved = np.concatenate([(first[name] - result.weights[0][name]).ravel() for name in first]) * 16 / 0.25
    assert set(np.unique(np.round(moved, 3))) == {-2.0, -1.0, 0.0, 1.0, 2.0}


def losses(result: LaunchResult) -> list[float]:
    """The losses of a check by worker 0."""
    found: list[float] = result.record("check")["losses"]
    return found


@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("servers", [1, 2])
def test_two_workers_give_the_weights_of_the_oracle(tmp_path: Path, servers: int, repeat: int) -> None:
    """What the servers hold is what one process computes from both shards; arrays are cut between two servers."""
    how: dict[str, Any] = {
        "batch": 8,
        "steps": 5,
        "seed": repeat,
        "optimizer": {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01},
    }
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, options={"bigarray_bound": 1000}, **how)
    result = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True)
    assert max(weight_error(result.weights[rank], expected)[0] for rank in range(2)) < 1e-4


@pytest.mark.parametrize("servers", [1, 2])
def test_steps_that_are_not_waited_for_give_the_loss_of_the_oracle(tmp_path: Path, servers: int) -> None:
    """When timed, a worker issues the next step while servers still work on the last one."""
    settings = {"learning_rate": 1e-3, "momentum": 0.9}  # keeps the loss far from zero, to which errors are relative
    how: dict[str, Any] = {"batch": 8, "steps": 40, "optimizer": settings}
    oracle = timing_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).record("steps")["loss"]
    job = timing_job("mxnet", "ps_sync", "lenet5", workers=2, **how)
    found = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True).record("steps")["loss"]
    assert relative_error(found, expected) < 1e-3


def test_the_servers_hold_weights_and_not_gradients(tmp_path: Path) -> None:
    """Guards against MXNet's update on the workers, which is now and then wrong: the store would hold gradients.

    The learning rate is so small that weights cannot leave their first values, which gradients are far from.
    """
    settings = {"learning_rate": 1e-9, "momentum": 0.0}
    job = check_job("mxnet", "ps_sync", "lenet5", workers=2, steps=2, optimizer=settings)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert result.record("session")["facts"]["updated_by"] == "server"
    first = initial_weights(build_workload("lenet5").to_json()["layers"], 0)
    assert weight_error(result.weights[0], first)[0] < 1e-6


def test_one_worker_with_a_server_trains_like_a_worker_alone(tmp_path: Path) -> None:
    """The baseline of a scaling curve."""
    alone, served = (
        losses(launch_ok(tmp_path, check_job("mxnet", strategy, "lenet5", steps=3), servers=servers, preloaded=True))
        for strategy, servers in (("single", 0), ("ps_sync", 1))
    )
    assert relative_error(served, alone) < 1e-6


ADAMW = {"name": "adamw", "learning_rate": 0.02, "weight_decay": 0.1, "epsilon": 0.01}


@pytest.fixture(scope="module")
def started_as_a_users(tmp_path_factory: pytest.TempPathFactory) -> LaunchResult:
    """A launch all of whose processes import MXNet themselves."""
    job = check_job("mxnet", "ps_sync", "lenet5", steps=3, optimizer=ADAMW)
    return launch_ok(tmp_path_factory.mktemp("served"), job, servers=2)


def test_a_server_that_is_started_as_a_users_updates_by_adamw(tmp_path: Path, started_as_a_users: LaunchResult) -> None:
    """Its import of MXNet never ends, so that it lacks names which a server that is forked for a test has."""
    alone = check_job("mxnet", "single", "lenet5", steps=3, optimizer=ADAMW)
    expected = launch_ok(tmp_path, alone, preloaded=True).weights[0]
    assert weight_error(started_as_a_users.weights[0], expected)[0] < 1e-5


def test_servers_and_scheduler_end_by_themselves(started_as_a_users: LaunchResult) -> None:
    """After the last worker has left, with nothing to complain about."""
    assert [started_as_a_users.stderr[name] for name in ("server-0", "server-1", "scheduler-0")] == ["", "", ""]
    assert started_as_a_users.outcome.wall_s < 30


def test_asynchronous_workers_lower_the_loss(tmp_path: Path) -> None:
    """There is no fixed answer, since each worker's gradient is applied when it comes.

    The rate is small and there is no momentum: gradients that come many steps late must not overshoot.
    """
    settings = {"learning_rate": 0.01, "momentum": 0.0}
    job = check_job("mxnet", "ps_async", "lenet5", workers=2, steps=40, batch=16, optimizer=settings)
    job["loader"]["distinct_batches"] = 1
    found = losses(launch_ok(tmp_path, job, workers=2, servers=2, preloaded=True))
    assert np.mean(found[-10:]) < 0.5 * found[0]


@pytest.mark.parametrize("servers", [1, 2])
def test_asynchronous_updates_are_late_by_those_of_the_other_worker(tmp_path: Path, servers: int) -> None:
    """Every timed update is counted once, and some came after another's, since both train at the same time."""
    job = timing_job("mxnet", "ps_async", "lenet5", workers=2, batch=16, warmup_steps=4, steps=40)
    result = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True)
    found = [result.record("steps", f"worker-{rank}")["staleness"] for rank in range(2)]
    assert [sum(counts.values()) for counts in found] == [41, 41]  # with the step that lines the workers up
    assert all(int(late) >= 0 for counts in found for late in counts)
    assert sum(int(late) * count for counts in found for late, count in counts.items()) > 0


def test_updates_of_one_asynchronous_worker_are_never_late(tmp_path: Path) -> None:
    """Its own updates do not count."""
    job = timing_job("mxnet", "ps_async", "lenet5", batch=16, warmup_steps=2, steps=20)
    assert launch_ok(tmp_path, job, servers=1, preloaded=True).record("steps")["staleness"] == {"0": 21}


def test_updates_that_are_made_together_have_no_staleness(tmp_path: Path) -> None:
    """The servers wait for all workers."""
    job = timing_job("mxnet", "ps_sync", "lenet5", workers=2, steps=3)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert result.record("steps")["staleness"] is None


def test_counting_does_not_change_what_is_trained(tmp_path: Path) -> None:
    """One asynchronous worker trains like a worker alone, its servers' momentum included."""
    settings = {"learning_rate": 0.02, "momentum": 0.9, "weight_decay": 0.01}
    single, served = (check_job("mxnet", each, "lenet5", optimizer=settings) for each in ("single", "ps_async"))
    expected = launch_ok(tmp_path, single, preloaded=True).weights[0]
    found = launch_ok(tmp_path, served, servers=2, preloaded=True).weights[0]
    assert weight_error(found, expected)[0] < 1e-5


def test_the_number_of_helpers_does_not_change_what_is_trained_on(tmp_path: Path) -> None:
    """Crops and flips are drawn in the order of the samples."""
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    found = []
    for processes in (0, 3):
        loader = photos(tmp_path, processes=processes)
        job = timing_job("mxnet", "single", "lenet5", loader=loader, batch=4, steps=7, **shape)
        found.append(launch_ok(tmp_path, job, preloaded=True).record("steps")["loss"])
    assert found[0] == found[1]


def loaded(folder: Path, loader: dict[str, Any], batches: int) -> np.ndarray:
    """Return the inputs of the first batches of four samples, as MXNet's loader gives them to worker 1 of 2."""
    job = {"loader": loader, "workload": {"input_shape": (3, SIDE, SIDE), "loss": ""}, "batch_per_worker": 4}
    job.update(seed=5, device="cpu")
    code = """
import types
import mxnet, numpy
from steptime.libraries.mxnet.loader import open_mxnet_batches
feed = open_mxnet_batches(job, types.SimpleNamespace(rank=1, workers=2), mxnet.cpu())
numpy.save(path, numpy.concatenate([next(feed)[0].asnumpy() for _ in range(batches)]))
print("null")
"""
    printed_in("mxnet", code, job=job, batches=batches, path=str(folder / "loaded.npy"))
    inputs: np.ndarray = np.load(folder / "loaded.npy")
    return inputs


def test_crops_and_flips_are_drawn_anew_in_every_epoch(tmp_path: Path) -> None:
    """On a slope from left to right, the first column says where the crop began and whether it was flipped."""
    slope = np.broadcast_to(np.arange(SIDE + 4, dtype=np.uint8)[None, :, None] * 6, (SIDE + 4, SIDE + 4, 3))
    loader = photos(tmp_path, processes=0, pixels=slope, **without_resizing(SIDE + 4, SIDE + 4))
    inputs = loaded(tmp_path, loader, 10)
    rising = inputs[:, 0, :, -1].mean(axis=1) > inputs[:, 0, :, 0].mean(axis=1)
    starts = np.round((np.where(rising, inputs[:, 0, 16, 0], inputs[:, 0, 16, -1]) * 0.25 + 0.5) * 255 / 6)
    assert 10 < rising.sum() < 30
    assert set(starts) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("processes", [0, 2])
def test_an_empty_photograph_ends_both_workers_and_is_named(tmp_path: Path, processes: int) -> None:
    """Worker 1 meets it; worker 0 and the server, which wait for its gradients, are ended long before the limit."""
    broken = tmp_path / f"{int(epoch_indices(SAMPLES, 0, 0, 1, 2)[0])}.jpg"
    shape = {"input_shape": (3, SIDE, SIDE), "classes": 10}
    loader = photos(tmp_path, processes=processes)
    broken.write_bytes(b"")
    job = timing_job("mxnet", "ps_sync", "lenet5", loader=loader, workers=2, batch=2, steps=8, **shape)
    result = launch(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert not result.outcome.ok
    assert str(broken) in result.record("error", "worker-1")["message"]
    assert result.outcome.wall_s < 30


def test_a_precision_that_mxnet_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("mxnet", "single", "lenet5", steps=1, precision="bf16"), preloaded=True)
    assert "set precision to fp32" in result.record("error")["message"]


def test_a_device_that_this_mxnet_lacks_is_refused(tmp_path: Path) -> None:
    """The message says that another build is needed."""
    result = launch(tmp_path, check_job("mxnet", "single", "lenet5", steps=1, device="cuda"), preloaded=True)
    assert "was built without CUDA" in result.record("error")["message"]


MIXED = """
import json, sys
import mxnet, numpy
from steptime.libraries.mxnet import network, startup
layer = {"name": "fc", "kind": "linear", "inputs": ["input"], "attributes": {"out_features": 3, "bias": False},
         "parameters": [{"name": "fc.weight", "role": "weight"}], "input_shapes": [[4]], "output_shape": [3]}
workload = {"loss": "softmax_cross_entropy", "input_shape": [4], "layers": [layer]}
def gradient(scale):
    bound = network.BoundWorkload(workload, 2, mxnet.cpu(), 0.0, scale)
    bound.set_weights({"fc.weight": numpy.arange(12, dtype="float32").reshape(3, 4)})
    bound.backpropagate(mxnet.nd.ones((2, 4)), mxnet.nd.array([0, 1]))
    return bound.gradients["fc.weight"].asnumpy(), bound.losses.asnumpy()
job = {"precision": "fp16", "device": "cuda"}
(plain, loss), (scaled, same) = gradient(1.0), gradient(startup.loss_scale(job))
startup.use_precision(job)
losses, _ = network._symbols(workload, 0.0)
nodes = json.loads(losses.tojson(remove_amp_cast=False))["nodes"]
casts = [node["attrs"]["dtype"] for node in nodes if node["op"] == "amp_cast"]
print(json.dumps([float(abs(scaled - 1024 * plain).max()), float(abs(loss - same).max()), casts]))
"""


def test_half_precision_casts_in_front_of_products_and_scales_gradients_but_no_loss():
    scaled, loss, casts = printed_in("mxnet", MIXED)

    assert scaled < 1e-2
    assert loss < 1e-6
    assert casts.count("float16") == 2
