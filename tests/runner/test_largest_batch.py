"""The largest batch that fits where a trial runs out of memory."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import STUDY

from steptime.execution.collected import Collected
from steptime.execution.executor import OUT_OF_MEMORY, Executor, LaunchResult
from steptime.execution.progress import Silent
from steptime.launchers.request import LaunchOutcome
from steptime.results.store import Store
from steptime.runner import study_run
from steptime.runner.plan import plan_study
from steptime.runner.study_run import StudyRun
from steptime.runner.trial_runs import BatchSearch, LargestBatch, search_largest_batch

FITTING = 37


@given(fails=st.integers(1, 10**6), share=st.floats(0.0, 1.0, exclude_max=True))
def test_the_search_ends_within_an_eighth_of_the_largest_batch_that_fits(fails, share):
    limit = int(fails * share)
    found = search_largest_batch(fails, lambda batch: batch <= limit)

    assert found.fits <= limit < found.fails
    assert found.launches <= 16
    assert found.launches == 16 or found.fails - found.fits <= max(1, 0.125 * found.fits)


@pytest.mark.parametrize(("fails", "launches"), [(1, 0), (2, 1)])
def test_where_no_batch_fits_every_half_is_tried(fails, launches):
    assert search_largest_batch(fails, lambda _: False) == LargestBatch(0, 1, launches)


def test_a_launch_that_fails_for_another_reason_ends_the_search():
    found = search_largest_batch(64, lambda batch: batch < 20 or "worker-0: ValueError: of another kind")

    assert found == LargestBatch(0, 64, 0, "worker-0: ValueError: of another kind")
    assert "the search ended there" in found.in_words()


class FullMachine:
    """Launches nothing: a batch above ``FITTING`` does not fit, and all others do."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def launch(self, trial: Any, *_args: Any, **_fields: Any) -> LaunchResult:
        self.batches.append(trial.batch_per_worker)
        full = trial.batch_per_worker > FITTING
        reason = f"{OUT_OF_MEMORY}: worker-0: RuntimeError: CUDA out of memory" if full else None
        outcome = LaunchOutcome(ok=not full, reason=reason, wall_s=0.1, commands=[])
        return LaunchResult(outcome, Collected({}), reason, {}, "2026-01-01T00:00:00.000+00:00", 0.1, {})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FullMachine:
    full = FullMachine()
    monkeypatch.setattr(Executor, "launch", full.launch)
    return full


def run(folder: Path, budget: str | None = None) -> str:
    """Run the study, and return why its one trial has no result."""
    (folder / "full.yaml").write_text(STUDY.replace("batch_per_worker: 4", "batch_per_worker: 100"))
    StudyRun(plan_study(str(folder / "full.yaml"), [], folder / "results", budget), Silent()).run()
    ((_, verdict),) = (Store.open(folder / "results").get("verdicts") or {}).items()
    assert verdict["status"] == "failed"
    return verdict["reason"]


def test_a_study_says_which_batch_would_have_fitted(tmp_path, machine):
    reason = run(tmp_path)

    seen = re.search(r"batch_per_worker (\d+) fits, (\d+) does not \(by (\d+) short launches\)", reason)
    assert seen, reason
    fits, fails, launches = map(int, seen.groups())
    assert fits <= FITTING < fails <= 1.125 * fits + 1
    assert launches == len(machine.batches) - 2
    assert reason.startswith(OUT_OF_MEMORY)
    assert "CUDA out of memory" in reason
    assert not (tmp_path / "results" / "largest_batch").exists()


def test_a_search_is_not_repeated_by_the_next_run(tmp_path, machine):
    first = run(tmp_path)
    launched = len(machine.batches)

    assert run(tmp_path) == first
    assert len(machine.batches) == launched


def test_a_budget_that_is_spent_ends_the_search(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(study_run, "BatchSearch", lambda *fields: BatchSearch(*fields[:3], deadline=0.0))

    assert (
        "no batch was seen to fit, 100 does not (by 0 short launches; the search ended there: the budget is spent)"
        in run(tmp_path)
    )
    assert set(machine.batches) == {100}
