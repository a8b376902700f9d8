"""How a budget is divided between the kinds of launches of a study, and that a plan counts each kind."""

from typing import Any

import pytest
from simulated import a_launch, a_store
from trials import trial

from steptime.runner.run_kinds import RUN_KINDS, deadlines
from steptime.runner.trial_runs import timed_schedule
from steptime.study.study import Study
from steptime.study.training import Training

TIMED = trial("a")
READING = TIMED.model_copy(update={"loader": "native"})
MANY = {"launches": 9}
TRAINED = TIMED.model_copy(update={"training": Training(epochs=1)})


def study(**keys: Any) -> Study:
    return Study.model_validate({"name": "planned", "workloads": ["mlp"], "frameworks": ["a"], **keys})


@pytest.mark.parametrize(
    ("keys", "trials", "ends"),
    [
        pytest.param({}, [TIMED], [105.0, 105.0, 105.0, 105.0], id="timed launches have all of it"),
        pytest.param({"breakdown": MANY}, [TIMED], [65.0, 105.0, 105.0, 105.0], id="40 % for the breakdown"),
        pytest.param({"breakdown": {}}, [TIMED], [69.0, 105.0, 105.0, 105.0], id="no more than the breakdown takes"),
        pytest.param({"loader_alone": {}}, [READING], [85.0, 85.0, 105.0, 105.0], id="20 % for loaders alone"),
        pytest.param({"loader_alone": {}}, [TIMED], [105.0, 105.0, 105.0, 105.0], id="nothing for loaders of no trial"),
        pytest.param({"train": {"epochs": 1}}, [TIMED, TRAINED], [75.0, 75.0, 75.0, 105.0], id="30 % for trainings"),
        pytest.param({"train": {"epochs": 1}}, [TRAINED], [105.0, 105.0, 105.0, 105.0], id="trainings alone have all"),
        pytest.param(
            {"breakdown": MANY, "loader_alone": {}}, [READING], [53.0, 85.0, 105.0, 105.0], id="of what is left"
        ),
    ],
)
def test_a_budget_keeps_a_part_for_each_kind_that_a_study_wants(keys, trials, ends):
    assert deadlines(study(**keys), trials, 100.0, now=5.0) == pytest.approx(ends)


def test_without_a_budget_no_kind_has_a_deadline():
    assert deadlines(study(), [TIMED], None, now=5.0) == [None] * len(RUN_KINDS)


def test_a_trial_is_either_timed_or_trained():
    wanted = study(train={"epochs": 1, "seeds": 2}, breakdown={"launches": 3}, launches={"min": 4})
    assert [kind.count(wanted, [READING, TRAINED]) for kind in RUN_KINDS] == [4, 3, 0, 2]


KILLED = (
    "worker-0 was ended by SIGKILL; the system kills a process like this when memory runs out",
    "worker-1 was ended by SIGTERM",
    "mpiexec ended with exit code 137",
    "worker-0 is stopped by a signal",
    "worker-1: ConnectionError: a worker exited (worker-0 was ended by SIGINT)",
)
FAILED = ("worker-0 was ended by SIGSEGV", "worker-0: ValueError: no", "worker-0 ended with exit code 1371")


@pytest.mark.parametrize("reason", [*KILLED, *FAILED])
def test_a_launch_that_was_killed_is_repeated_by_the_next_run(tmp_path, reason):
    store = a_store(tmp_path / "r")
    store.add_trial(TIMED)
    store.append(a_launch(TIMED, 0))
    store.append(a_launch(TIMED, 1, status="failed", reason=reason, workers=[]))
    schedule = timed_schedule(study(launches={"min": 2, "max": 2}), [TIMED], store)
    repeated = reason in KILLED
    assert schedule.verdict(TIMED) == ("continue" if repeated else "settled")
    assert schedule.next_number(TIMED) == (1 if repeated else 2)


def test_a_trial_whose_launches_were_all_killed_is_not_given_up(tmp_path):
    store = a_store(tmp_path / "r")
    store.add_trial(TIMED)
    for number in range(3):
        store.append(a_launch(TIMED, number, status="failed", reason=KILLED[0], workers=[]))
    assert timed_schedule(study(), [TIMED], store).verdict(TIMED) == "continue"


@pytest.mark.parametrize(
    ("framework", "workload", "device", "seconds"),
    [
        pytest.param("pytorch", "resnet50", "cuda", (27.3, 31.3), id="as measured: from 29 s"),
        pytest.param("jax", "resnet50", "cuda", (13.0, 13.0), id="another framework searches otherwise"),
        pytest.param("pytorch", "gpt2_tiny", "cuda", (13.0, 13.0), id="no convolution"),
        pytest.param("pytorch", "resnet50", "cpu", (8.0, 8.0), id="processors"),
    ],
)
def test_a_plan_knows_what_a_launch_on_a_gpu_takes_before_its_steps_are_timed(framework, workload, device, seconds):
    shape = (128,) if workload == "gpt2_tiny" else (3, 224, 224)
    one = trial(framework, workload=workload, input_shape=shape, classes=1000, device=device)
    low, high = seconds
    assert low - 1.0 <= RUN_KINDS[0].each_s(study(seconds_per_launch=2), one) <= high
