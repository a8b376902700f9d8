"""Timed steps pause behind a drawn one for evidence, and go on as if no time had passed."""

import threading
import time
import types
from typing import Any

import numpy as np
import pytest

from steptime.execution.collected import Collected, worker_steps
from steptime.results.records import WorkerSteps
from steptime.worker.clock import HostClock
from steptime.worker.timing import run_timed
from steptime.worker.weights import initial_weights

LAYER = {"kind": "linear", "attributes": {}, "parameters": [{"name": "weight", "role": "weight", "shape": [4, 3]}]}
WARM, TIMED, BETWEEN_S = 5, 20, 0.2
JOB = {
    "workload": {"layers": [LAYER]},
    "seed": 3,
    "schedule": {"warmup_steps": WARM, "seconds": 0.0, "min_steps": TIMED, "max_steps": TIMED, "pause": 0.5},
}
BEHIND = 10


class Growing:
    """A session whose weights grow by one in each step, of a millisecond, and are slow to read."""

    def __init__(self, rank: int = 0, others: list[int] | None = None, ahead: int = 0) -> None:
        self._rank, self._others, self._ahead = rank, others, ahead
        self.ended: list[float] = []
        self.asked: list[float] = []

    def step(self) -> None:
        time.sleep(0.001)
        self.ended.append(time.monotonic())
        if self._others is not None:
            self._others.append(self._rank)

    @property
    def taken(self) -> int:
        return len(self.ended)

    def get_weights(self) -> dict[str, np.ndarray]:
        time.sleep(BETWEEN_S if self._others is None else 0.0)
        return {"weight": initial_weights([LAYER], 3)["weight"] + self.taken}

    def clock(self) -> HostClock:
        return HostClock(self.wait)

    def wait(self) -> None:
        """Nothing is under way."""

    def loss(self) -> float:
        self.asked.append(time.monotonic())
        return float(self.taken)

    def loss_later(self) -> None:
        return None

    def staleness(self) -> dict[int, int] | None:
        return None if self._others is None else {0: 1}

    def batches_ahead(self) -> int:
        return self._ahead

    def output_shape(self) -> list[int]:
        return [8, 2]


def records_of(session: Growing, folder, rank: int = 0, workers: int = 1) -> dict[str, dict[str, Any]]:
    """Time a session; return what it wrote."""
    records: dict[str, dict[str, Any]] = {}
    write = types.SimpleNamespace(write=lambda kind, **fields: records.update({kind: fields}))
    run_timed(session, JOB, types.SimpleNamespace(rank=rank, workers=workers, folder=str(folder)), write)
    return {**records, "session": {"facts": {}, "opened_in_s": 0.0}, "process": {"host": "here"}}


def steps_in(records: dict[str, dict[str, Any]]) -> WorkerSteps:
    """Return the steps that one worker wrote, as a launch keeps them."""
    (steps,) = worker_steps(Collected({"worker-0": records}), 1)
    return steps


def test_a_pause_is_left_out_of_the_times(tmp_path):
    """However long a busy machine takes for the steps, the slow reading of weights is no part of their time."""
    session = Growing()
    steps = steps_in(records_of(session, tmp_path))

    all_s = next(moment for moment in session.asked if moment > session.ended[-1]) - session.ended[WARM]
    assert len(steps.ends_s) == TIMED
    assert 0.001 * TIMED <= steps.ends_s[-1] - steps.origin_s <= all_s - BETWEEN_S
    assert steps.usage["wall_s"] <= all_s - BETWEEN_S
    assert steps.pause is not None
    assert steps.pause.lasted_s > BETWEEN_S


def test_the_kernel_agrees_with_the_clock_on_both_sides_of_a_pause(tmp_path):
    records = records_of(Growing(), tmp_path)
    assert steps_in(records).clock_mistake() is None

    late = records["steps"]["pause"]["kernel_marks"]
    late["marks"] = [(count, 2.0 * at_s, over) for count, at_s, over in late["marks"]]
    assert "where the kernel counts" in (steps_in(records).clock_mistake() or "")


@pytest.mark.parametrize("ahead", [0, 3])
def test_steps_that_may_find_a_batch_ready_behind_a_pause_are_not_timed(tmp_path, ahead):
    session = Growing(ahead=ahead)
    pause = records_of(session, tmp_path)["steps"]["pause"]

    assert (pause["behind"], pause["steps"]) == (BEHIND, 1 + ahead)
    assert pause["loss"] == WARM + 1 + BEHIND
    assert session.taken == WARM + 1 + TIMED + 1 + ahead
    assert pause["weights"]["weight"][1] == pytest.approx((WARM + 1 + BEHIND) * 12**0.5)


def test_workers_that_do_not_wait_pause_together_and_step_alone_there(tmp_path):
    order: list[int] = []
    found: dict[int, dict[str, Any]] = {}

    def run(rank: int) -> None:
        found[rank] = records_of(Growing(rank, order), tmp_path, rank, workers=2)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    pauses = [found[rank]["steps"]["pause"] for rank in range(2)]
    assert pauses[0]["behind"] == BEHIND
    assert [len(each["alone"]["weights"]) for each in pauses] == [3, 3]
    assert "0,0,0,1,1,1" in ",".join(map(str, order))
    for each in pauses:
        assert each["alone"]["batch"] == WARM + 1 + each["behind"] + 3
    assert [len(found[rank]["steps"]["ends_s"]) for rank in range(2)] == [TIMED, TIMED]
    assert {path.name for path in tmp_path.glob("pause-weights-*.npz")} == {f"pause-weights-{r}.npz" for r in range(2)}
