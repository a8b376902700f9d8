"""Every framework computes every kind of layer as the reference does; a new framework is tested by being there."""

from collections.abc import Callable
from typing import Any

import pytest
from launching import LaunchResult, check_job, launch_ok, relative_error, update_error, weight_error
from layer_workloads import OF_EVERY_KIND, OF_TRANSFORMERS, WORKLOADS
from shared_libraries import outermost_strategies, shares_library, tried_strategies

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.options import Tuning
from steptime.catalog.workloads import blocks, kinds
from steptime.catalog.workloads.layers import Workload
from steptime.worker.weights import initial_weights

MANIFESTS = load_manifests()
OTHERS = [name for name in MANIFESTS if name != "reference"]
OUTERMOST = [
    pytest.param(name, strategy, marks=pytest.mark.framework(name), id=f"{name}-{strategy}")
    for name in OTHERS
    for strategy in outermost_strategies(name)
]


def tiers(strategy: str) -> list[Any]:
    """Every framework with ``strategy`` in every tier; one whose tiers have the same options is there once."""
    found = []
    for name, manifest in MANIFESTS.items():
        if name == "reference" or strategy not in manifest.strategies:
            continue
        documented, tuned = (manifest.tier_options(tier, strategy, "cpu") for tier in TIERS)
        found += [
            pytest.param(name, tier, marks=pytest.mark.framework(name), id=f"{name}-{tier}")
            for tier in TIERS[: 2 if tuned != documented else 1]
        ]
    return found


TIERS: list[Tuning] = ["documented", "tuned"]
ONE_OF_EACH = (OF_EVERY_KIND[0], OF_TRANSFORMERS[0])
"""What tuned options change is no layer's own: they are tried with a network of every kind and a transformer.

Of a shared library, whose options another framework tries with both, with one of them by turns."""
WITH_OWN_LAYERS = [pytest.param(name, marks=pytest.mark.framework(name)) for name in OTHERS if not shares_library(name)]


def in_tiers() -> list[Any]:
    """Every framework with every workload; with one of each kind where options are tuned or a library is shared."""
    return [
        pytest.param(*each.values, workload, marks=each.marks, id=f"{each.id}-{workload.name}")
        for turn, each in enumerate(tiers("single"))
        for workload in WORKLOADS
        if workload.name in tried_with(turn, *each.values)
    ]


