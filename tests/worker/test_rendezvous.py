"""Workers that find each other over sockets, as processes of their own would."""

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steptime.worker.handshake import Rendezvous
from steptime.worker.process_context import ProcessContext


def run_worker(folder: Path, rank: int, workers: int, play: Callable[[Rendezvous], object]) -> object:
    """Let one worker play its part, and return what it returned."""
    context = ProcessContext({"STEPTIME_RANK": str(rank), "STEPTIME_WORKERS": str(workers)}, str(folder))
    context.secret = b"of this launch"
    with Rendezvous(context) as rendezvous:
        return play(rendezvous)


def run_workers(folder: Path, workers: int, play: Callable[[Rendezvous, int], object]) -> list[object]:
    """Let each worker play its part in a thread, and return what they returned, by rank."""
    with ThreadPoolExecutor(workers) as pool:
        started = [
            pool.submit(run_worker, folder, rank, workers, lambda rendezvous, rank=rank: play(rendezvous, rank))
            for rank in range(workers)
        ]
        return [each.result(30) for each in started]


def test_a_silent_stranger_holds_up_nobody(tmp_path):
    address = tmp_path / "rendezvous.json"

    def connect_and_say_nothing() -> socket.socket:
        while not address.exists():
            time.sleep(0.01)
        return socket.create_connection(tuple(json.loads(address.read_text())))

    with ThreadPoolExecutor() as pool:
        stranger = pool.submit(connect_and_say_nothing)
        first = pool.submit(run_worker, tmp_path, 0, 2, lambda rendezvous: rendezvous.from_first("go"))
        with stranger.result(10):
            second = pool.submit(run_worker, tmp_path, 1, 2, lambda rendezvous: rendezvous.from_first(None))
            assert [first.result(10), second.result(10)] == ["go", "go"]


def test_the_latency_to_each_other_worker_is_measured(tmp_path):
    first, *others = run_workers(tmp_path, 3, lambda rendezvous, _: rendezvous.latencies())
    assert len(first) == 2
    assert all(0 < latency < 1 for latency in first)
    assert others == [[], []]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_hear_what_the_first_says(tmp_path, workers):
    assert (
        run_workers(tmp_path, workers, lambda rendezvous, rank: rendezvous.from_first({"n": rank}))
        == [{"n": 0}] * workers
    )


def test_nobody_goes_on_before_the_last_has_come(tmp_path):
    came = [0.0] * 3
    went = [0.0] * 3

    def play(rendezvous: Rendezvous, rank: int) -> None:
        time.sleep(0.1 * rank)
        came[rank] = time.monotonic()
        rendezvous.barrier()
        went[rank] = time.monotonic()

    run_workers(tmp_path, 3, play)
    assert min(went) >= max(came)


def test_one_clock_has_no_offset_beyond_half_the_round_trip(tmp_path):
    first, second = run_workers(tmp_path, 2, lambda rendezvous, _: rendezvous.clock_offset())
    assert first["offset_s"] == 0.0
    assert abs(second["offset_s"]) <= second["rtt_s"] / 2


def test_a_worker_that_leaves_is_noticed_by_the_others(tmp_path):
    failures = []

    def play(rendezvous: Rendezvous, rank: int) -> None:
        if rank == 1:
            return
        try:
            rendezvous.barrier()
        except OSError as error:
            failures.append(error)

    run_workers(tmp_path, 2, play)
    assert len(failures) == 1
