"""Every framework breaks the steps of all its strategies down as the interface of sessions has it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launching
import numpy as np
import pytest
from launching import TOLERANCES, LaunchResult, check_job, launch, launch_ok, library_workload, trial_of, weight_error

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.layers import Workload
from steptime.execution.jobs import AblationSchedule, ablation_job
from steptime.execution.run_folder import make_run_folder
from steptime.phases import NAMES, REST

MANIFESTS = load_manifests()
LENET = library_workload("lenet5")
PHASES = ["input", "h2d", "forward", "backward", "exchange", "update"]
"""What a session may mark, in the order in which a step passes it."""


def cases(keep: Callable[[str, str], bool] = lambda _framework, _strategy: True) -> list[Any]:
    """Every framework with every strategy of it that ``keep`` wants, marked with the framework, for ``-m``."""
    return [
        pytest.param(framework, strategy, marks=pytest.mark.framework(framework), id=f"{framework}-{strategy}")
        for framework, manifest in MANIFESTS.items()
        for strategy in manifest.strategies
        if keep(framework, strategy)
    ]


def left_out(name: str, strategy: str) -> dict[str, str]:
    """The stages that the manifest says the framework cannot run alone, each with the reason."""
    return MANIFESTS[name].contract.without_stages.get(strategy, {})


EVERY_WAY_OF_STEPPING = """

def run_ablation(session, job, context, records):
    import os

    import numpy

    ablated = session.ablate()
    stages = ablated.stages()
    whole = stages["exchange"] if "exchange" in stages else stages["local"]
    for _ in range(2):
        session.step()
        session.wait()
        whole()
        session.wait()
        if ablated.marks:
            ablated.marked_step(lambda phase, at_s=None: None)
        else:
            session.step()
        session.wait()
    weights = session.get_weights()
    if weights is not None:
        numpy.savez(os.path.join(context.folder, "weights-%d.npz" % context.rank), **weights)
