"""The worker's loop, over a back end of a few lines that is right or wrong as the test wants it."""

import json
import sys
from pathlib import Path

import pytest
from standin import Played, fill_standin, finish, start

ADAPTER = '''\
"""Two workers who add up through the run folder's own rendezvous, and err where the options say so."""

import numpy

from steptime.worker.framework import ADDED, FED, REPLACED, BackEnd, Message
from steptime.worker.clock import StepClock
from steptime.worker.framework import Framework
from steptime.worker.handshake import Rendezvous


def open_back_end(job, place):
    return Adding(job, place)


class Queue(StepClock):
    """A device on which each run ends a second after the one before, whatever the host's clock says."""

    def __init__(self):
        self._count = 0

    def tick(self):
        self._count += 1

    def drain(self):
        ends, self._count = [float(number) for number in range(self._count)], 0
        return ends


class Adding(BackEnd):
    def __init__(self, job, place):
        self._options, self._rank, self._workers = job["options"], place.rank, place.workers

    def message(self, operation, count):
        return Sum(self._options, self._rank, self._workers, operation, count)

    def facts(self):
        return {"framework_version": "0"}


class Sum(Message):
    """Knows what the other worker contributes, as only a test can."""

    runs = 0

    def __init__(self, options, rank, workers, operation, count):
        self.becomes = {"fed": FED, "added": ADDED}.get(options.get("becomes"), REPLACED)
        self._options, self._rank, self._workers = options, rank, workers
        self._operation, self._count = operation, count
        self._visit, self._total = Sum.runs, numpy.zeros(count, dtype=numpy.float32)

    def fill(self, values):
        from steptime.worker.message_timing import contribution

        Sum.runs += 1  # visits are the same on all workers
        rows = [contribution(numpy, self._count, rank, Sum.runs) for rank in range(self._workers)]
        rows = numpy.array(rows, dtype=numpy.float32)
        assert (rows[self._rank] == values).all()
        self._rows, self._sum, self._first = rows, rows.sum(axis=0), True

    def run(self):
        wrong = self._options.get("wrong_rank") == self._rank and self._options.get("wrong_visit") == Sum.runs
        if self.becomes == FED:
            self._total = self._sum if self._first else self._total * self._workers
        elif self.becomes == ADDED:
            self._total = self._total + self._sum
        else:
            self._total = self._sum
        if wrong:
            self._total = self._total + numpy.eye(1, self._count, 3, dtype=numpy.float32)[0]
        self._first = False

    def clock(self):
        return Queue() if self._operation == "allreduce_queued" else super(Sum, self).clock()

    def result(self):
        if self._operation == "incast":
            return self._rows[1:] if self._rank == 0 else None
        return self._total


FRAMEWORK = Framework(open_session=None, open_back_end=open_back_end)
'''

SIZES = [64, 256]


def play_net(folder: Path, operations=("allreduce",), **options) -> list[Played]:
    """Run the benchmark on two workers."""
    run = fill_standin(folder, mode="net", adapter=ADAPTER, **options)
    job = json.loads((run / "job.json").read_text())
    job |= {"seed": 1, "exchange": {"back_end": "standin", "operations": list(operations), "sizes": SIZES}}
    job["schedule"] = {"rounds": 3, "runs": 4, "seconds": 100.0}
    (run / "job.json").write_text(json.dumps(job))
    python = Path(sys.executable)
    ranks = range(2)
    started = [
        start(python, run, STEPTIME_RANK=str(k), STEPTIME_LOCAL_RANK=str(k), STEPTIME_WORKERS="2") for k in ranks
    ]
    played = [finish(process, run, f"worker-{rank}") for rank, process in enumerate(started)]
    assert [each.code for each in played] == [0, 0], "\n".join(each.stderr for each in played)
    return played


@pytest.mark.parametrize("becomes", ["replaced", "fed", "added"])
def test_right_sums_pass_every_check_on_every_worker(tmp_path, becomes):
    for each in play_net(tmp_path, becomes=becomes):
        found = each.record("net")
        assert (found["checks"], found["wrong"]) == (len(SIZES) * (1 + 3), 0)


@pytest.mark.parametrize("becomes", ["replaced", "fed", "added"])
def test_one_wrong_value_on_one_worker_is_found_and_described(tmp_path, becomes):
    right, wrong = play_net(tmp_path, becomes=becomes, wrong_rank=1, wrong_visit=4)
    assert right.record("net")["wrong"] == 0
    found = wrong.record("net")
    assert found["wrong"] == 1
    (sentence,) = found["mistakes"]
    assert "1 of" in sentence
    assert "on worker 1, the first (at 3)" in sentence


def test_only_the_first_worker_checks_what_the_others_sent_it(tmp_path):
    first, second = (each.record("net") for each in play_net(tmp_path, operations=["incast"]))
    assert (first["checks"], first["wrong"]) == (8, 0)
    assert second["checks"] == 0


def test_all_workers_visit_the_same_in_a_random_order(tmp_path):
    mine, other = (each.record("net")["visits"] for each in play_net(tmp_path, operations=["allreduce", "incast"]))
    order = [(each["operation"], each["bytes"], each["round"]) for each in mine]
    assert order == [(each["operation"], each["bytes"], each["round"]) for each in other]
    rounds = [[place[:2] for place in order if place[2] == k] for k in range(3)]
    assert all(sorted(each) == sorted(rounds[0]) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_a_visit_has_one_run_that_is_not_timed_and_those_that_are(tmp_path):
    for each in play_net(tmp_path):
        for visit in each.record("net")["visits"]:
            assert len(visit["ends_s"]) == 1 + 4
            assert visit["ends_s"] == sorted(visit["ends_s"])


def test_runs_that_a_device_queues_end_when_its_clock_says(tmp_path):
    for each in play_net(tmp_path, operations=["allreduce_queued"]):
        found = each.record("net")
        assert {tuple(visit["ends_s"]) for visit in found["visits"]} == {(0.0, 1.0, 2.0, 3.0, 4.0)}
        assert (found["checks"], found["wrong"]) == (len(SIZES) * (1 + 3), 0)


def test_one_way_of_a_byte_is_measured_to_every_other_worker(tmp_path):
    first, second = (each.record("net")["alphas_s"] for each in play_net(tmp_path))
    assert len(first) == 1
    assert first[0] > 0
    assert second == []
