"""Waiting of ranks whose steps are compiled whole, by when their devices began and finished them."""

import pytest
from stored_processes import BEGIN, MS, found_in, part_of, process_lines, sentences_of, step, write

STEPS = 40
DEVICE_MS = 6.0
"""What the program of a step takes, once all ranks have begun it."""


def jax_job(folder, late_ms, *, reads=1, exchanges=True, ahead_ms=None):
    """Return a run of two ranks whose host works 5 ms before it asks for a step, and rank 1's so much longer.

    ``reads`` is after how many steps a host waits for its device; without an exchange no step waits for the other
    rank; rank 1 is on another host where its clock is ``ahead_ms`` ahead.
    """
    boots = ("boot-0", "boot-0" if ahead_ms is None else "boot-1")
    host, device = [0.0, 0.0], [0.0, 0.0]  # until when each is busy, in milliseconds since the first step
    steps, lines = ([], []), ([], [])
    for number in range(STEPS):
        asked = [host[rank] + 5.0 + late_ms * rank for rank in (0, 1)]
        begins = [max(asked[rank], device[rank]) for rank in (0, 1)]
        device = [max(begins) + DEVICE_MS] * 2 if exchanges else [begin + DEVICE_MS for begin in begins]
        for rank in (0, 1):
            begin, shift = host[rank], (ahead_ms or 0.0) * rank
            host[rank] = device[rank] if number % reads == reads - 1 else asked[rank]
            regions = {"call": 0.0, "wait": host[rank] - asked[rank]}
            at = BEGIN + round((begin + shift) * MS)
            steps[rank].append(step(number, at, regions, {"wait>call": asked[rank] - begin}, flags=["no_loader"]))
            times = [BEGIN + round((moment + shift) * MS) for moment in (begins[rank], device[rank])]
            span = {"span_ns": times[1] - times[0], "begin_ns": times[0], "end_ns": times[1]}
            lines[rank].append({"kind": "device", "step": number, "regions": {"call": span["span_ns"]}, **span})
    hidden = {"kind": "unseen", "phases": ["forward", "comm_exposed", "sync_wait"], "reason": "compiled whole"}
    processes = [process_lines(rank, 2, steps[rank], boot=boots[rank], lines=[hidden, *lines[rank]]) for rank in (0, 1)]
    return found_in(write(folder, *processes), 60_000.0)


def test_who_begins_its_steps_late_is_waited_for(tmp_path):
    run = jax_job(tmp_path, 20.0)
    assert run.waited_for.ranks == [1]
    assert part_of(run, "sync_wait").ranks_s == pytest.approx([0.020, 0.0], abs=1e-6)
    assert part_of(run, "device_wait").ranks_s == pytest.approx([0.006, 0.006], abs=1e-6)
    assert "it spends 20 ms more than they do between wait and call" in sentences_of(run)["straggler"]


def test_its_parts_are_those_of_the_step(tmp_path):
    run = jax_job(tmp_path, 20.0)
    assert sum(part.time_s.value for part in run.parts if part.time_s.value is not None) == pytest.approx(0.031)


def test_what_is_transferred_inside_of_the_program_stays_unknown(tmp_path):
    assert part_of(jax_job(tmp_path, 20.0), "comm_exposed").reason == "compiled whole"


def test_equal_ranks_do_not_wait(tmp_path):
    run = jax_job(tmp_path, 0.0)
    assert part_of(run, "sync_wait").time_s.value == 0.0
    assert run.waited_for is None


def test_a_host_that_runs_ahead_waits_when_it_asks_for_a_result(tmp_path):
    run = jax_job(tmp_path, 20.0, reads=5)
    waits = part_of(run, "sync_wait").ranks_s
    assert waits[0] == pytest.approx(0.020, rel=0.15)
    assert waits[1] == 0.0
    assert run.waited_for.ranks == [1]


def test_a_host_that_never_asks_for_a_result_does_not_wait(tmp_path):
    assert part_of(jax_job(tmp_path, 20.0, reads=1000), "sync_wait").time_s.value == 0.0


def test_ranks_that_exchange_nothing_do_not_wait(tmp_path):
    run = jax_job(tmp_path, 20.0, exchanges=False)
    assert part_of(run, "sync_wait").time_s.value is None
    assert run.waited_for is None


@pytest.mark.parametrize("device_ms", [15.0, 30.0, 100.0])
def test_steps_that_end_as_far_apart_as_they_begin_show_no_waiting(tmp_path, device_ms):
    """Each program is of one rank alone, and what keeps ranks together is an exchange outside of it."""
    hidden = {"kind": "unseen", "phases": ["forward", "comm_exposed", "sync_wait"], "reason": "compiled whole"}
    processes = []
    for rank in (0, 1):
        steps, lines = [], []
        for number in range(STEPS):
            begin = BEGIN + round(number * (30.0 + device_ms) * MS)
            asked = begin + round((5.0 + 20.0 * rank) * MS)
            gaps = {"wait>call": 10.0 + 20.0 * (1 - rank), "call>wait": 20.0 * rank}
            steps.append(step(number, begin, {"call": 0.0, "wait": device_ms}, gaps, flags=["no_loader"]))
            span = {"span_ns": round(device_ms * MS), "begin_ns": asked, "end_ns": asked + round(device_ms * MS)}
            lines.append({"kind": "device", "step": number, "regions": {"call": span["span_ns"]}, **span})
        processes.append(process_lines(rank, 2, steps, lines=[hidden, *lines]))
    run = found_in(write(tmp_path, *processes))
    assert part_of(run, "sync_wait").time_s.value is None
    assert run.waited_for is None


@pytest.mark.parametrize("ahead_ms", [0.0, 5.0, -400.0])
def test_clocks_of_two_hosts_are_bounded_by_the_steps(tmp_path, ahead_ms):
    """No step is over before all have begun it, on whichever clock: where that leaves too much open, none is blamed."""
    run = jax_job(tmp_path, 20.0, ahead_ms=ahead_ms)
    assert run.waited_for is None or run.waited_for.ranks == [1]
    assert run.clock_uncertainty_s is None or run.clock_uncertainty_s <= 0.02