"""
"""Replaces the ablation run in the worker half of a launch: six steps of the same training, by turns of three kinds."""


def exchanges(framework: str, strategy: str) -> bool:
    """Whether several workers of a strategy exchange gradients."""
    return MANIFESTS[framework].strategies[strategy].max_workers != 1


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, LaunchResult]:
    """What six steps of the reference come to, always on the same batch of 8, with 1 and 2 workers."""
    results = {}
    for shards in (1, 2):
        job = check_job("reference", "single", "lenet5", steps=6, options={"shards": shards})
        job["loader"]["distinct_batches"] = 1
        results[shards] = launch_ok(tmp_path_factory.mktemp("expected"), job, preloaded=True)
    return results


Launched = Callable[[str, str], LaunchResult]


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """One ablation launch of LeNet-5 for each framework and strategy, whatever the number of tests that look at it."""
    results: dict[tuple[str, str], LaunchResult] = {}

    def look(framework: str, strategy: str) -> LaunchResult:
        if (framework, strategy) not in results:
            results[framework, strategy] = _launch(tmp_path_factory.mktemp("ablation"), framework, strategy)
        return results[framework, strategy]

    return look


def _launch(  # noqa: PLR0913 - what launches differ in
    folder: Path,
    framework: str,
    strategy: str,
    *,
    workload: Workload = LENET,
    batch: int = 32,
    batches: int = 2,
    seconds: float = 0.5,
) -> LaunchResult:
    workers = 2 if exchanges(framework, strategy) else 1
    schedule = AblationSchedule(warmup_steps=3, seconds=seconds, min_blocks=2, max_blocks=2, max_steps=20)
    trial = trial_of(framework, strategy, workload, batch=batch, workers=workers)
    job = ablation_job(trial, workload, {"kind": "synthetic", "distinct_batches": batches}, schedule)
    return launch(folder, job, workers=workers, servers=int(STRATEGIES[strategy].servers), preloaded=True)


def assert_well_ended(result: LaunchResult) -> None:
    """Fail the test with the last words of a launch that did not end well."""
    if not result.outcome.ok:
        pytest.fail(result.explanation())


def ablations(result: LaunchResult) -> list[dict[str, Any]]:
    """The record of every worker, by rank."""
    assert_well_ended(result)
    workers = sorted(name for name in result.records if name.startswith("worker"))
    return [result.record("ablation", name) for name in workers]


def larger_gradients(result: LaunchResult) -> bool:
    """Whether the quickest backward stage of every worker took longer than its quickest forward stage."""
    quickest = [
        [min(map(min, seen["stages"][stage])) for stage in ("forward", "backward")] for seen in ablations(result)
    ]
    return all(forward < backward for forward, backward in quickest)


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_an_ablation_launch_ends_well_and_leaves_nobody_behind(trained_framework, name, strategy, launched):
    result = launched(trained_framework, strategy)
    assert len(ablations(result)) == (2 if exchanges(name, strategy) else 1)
    processes = [record["pid"] for records in result.records.values() for record in records if "pid" in record]
    assert processes
    assert [number for number in processes if Path(f"/proc/{number}").exists()] == []


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_every_stage_is_there_but_those_left_out_with_a_reason(trained_framework, name, strategy, launched):
    wanted = {"forward", "backward", "step", "input"}
    wanted |= {"exchange"} if exchanges(name, strategy) else set()
    wanted |= set() if STRATEGIES[strategy].servers else {"local"}
    wanted -= set(left_out(name, strategy))
    for seen in ablations(launched(trained_framework, strategy)):
        assert set(seen["stages"]) - {"communication", "marked"} == wanted


@pytest.mark.parametrize(("name", "strategy"), cases(exchanges))
def test_all_workers_run_the_same_steps_in_the_same_order(trained_framework, name, strategy, launched):
    records = ablations(launched(trained_framework, strategy))
    shapes = [{stage: [len(block) for block in blocks] for stage, blocks in seen["stages"].items()} for seen in records]
    assert all(shape == shapes[0] for shape in shapes)
    assert all(seen["order"] == records[0]["order"] for seen in records)
    assert all(sorted(block) == sorted(records[0]["stages"]) for block in records[0]["order"])


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_every_step_of_every_stage_takes_time(trained_framework, name, strategy, launched):
    for seen in ablations(launched(trained_framework, strategy)):
        for stage, blocks in seen["stages"].items():
            assert len(blocks) == 2, stage
            assert all(0 < duration < math.inf for block in blocks for duration in block), stage


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_gradients_take_longer_than_the_forward_pass_that_they_include(
    trained_framework, name, strategy, launched, tmp_path
):
    if "forward" in left_out(name, strategy):
        pytest.skip(left_out(name, strategy)["forward"])
    longer = larger_gradients(launched(trained_framework, strategy))
    # A busy machine may hold up every backward pass of a short launch; of one with many steps, it does not.
    assert longer or larger_gradients(_launch(tmp_path, trained_framework, strategy, batch=128, seconds=4.0))


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_marks_follow_each_other_in_every_marked_step(trained_framework, name, strategy, launched):
    for seen in ablations(launched(trained_framework, strategy)):
        assert seen["marks"] == [phase for phase in PHASES if phase in seen["marks"]]
        assert ("marked" in seen["stages"]) == bool(seen["marks"])
        assert len(seen["marked"]) == sum(map(len, seen["stages"].get("marked", [])))
        for ends in seen["marked"]:
            assert len(ends) == 1 + len(seen["marks"])
            assert ends == sorted(ends)


@pytest.mark.parametrize(("name", "strategy"), cases())
def test_own_timers_of_frameworks_tell_of_known_phases_in_every_marked_block(
    trained_framework, name, strategy, launched
):
    for seen in ablations(launched(trained_framework, strategy)):
        assert len(seen["native"]) == len(seen["stages"].get("marked", []))
        for block in seen["native"]:
            for phases in block.values():
                assert {one for each in phases for one in each.split(" + ")} <= set(NAMES) - {REST}
                assert all(0 <= seconds < math.inf for seconds in phases.values())


@pytest.mark.parametrize(("name", "strategy"), cases(exchanges))
def test_what_is_transferred_in_marked_steps_is_all_gradients(trained_framework, name, strategy, launched):
    gradients = 4 * library_workload("lenet5").parameter_count
    for seen in ablations(launched(trained_framework, strategy)):
        pieces = [piece for piece in seen["transfers"] if not piece[0].startswith(("weights", "norm"))]
        if not pieces:
            continue
        assert sum(piece[1] for piece in pieces) == gradients * len(seen["marked"])
        ready, done = np.array([piece[2:] for piece in seen["transfers"]]).T
        assert np.all(ready <= done)
        assert np.all(np.diff(ready) >= 0)
        assert seen["marked"][0][0] < ready[0]


def is_first(framework: str, strategy: str) -> bool:
    """Whether a strategy is the one that a framework's manifest names first."""
    return strategy == next(iter(MANIFESTS[framework].strategies))


@pytest.mark.parametrize(("name", "strategy"), cases(is_first))
def test_the_steps_of_a_transformer_have_the_phases_of_other_steps(
    trained_framework, name, strategy, launched, tmp_path
):
    if MANIFESTS[name].without_transformers:
        pytest.skip(MANIFESTS[name].without_transformers)
    of_words = _launch(tmp_path, trained_framework, strategy, workload=library_workload("gpt2_tiny"), batch=2)

    for seen, usual in zip(ablations(of_words), ablations(launched(trained_framework, strategy)), strict=True):
        assert set(seen["stages"]) == set(usual["stages"])
        assert seen["marks"] == usual["marks"]
        assert all(ends == sorted(ends) for ends in seen["marked"])


@pytest.fixture
def stepping_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches train in all ways that a session has, and save the weights."""

    def fill_otherwise(folder: Path, *how: Any) -> Path:
        path = make_run_folder(folder, *how)
        with (folder / "steptime" / "worker" / "ablation.py").open("a") as file:
            file.write(EVERY_WAY_OF_STEPPING)
        return path

    monkeypatch.setattr(launching, "make_run_folder", fill_otherwise)


@pytest.mark.sampled("name")
@pytest.mark.usefixtures("stepping_in_every_way")
@pytest.mark.parametrize(("name", "strategy"), cases(lambda _framework, name: STRATEGIES[name].exact))
def test_steps_that_are_taken_apart_train_what_the_reference_trains(
    trained_framework, name, strategy, expected, tmp_path
):
    result = _launch(tmp_path, trained_framework, strategy, batch=8, batches=1)
    assert_well_ended(result)
    assert result.weights, "no worker saved its weights"
    for weights in result.weights.values():
        distance, where = weight_error(weights, expected[2 if exchanges(name, strategy) else 1].weights[0])
        assert distance < TOLERANCES["fp32"]["weights"], where
