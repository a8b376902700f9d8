"""The loader alone, on made-up loaders whose time per batch is known."""

import time
from typing import Any

import pytest

from steptime.worker.clock import HostClock
from steptime.worker.timing import run_loader

JOB = {
    "framework": "standin",
    "strategy": "single",
    "batch_per_worker": 10,
    "loader": {"dataset": {"samples": 200}},
    "schedule": {"seconds": 0.2},
}


class Context:
    """One worker."""

    rank, workers, folder, name = 0, 1, ".", "worker-0"


class Loader:
    """A session whose loader takes ``batch_s`` for a batch, and nothing else."""

    def __init__(self, batch_s: float, ahead: int = 0, *, stages: bool = True) -> None:
        self.taken = 0
        self._batch_s = batch_s
        self._ahead = ahead
        self._stages = stages

    def _take(self) -> None:
        self.taken += 1
        time.sleep(self._batch_s)

    def ablate(self) -> "Loader | None":
        return self if self._stages else None

    def stages(self) -> dict[str, Any]:
        return {"input": self._take}

    def batches_ahead(self) -> int:
        return self._ahead

    def clock(self) -> HostClock:
        return HostClock(lambda: None)


class Records:
    """Keeps what is written."""

    def write(self, kind: str, **fields: Any) -> None:
        self.kind, self.fields = kind, fields


def stretches(loader: Loader) -> list[dict[str, Any]]:
    records = Records()
    run_loader(loader, JOB, Context(), records)
    assert records.kind == "loader"
    return list(records.fields["stretches"])


def test_a_batch_takes_as_long_as_the_loader_sleeps():
    first = stretches(Loader(0.01))[0]

    assert (first["ends_s"][-1] - first["origin_s"]) / len(first["ends_s"]) >= 0.01


def test_the_first_stretch_ends_with_the_first_epoch():
    loader = Loader(0.0001)
    first, later = stretches(loader)

    assert (first["name"], later["name"]) == ("first", "later")
    assert len(first["ends_s"]) == 20 - 2  # one that is not counted, one that a session may have taken


def test_a_first_epoch_that_takes_all_the_time_is_cut_and_no_later_one_is_timed():
    (first,) = stretches(Loader(0.05))

    assert 1 <= len(first["ends_s"]) <= 5


def test_batches_that_may_be_ready_are_taken_and_not_counted():
    loader = Loader(0.05, ahead=3)
    (first,) = stretches(loader)

    assert loader.taken == len(first["ends_s"]) + 4


def test_processor_seconds_of_a_loader_that_sleeps_are_few():
    first = stretches(Loader(0.05))[0]

    assert first["usage"]["cpu_s"] < 0.1


def test_a_framework_that_cannot_take_a_batch_alone_says_so():
    with pytest.raises(RuntimeError, match="standin cannot take a batch without training on it"):
        run_loader(Loader(0.01, stages=False), JOB, Context(), Records())
