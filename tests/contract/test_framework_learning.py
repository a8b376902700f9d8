"""Every framework that learns: evaluation, the learning rate, checkpoints and optimizers are those of the reference.

A script in each worker's session (``scripted_adapter.py``) does between steps what the loop of training does. Workers
of an inexact strategy have no answer that the reference could give; there is one of them.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import LaunchResult, check_job, interpreter_for, launch_ok, relative_error, weight_error
from shared_libraries import shares_library

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.layers import Network, Workload
from steptime.worker.weights import initial_weights

STEPS = 6
LOSS, WEIGHTS, OUTPUTS = 1e-3, 1e-3, 2e-3
"""How far losses, weights and outputs may be from the reference's after six steps."""
SETTINGS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"learning_rate": 0.02, "weight_decay": 0.01, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
    "adamw": {"learning_rate": 0.02, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
    "lars": {"learning_rate": 1.0, "momentum": 0.9, "weight_decay": 0.01, "trust_coefficient": 0.05},
    "adamw of matrices": {
        "name": "adamw",
        "learning_rate": 0.02,
        "weight_decay": 1.0,
        "decayed": "matrices",
        "beta1": 0.8,
        "beta2": 0.95,
        "epsilon": 1e-3,
    },
    "clipped sgd": {"name": "sgd", "learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.1},
    "lamb": {"learning_rate": 0.02, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
}
"""Of each optimizer: values that differ from its defaults, and an epsilon whose place can be seen.

Without decay of scales, and with every gradient shortened, they are settings of their own."""
FURTHER = {"adamw of matrices": "decayed", "clipped sgd": "clip_norm"}
"""What a framework must obey for these."""
LEARNING = [
    (name, strategy)
    for name, manifest in load_manifests().items()
    for strategy, support in manifest.strategies.items()
    if manifest.learning and support.learning
]
COMPARED = [
    (name, strategy)
    for name, strategy in LEARNING
    if STRATEGIES[strategy].exact or load_manifests()[name].strategies[strategy].min_workers == 1
]
_ALL_OPTIMIZERS = [
    (name, strategy, optimizer)
    for name, strategy in COMPARED
    for optimizer in load_manifests()[name].optimizers
    if optimizer not in load_manifests()[name].strategies[strategy].without_optimizers
] + [
    (name, strategy, optimizer)
    for name, strategy in COMPARED
    for optimizer, setting in FURTHER.items()
    if load_manifests()[name].without_training_setting(setting, strategy) is None
]
_FIRST, _LAST = dict(reversed(COMPARED)), dict(LEARNING)
FROZEN_IN = [(name, strategy) for name, strategy in LEARNING if strategy in {_FIRST[name], _LAST[name]}]
"""What these launches alone show is that of a framework's network and rate: its first and its last strategy."""


def _stands_for_all(name: str, strategy: str) -> bool:
    """Whether a framework's strategy has every optimizer: the first one, where no other framework tries its library."""
    return strategy == _FIRST[name] and not shares_library(name)


def _is_tried(name: str, strategy: str, optimizer: str, turn: int) -> bool:
    """Whether an optimizer is tried: elsewhere Adam, a third of the rest by turns, and SGD where no tuned worker is."""
    plain = optimizer == "sgd" and not STRATEGIES[strategy].exact
    return _stands_for_all(name, strategy) or optimizer == "adam" or plain or turn % 3 == 0


OPTIMIZED = [case for turn, case in enumerate(_ALL_OPTIMIZERS) if _is_tried(*case, turn)]


def marked(cases: list[tuple[str, ...]]) -> list[object]:
    """Mark each case with its framework, for ``-m``."""
    return [pytest.param(*case, marks=pytest.mark.framework(case[0]), id="-".join(case)) for case in cases]


def small_network() -> Workload:
    """Running statistics that matter, then dropout, whose masks cannot change them."""
    net = Network((2, 8, 8))
    x = net.relu(
        "relu", net.batch_norm("norm", net.conv2d("conv", net.input, 6, 3, padding=1, bias=False), momentum=0.4)
    )
    x = net.dropout("dropout", net.flatten("flatten", net.max_pool("pool", x, 2, stride=2)), 0.5)
    net.linear("output", x, 5)
    return net.finish("small_network", classes=5)


def workers_of(name: str, strategy: str) -> int:
    support = load_manifests()[name].strategies[strategy]
    return 2 if STRATEGIES[strategy].exact and support.max_workers != 1 else support.min_workers


def job_of(name: str, strategy: str, optimizer: str = "sgd", workers: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a job of six steps on two batches in turn."""
    settings = {"name": optimizer, **SETTINGS[optimizer]}
    job = check_job(name, strategy, small_network(), steps=STEPS, workers=workers, optimizer=settings, **fields)
    return {**job, "loader": {"kind": "synthetic", "distinct_batches": 2}}


def launched(folder: Path, job: dict[str, Any], script: list[tuple[int, str, Any]], workers: int) -> LaunchResult:
    servers = int(STRATEGIES[job["strategy"]].servers)
    return launch_ok(folder, job, workers=workers, servers=servers, script=script, preloaded=True)


Launches = Callable[..., LaunchResult]
TRAINED = [
    (2, "outputs", "between"),
    (3, "set_learning_rate", 0.03),
    (4, "state", "state"),
    (5, "outputs", "end"),
    (5, "weights", "end"),
]
"""Six steps, of which the last three have another rate."""
FROZEN = [
    (0, "set_learning_rate", 0.0),
    (3, "weights", "frozen"),
    (3, "outputs", "once"),
    (3, "outputs", "again"),
    (3, "set_learning_rate", 0.1),
    (4, "weights", "moved"),
]
"""Three steps that change nothing but the running statistics, then one that changes the weights."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """A launch with the script ``TRAINED`` and smoothed labels, once for each framework, strategy and optimizer."""

    @cache
    def run(name: str, strategy: str, optimizer: str) -> LaunchResult:
        workers = workers_of(name, strategy)
        job = {**job_of(name, strategy, optimizer, workers), "label_smoothing": 0.1}
        return launched(tmp_path_factory.mktemp("trained"), job, TRAINED, workers)

    return run


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """What the reference comes to with as many workers; it evaluates at the end only."""

    @cache
    def run(optimizer: str, workers: int, adam_epsilon: str, rate_in_velocity: bool) -> LaunchResult:
        strategy = "allreduce" if workers > 1 else "single"
        job = {**job_of("reference", strategy, optimizer, workers), "label_smoothing": 0.1}
        job["options"] = {**job["options"], "adam_epsilon": adam_epsilon, "rate_in_velocity": rate_in_velocity}
        script = [entry for entry in TRAINED if entry[2] != "between"]
        return launched(tmp_path_factory.mktemp("expected"), job, script, workers)

    def of(name: str, strategy: str, optimizer: str) -> LaunchResult:
        manifest = load_manifests()[name]
        return run(optimizer, workers_of(name, strategy), manifest.adam_epsilon, manifest.rate_in_velocity)

    return of


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """A launch with the script ``FROZEN`` and dropout in training, once for each framework and strategy."""

    @cache
    def run(name: str, strategy: str, workers: int) -> LaunchResult:
        job = {**job_of(name, strategy, workers=workers), "workload": small_network().to_json()}
        return launched(tmp_path_factory.mktemp("frozen"), job, FROZEN, workers)

    return lambda name, strategy, workers=None: run(name, strategy, workers or workers_of(name, strategy))


def frozen_reference(frozen: Launches, name: str, strategy: str) -> LaunchResult:
    workers = workers_of(name, strategy)
    return frozen("reference", "allreduce" if workers > 1 else "single", workers)


def weights_seen(result: LaunchResult, moment: str) -> dict[int, dict[str, np.ndarray]]:
    """Return the weights that the script kept under a name, of each worker that holds any."""
    start = f"{moment}/"
    kept = {
        rank: {key.removeprefix(start): array for key, array in seen.items() if key.startswith(start)}
        for rank, seen in result.seen.items()
    }
    found = {rank: weights for rank, weights in kept.items() if weights}
    assert found, "no worker held weights"
    return found


def preferred(name: str, strategy: str) -> str:
    """The optimizer with most state that a framework's strategy has of those that are simple."""
    return "adam" if (name, strategy, "adam") in OPTIMIZED else "sgd"


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(FROZEN_IN))
def test_an_evaluation_drops_nothing(trained_framework, name, strategy, frozen):
    for seen in frozen(trained_framework, strategy).seen.values():
        assert np.array_equal(seen["once"], seen["again"])


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked([each for each in FROZEN_IN if each in COMPARED]))
def test_an_evaluation_uses_the_workers_running_statistics(trained_framework, name, strategy, frozen):
    result, truth = frozen(trained_framework, strategy), frozen_reference(frozen, name, strategy)
    for rank, seen in truth.seen.items():
        assert relative_error(result.seen[rank]["once"], seen["once"]) < OUTPUTS


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(FROZEN_IN))
def test_a_learning_rate_of_zero_freezes_the_weights(trained_framework, name, strategy, frozen):
    layers = small_network().to_json()["layers"]
    first = initial_weights(layers, 0)
    for weights in weights_seen(frozen(trained_framework, strategy), "frozen").values():
        for key, array in weights.items():
            assert np.array_equal(array, first[key]), key


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(FROZEN_IN))
def test_a_changed_rate_counts_from_the_next_step_on(trained_framework, name, strategy, frozen):
    result = frozen(trained_framework, strategy)
    before = weights_seen(result, "frozen")
    for rank, weights in weights_seen(result, "moved").items():
        assert all(np.abs(array - before[rank][key]).max() > 0 for key, array in weights.items())


