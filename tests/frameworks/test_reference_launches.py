"""The reference as the oracle: one process, several shards in one process, and real processes over sockets."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from launching import check_job, launch, launch_ok, timing_job, weight_errors

from steptime.catalog.workloads.layers import Network, Workload
from steptime.frameworks.reference.collectives import connect
from steptime.frameworks.reference.network import ReferenceNetwork
from steptime.launchers.base import free_ports
from steptime.worker.process_context import ProcessContext
from steptime.worker.samples import synthetic_batches
from steptime.worker.weights import initial_weights

STEPS = 3


def perceptron() -> Workload:
    net = Network((1, 4, 5))
    x = net.tanh("tanh", net.linear("fc1", net.flatten("flatten", net.input), 12))
    net.linear("fc2", x, 3)
    return net.finish("perceptron", classes=3)


def normalised() -> Workload:
    net = Network((2, 6, 6))
    x = net.relu("relu", net.batch_norm("norm", net.conv2d("conv", net.input, 4, 3)))
    net.linear("fc", net.flatten("flatten", x), 3)
    return net.finish("normalised", classes=3)


def test_the_update_is_momentum_sgd_with_weight_decay(tmp_path):
    """The formula of docs/worker-protocol.md, written out in 64 bits."""
    settings = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    job = check_job("reference", "single", perceptron(), steps=STEPS, optimizer=settings)
    weights = launch_ok(tmp_path, job, preloaded=True).weights[0]

    network = ReferenceNetwork(job["workload"], np.float64)
    network.set_weights(initial_weights(job["workload"]["layers"], 0))
    velocity = np.zeros_like(network.values)
    for inputs, targets in synthetic_batches(job, 0):
        network.backpropagate(*network.batch(inputs, targets))
        velocity = 0.9 * velocity + network.slopes + 0.01 * network.values
        network.values -= 0.1 * velocity
    assert max(weight_errors(weights, network.weights).values()) < 1e-6


def test_shards_are_one_worker_with_the_whole_batch_where_nothing_is_normalised(tmp_path):
    job = check_job("reference", "single", perceptron(), steps=1, options={"shards": 3})
    result = launch_ok(tmp_path, job, preloaded=True)

    network = ReferenceNetwork(job["workload"], np.float64)
    network.set_weights(initial_weights(job["workload"]["layers"], 0))
    shards = [synthetic_batches(job, rank)[0] for rank in range(3)]
    inputs, targets = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    network.backpropagate(*network.batch(inputs, targets))
    network.values -= 0.01 * network.slopes
    assert max(weight_errors(result.weights[0], network.weights).values()) < 1e-6


def test_each_shard_is_normalised_by_its_own_batch(tmp_path):
    """One worker of twice the batch must differ, or the oracle would not be that of two workers."""
    job = check_job("reference", "single", normalised(), steps=1, options={"shards": 2})
    result = launch_ok(tmp_path, job, preloaded=True)

    network = ReferenceNetwork(job["workload"])
    network.set_weights(initial_weights(job["workload"]["layers"], 0))
    shards = [synthetic_batches(job, rank)[0] for rank in range(2)]
    inputs, targets = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    network.backpropagate(*network.batch(inputs, targets))
    network.values -= np.float32(0.01) * network.slopes
    assert max(weight_errors(result.weights[0], network.weights).values()) > 1e-4


def test_the_loss_of_shards_is_that_of_worker_0(tmp_path):
    alone = launch_ok(tmp_path, check_job("reference", "single", normalised(), steps=1), preloaded=True)
    shards = launch_ok(
        tmp_path, check_job("reference", "single", normalised(), steps=1, options={"shards": 2}), preloaded=True
    )
    assert shards.record("check")["losses"] == alone.record("check")["losses"]


def test_all_workers_of_an_allreduce_hold_the_same_bits(tmp_path):
    job = check_job("reference", "allreduce", normalised(), steps=STEPS)
    result = launch_ok(tmp_path, job, workers=3, preloaded=True)
    assert sorted(result.weights) == [0, 1, 2]
    for rank in (1, 2):
        assert set(weight_errors(result.weights[rank], result.weights[0]).values()) == {0.0}


def test_an_allreduce_of_processes_gives_what_shards_give(tmp_path):
    processes = launch_ok(
        tmp_path, check_job("reference", "allreduce", normalised(), steps=STEPS), workers=3, preloaded=True
    )
    shards = check_job("reference", "single", normalised(), steps=STEPS, options={"shards": 3})
    expected = launch_ok(tmp_path, shards, preloaded=True)
    assert max(weight_errors(processes.weights[0], expected.weights[0]).values()) < 1e-6
    assert processes.record("check")["losses"] == pytest.approx(expected.record("check")["losses"], rel=1e-6)


def test_workers_have_batches_of_their_own(tmp_path):
    result = launch_ok(tmp_path, check_job("reference", "allreduce", perceptron(), steps=1), workers=2, preloaded=True)
    losses = [result.record("check", f"worker-{rank}")["losses"][0] for rank in (0, 1)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_training_on_one_batch_learns_it(tmp_path):
    job = timing_job("reference", "single", "lenet5", warmup_steps=2, steps=60, optimizer={"learning_rate": 0.01})
    result = launch_ok(tmp_path, job, preloaded=True)
    assert result.record("steps")["loss"] < 0.2 * result.record("warmup")["loss"]
    assert len(result.record("steps")["ends_s"]) == 60


def test_wider_numbers_give_nearly_the_same_and_not_the_same(tmp_path):
    narrow = launch_ok(tmp_path, check_job("reference", "single", "lenet5", steps=STEPS), preloaded=True).weights[0]
    wide = launch_ok(
        tmp_path, check_job("reference", "single", "lenet5", steps=STEPS, options={"bits": 64}), preloaded=True
    ).weights[0]
    assert 0 < max(weight_errors(narrow, wide).values()) < 1e-5


def test_another_precision_is_refused_by_name(tmp_path):
    result = launch(tmp_path, check_job("reference", "single", perceptron(), precision="bf16"))
    assert not result.outcome.ok
    assert "fp32 on the cpu, not in bf16 on cpu" in result.record("error")["message"]


def test_the_average_is_summed_in_the_order_of_the_ranks():
    """Float32 sums depend on their order; this one must not depend on who comes first."""
    stream = np.random.RandomState(1)
    vectors = [(10.0**rank * stream.standard_normal(5000)).astype(np.float32) for rank in range(4)]
    expected = (((vectors[0] + vectors[1]) + vectors[2]) + vectors[3]) / 4

    def average(context: ProcessContext) -> np.ndarray:
        mean, vector = connect(context), vectors[context.rank].copy()
        mean(vector)
        mean.close()
        return vector

    for vector in in_threads(average, workers=4):
        np.testing.assert_array_equal(vector, expected)


def test_a_worker_that_leaves_is_named():
    def leave_or_wait(context: ProcessContext) -> str:
        mean = connect(context)
        if context.rank == 2:
            mean.close()
            return ""
        try:
            mean(np.ones(10, dtype=np.float32))
        except ConnectionError as error:
            return str(error)
        finally:
            mean.close()
        return "no error"

    said = in_threads(leave_or_wait, workers=3)
    assert said[0] == "worker 2 closed its connection in the middle of a step"
    assert said[1] == "worker 0 closed its connection in the middle of a step"


def in_threads(work: Callable[[ProcessContext], object], workers: int) -> list[object]:
    """Return what ``work`` returns at each place of a launch, started last rank first."""
    (port,) = free_ports(1)
    results: dict[int, object] = {}

    def run(rank: int) -> None:
        variables = {"STEPTIME_RANK": str(rank), "STEPTIME_WORKERS": str(workers)}
        context = ProcessContext({**variables, "STEPTIME_ROOT_ADDRESS": f"127.0.0.1:{port}"}, ".")
        results[rank] = work(context)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in reversed(range(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [results[rank] for rank in range(workers)]
