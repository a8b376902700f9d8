"""Workers that find each other over sockets, as processes of their own would."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from steptime.worker.rendezvous import Rendezvous


def run_workers(tmp_path, workers: int, play: Callable[[Rendezvous, int], object]) -> list[object]:
    """Let each worker play its part in a thread, and return what they returned, by rank."""
    found: list[object] = [None] * workers

    def one(rank: int) -> None:
        context = SimpleNamespace(rank=rank, workers=workers, folder=str(tmp_path), root_host="127.0.0.1")
        with Rendezvous(context) as rendezvous:
            found[rank] = play(rendezvous, rank)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


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
