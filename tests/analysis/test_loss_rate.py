"""Progress of the loss per second, and how stale updates were."""

from typing import Any

import pytest

from steptime.analysis.staleness import loss_rate, staleness
from steptime.results.records import Launch, WorkerSteps


def worker(rank: int = 0, **changes: Any) -> WorkerSteps:
    fields = {
        "rank": rank,
        "host": "here",
        "warmup_ends_s": [0.5, 1.0],
        "origin_s": 1.0,
        "ends_s": [2.0, 3.0],
        "loss_first": 2.0,
        "loss_last": 1.0,
        "facts": {},
        "usage": {},
        "opened_in_s": 0.1,
    }
    return WorkerSteps(**{**fields, **changes})


def launch(*workers: WorkerSteps) -> Launch:
    return Launch(
        trial="one",
        launch=0,
        block=0,
        status="ok",
        reason=None,
        started_at="2026-01-01T00:00:00Z",
        wall_s=3.0,
        commands=[],
        environment={},
        noise={},
        workers=list(workers),
    )


def test_loss_rate_is_the_fall_of_the_mean_loss_per_second() -> None:
    found = loss_rate([launch(worker(0), worker(1, loss_first=3.0, loss_last=0.0))])

    assert found is not None
    assert found.value == pytest.approx(1.0)  # from 2.5 to 0.5 in two seconds


def test_a_loss_that_rises_is_a_negative_loss_rate() -> None:
    found = loss_rate([launch(worker(loss_last=4.0))])

    assert found is not None
    assert found.value < 0


@pytest.mark.parametrize("end", [None, float("nan")])
def test_training_whose_loss_is_no_number_has_no_loss_rate(end: float | None) -> None:
    assert loss_rate([launch(worker(0), worker(1, loss_last=end))]) is None


def test_launches_that_agree_leave_a_narrow_interval_and_one_launch_leaves_none() -> None:
    one, several = loss_rate([launch(worker())]), loss_rate([launch(worker())] * 3)

    assert one is not None
    assert (one.low, one.high) == (None, None)
    assert several is not None
    assert several.low == several.high == several.value


def test_a_loss_that_is_not_finite_gives_no_loss_rate() -> None:
    assert loss_rate([launch(worker(loss_last=float("nan")))]) is None


def test_staleness_is_counted_over_workers_and_launches() -> None:
    first = launch(worker(0, staleness={"0": 1, "2": 1}), worker(1, staleness={"1": 2}))
    second = launch(worker(0, staleness={"1": 4}))

    found = staleness([first, second])

    assert found is not None
    assert found.counts == {0: 1, 1: 6, 2: 1}
    assert found.mean == pytest.approx(1.0)
    assert (found.quantile(0.5), found.quantile(0.95), found.quantile(0.1)) == (1, 2, 0)


def test_synchronous_launches_have_no_staleness() -> None:
    assert staleness([launch(worker())]) is None