@pytest.mark.sampled("name", "optimizer")
@pytest.mark.parametrize(("name", "strategy", "optimizer"), marked(OPTIMIZED))
@pytest.mark.usefixtures("trained_framework")
def test_each_optimizer_trains_what_the_reference_trains(name, strategy, optimizer, trained, expected):
    """With smoothed labels, an evaluation in between, and another learning rate after three steps."""
    result, truth = trained(name, strategy, optimizer), expected(name, strategy, optimizer)
    for rank in range(workers_of(name, strategy)):
        worker = f"worker-{rank}"
        found = result.record("check", worker)["losses"]
        assert relative_error(found, truth.record("check", worker)["losses"]) < LOSS
    reference = weights_seen(truth, "end")[0]
    for weights in weights_seen(result, "end").values():
        distance, where = weight_error(weights, reference)
        assert distance < WEIGHTS, where


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(COMPARED))
def test_an_evaluation_leaves_running_statistics_as_they_were(trained_framework, name, strategy, trained, expected):
    optimizer = preferred(name, strategy)
    result, truth = trained(trained_framework, strategy, optimizer), expected(name, strategy, optimizer)
    for rank, seen in truth.seen.items():
        assert relative_error(result.seen[rank]["end"], seen["end"]) < OUTPUTS


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(COMPARED))
def test_a_launch_goes_on_from_a_state_as_if_it_had_never_ended(trained_framework, name, strategy, trained, tmp_path):
    optimizer, workers = preferred(name, strategy), workers_of(name, strategy)
    whole = trained(trained_framework, strategy, optimizer)
    if not list(whole.folder.glob("state-*.npz")):
        pytest.skip(f"{name} {strategy} keeps no state")
    script = [(0, "set_state", str(whole.folder / "state")), (0, "set_learning_rate", 0.03), (1, "outputs", "end")]
    job = {**job_of(name, strategy, optimizer, workers), "label_smoothing": 0.1}
    rest = launched(tmp_path, job, script, workers)
    for rank in range(workers):
        worker = f"worker-{rank}"
        after = whole.record("check", worker)["losses"][4:]
        assert relative_error(rest.record("check", worker)["losses"][:2], after) < 1e-5
        if rank in whole.seen:
            assert relative_error(rest.seen[rank]["end"], whole.seen[rank]["end"]) < 1e-5


@pytest.mark.framework("tensorflow")
def test_one_process_of_tensorflow_learns_for_all_workers(expected, tmp_path):
    """Each worker's outputs are those of its own batch and running statistics."""
    interpreter_for("tensorflow")
    job = job_of("tensorflow", "allreduce", "adam", 2, options={"one_process": True})
    result = launched(tmp_path, {**job, "label_smoothing": 0.1}, TRAINED, 2)
    truth = expected("tensorflow", "allreduce", "adam")
    for rank, seen in truth.seen.items():
        assert relative_error(result.seen[rank]["end"], seen["end"]) < OUTPUTS