def tried_with(turn: int, name: str, tier: str) -> tuple[str, ...]:
    """The names of the workloads that a framework trains in a tier."""
    if shares_library(name):
        return ONE_OF_EACH if tier == "documented" else (ONE_OF_EACH[turn // 2 % 2],)
    return tuple(each.name for each in WORKLOADS) if tier == "documented" else ONE_OF_EACH


TUNED = [
    pytest.param(name, strategy, marks=pytest.mark.framework(name), id=f"{name}-{strategy}")
    for name, manifest in MANIFESTS.items()
    for strategy in tried_strategies(name)
    if manifest.tier_options("tuned", strategy, "cpu") != manifest.tier_options("documented", strategy, "cpu")
]


def may_be_forked(name: str, tier: str) -> bool:
    """Whether none of the options acts when the framework is imported."""
    return tier == "documented" or MANIFESTS[name].preloading.whatever_options


SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
HOW: dict[str, Any] = {"batch": 6, "steps": 3, "optimizer": SETTINGS}
RESNET: dict[str, Any] = {"input_shape": (3, 64, 64), "batch": 4}

Expected = Callable[..., LaunchResult]


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """A function that returns what the reference computes, launched once per workload and number of shards."""
    results: dict[tuple[str, int], LaunchResult] = {}

    def ask(workload: str | Workload, shards: int = 1, **how: Any) -> LaunchResult:
        key = (workload if isinstance(workload, str) else workload.name, shards)
        if key not in results:
            job = check_job("reference", "single", workload, options={"shards": shards, "bits": 64}, **how)
            results[key] = launch_ok(tmp_path_factory.mktemp("expected"), job, preloaded=True)
        return results[key]

    return ask


@pytest.mark.parametrize("workload", [each for each in WORKLOADS if each.name in OF_EVERY_KIND], ids=lambda it: it.name)
def test_a_workload_of_every_kind_has_every_kind(workload):
    assert {layer.kind for layer in workload.layers} == set(kinds.KINDS) - kinds.OF_TRANSFORMERS


def test_workloads_of_transformers_have_every_kind_of_theirs():
    found = {layer.kind for each in WORKLOADS if each.name in OF_TRANSFORMERS for layer in each.layers}
    assert found >= kinds.OF_TRANSFORMERS


@pytest.mark.sampled("name", "workload")
@pytest.mark.parametrize(("name", "tier", "workload"), in_tiers())
def test_layers_train_as_in_the_reference(  # noqa: PLR0913, PLR0917 - parameters and fixtures
    trained_framework, name, tier, workload, expected, tmp_path
):
    """With momentum and weight decay, of biases and scales too, losses and weights agree to 1e-4 after three steps."""
    if workload.name in OF_TRANSFORMERS and MANIFESTS[name].without_transformers:
        pytest.skip(MANIFESTS[name].without_transformers)
    options = MANIFESTS[name].tier_options(tier, "single", "cpu")
    job = check_job(name, "single", workload, options=options, **HOW)
    found = launch_ok(tmp_path, job, preloaded=may_be_forked(name, tier))
    truth = expected(workload, **HOW)
    assert weight_error(found.weights[0], truth.weights[0])[0] < 1e-4
    assert relative_error(found.record("check")["losses"], truth.record("check")["losses"]) < 1e-4
    assert found.record("check")["output_shape"] == [6, *workload.output_shape]
    assert found.record("check")["parameters"] == workload.parameter_count


@pytest.mark.costly
@pytest.mark.parametrize("name", WITH_OWN_LAYERS)
def test_a_small_resnet50_trains_as_in_the_reference(trained_framework, name, expected, tmp_path):
    """Two losses to 1e-4 and the third one to 1e-2, with as many parameters as are published."""
    job = check_job(name, "single", "resnet50", steps=3, **RESNET)
    job["schedule"]["save_weights"] = False
    check = launch_ok(tmp_path, job, preloaded=True).record("check")
    truth = expected("resnet50", steps=3, **RESNET).record("check")["losses"]
    assert relative_error(check["losses"][:2], truth[:2]) < 1e-4
    assert relative_error(check["losses"][-1], truth[-1]) < 1e-2
    assert check["parameters"] == 25_557_032
    assert check["output_shape"] == [4, 1000]


@pytest.mark.costly
@pytest.mark.parametrize(("name", "strategy"), TUNED)
def test_two_tuned_workers_give_the_weights_of_the_reference(trained_framework, name, strategy, expected, tmp_path):
    """After three steps with momentum and weight decay."""
    options = MANIFESTS[name].tier_options("tuned", strategy, "cpu")
    job = check_job(name, strategy, "lenet5", workers=2, options=options, **HOW)
    servers = 1 if STRATEGIES[strategy].servers else 0
    found = launch_ok(
        tmp_path, job, workers=2, servers=servers, time_limit_s=280, preloaded=may_be_forked(name, "tuned")
    )
    truth = expected("lenet5", 2, **HOW).weights[0]
    assert max(weight_error(weights, truth)[0] for weights in found.weights.values()) < 1e-4


@pytest.mark.sampled("name")
@pytest.mark.parametrize(("name", "strategy"), OUTERMOST)
def test_two_workers_of_a_short_resnet_make_the_update_of_the_reference(
    trained_framework, name, strategy, expected, tmp_path
):
    """After one step, of whose update a worker's missing gradient would be a half and rounding is little.

    It has five of ResNet-50's blocks, of every form: 32 MB of gradients in 62 arrays, more than a bucket of 25 MiB.

    Rounding moves values across the kink of a ReLU, which ones depends on the processor, and batch norm spreads that:
    an offset that starts at zero may be 1 % off.
    """
    workload = blocks._resnet("short_resnet", (2, 1, 1, 1), RESNET["input_shape"], 10)
    truth = expected(workload, 2, steps=1, batch=RESNET["batch"]).weights[0]
    job = check_job(name, strategy, workload, workers=2, steps=1, batch=RESNET["batch"])
    servers = 1 if STRATEGIES[strategy].servers else 0
    result = launch_ok(tmp_path, job, workers=2, servers=servers, time_limit_s=280, preloaded=True)
    first = initial_weights(job["workload"]["layers"], 0)
    assert result.weights
    assert max(update_error(weights, truth, first)[0] for weights in result.weights.values()) < 0.02
