"""Every framework that is installed trains what the reference trains; a new one is tested by being there."""

import math
from collections.abc import Callable
from functools import cache

import pytest
from launching import TOLERANCES, LaunchResult, check_job, launch_ok, relative_error, weight_error
from shared_libraries import shares_library, tried_strategies

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests

ALLOWED = TOLERANCES["fp32"]
STEPS = 5
TOGETHER = [
    (framework, strategy)
    for framework, manifest in load_manifests().items()
    for strategy, support in manifest.strategies.items()
    if support.max_workers is None or support.max_workers > 1
]
SYNCHRONOUS = [(framework, name) for framework, name in TOGETHER if STRATEGIES[name].exact]
BASELINES = [
    (framework, name)
    for framework, name in TOGETHER
    if load_manifests()[framework].strategies[name].min_workers == 1
    and (name in tried_strategies(framework) or not STRATEGIES[name].exact)
]
ACCUMULATING = [
    (framework, name)
    for framework in load_manifests()
    for name in (*([] if shares_library(framework) else ["single"]), *tried_strategies(framework))
    if load_manifests()[framework].without_training_setting("accumulation", name) is None
]
ASYNCHRONOUS = [pair for pair in TOGETHER if pair not in SYNCHRONOUS]


def marked(pairs: list[tuple[str, ...]]) -> list[object]:
    """Mark each case with its framework, for ``-m``."""
    return [pytest.param(*pair, marks=pytest.mark.framework(pair[0]), id="-".join(pair)) for pair in pairs]


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, LaunchResult]:
    """What the reference comes to with 1 and 2 workers, in one process."""
    return {
        shards: launch_ok(
            tmp_path_factory.mktemp("expected"),
            check_job("reference", "single", "lenet5", steps=STEPS, options={"shards": shards}),
            preloaded=True,
        )
        for shards in (1, 2)
    }


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LaunchResult]:
    """A function that returns what a framework's ``single`` comes to, launched once per framework."""

    @cache
    def launched(name: str) -> LaunchResult:
        job = check_job(name, "single", "lenet5", steps=STEPS)
        return launch_ok(tmp_path_factory.mktemp("alone"), job, preloaded=True)

    return launched


def servers_of(name: str, strategy: str) -> int:
    return int(STRATEGIES[strategy].servers)


def assert_same_training(result: LaunchResult, reference: LaunchResult) -> None:
    found, truth = result.record("check"), reference.record("check")
    assert found["parameters"] == truth["parameters"] == 61_706
    assert found["output_shape"] == truth["output_shape"]
    assert relative_error(found["losses"][0], truth["losses"][0]) < ALLOWED["first_loss"]
    assert relative_error(found["losses"][-1], truth["losses"][-1]) < ALLOWED["last_loss"]
    assert result.weights, "no worker saved its weights"
    for weights in result.weights.values():
        distance, where = weight_error(weights, reference.weights[0])
        assert distance < ALLOWED["weights"], where


@pytest.mark.parametrize("name", marked([(name,) for name in load_manifests()]))
def test_one_worker_trains_what_the_reference_trains(trained_framework, name, expected, alone):
    assert_same_training(alone(name), expected[1])


@pytest.mark.parametrize(("name", "strategy"), marked(SYNCHRONOUS))
def test_two_synchronous_workers_train_what_one_does_with_both_batches(
    trained_framework, name, strategy, expected, tmp_path
):
    job = check_job(trained_framework, strategy, "lenet5", steps=STEPS, workers=2)
    servers = servers_of(trained_framework, strategy)
    result = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True)
    assert_same_training(result, expected[2])


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(ACCUMULATING))
def test_four_micro_batches_of_each_worker_train_what_whole_batches_do(
    trained_framework, name, strategy, expected, tmp_path
):
    workers = 1 if strategy == "single" else 2
    job = check_job(name, strategy, "lenet5", steps=STEPS, workers=workers, accumulation=4)
    result = launch_ok(tmp_path, job, workers=workers, servers=servers_of(name, strategy), preloaded=True)
    assert_same_training(result, expected[workers])


@pytest.mark.parametrize(("name", "strategy"), marked(ASYNCHRONOUS))
def test_two_asynchronous_workers_train(trained_framework, name, strategy, tmp_path):
    job = check_job(trained_framework, strategy, "lenet5", steps=STEPS, workers=2)
    servers = servers_of(trained_framework, strategy)
    result = launch_ok(tmp_path, job, workers=2, servers=servers, preloaded=True)
    for rank in range(2):
        losses = result.record("check", f"worker-{rank}")["losses"]
        assert len(losses) == STEPS
        assert all(map(math.isfinite, losses))


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), marked(BASELINES))
def test_one_worker_of_any_strategy_trains_like_one_alone(trained_framework, name, strategy, alone, tmp_path):
    """The baseline of a scaling curve; with nobody to talk to, there is nothing to quantise and nothing is late."""
    job = check_job(name, strategy, "lenet5", steps=STEPS)
    result = launch_ok(tmp_path, job, servers=servers_of(name, strategy), preloaded=True)
    found, truth = (each.record("check")["losses"] for each in (result, alone(name)))
    assert relative_error(found, truth) < 1e-5
