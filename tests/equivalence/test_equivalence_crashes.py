"""A check whose processes a signal ends once, which says nothing about what they compute."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from test_executor import TRIAL, executor  # noqa: F401 - the fixture

from steptime.catalog.workloads.table import build_workload
from steptime.equivalence.check import Checker
from steptime.equivalence.oracle import Oracle
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.launchers.request import LaunchOutcome
from steptime.study.trial import Trial

WORKLOAD = build_workload("lenet5")


class Crashing:
    """An executor whose first ``times`` launches die of a signal."""

    def __init__(self, real: Executor, times: int) -> None:
        self._real, self._left = real, times
        self.manifests = real.manifests

    def launch(self, trial: Trial, job: Mapping[str, Any], folder: Path, **how: Any) -> LaunchResult:
        if self._left:
            self._left -= 1
            reason = "worker-0 was ended by SIGABRT"
            return LaunchResult(
                LaunchOutcome(ok=False, reason=reason, wall_s=0.1, commands=[]), Collected({}), reason, {}
            )
        return self._real.launch(trial, job, folder, **how)


def check(real: Executor, folder: Path, times: int) -> Any:
    truth_of = partial(Oracle(real, folder).truth, workload=WORKLOAD)
    return Checker(Crashing(real, times), folder, steps=2, repeats=2).check(TRIAL, WORKLOAD, truth_of, "1.0")


def test_a_crash_is_repeated_and_counted(executor: Executor, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    result = check(executor, tmp_path, times=1)

    assert result.passed
    assert result.crashes == 1


def test_two_crashes_in_a_row_fail_the_check(executor: Executor, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    result = check(executor, tmp_path, times=2)

    assert not result.passed
    assert "SIGABRT" in result.reason
