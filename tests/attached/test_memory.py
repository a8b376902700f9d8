"""Memory of ranks from records with a known truth: what grows steadily, what is left, waits for pages."""

import numpy as np
import pytest
from stored_processes import BEGIN, MS, ddp_steps, found_in, process_lines, sentences_of, write

from steptime.report.attached import run_notes

MIB, LOOKS, STEPS = 1 << 20, 60, 600


def looks(held, **more):
    """Return lines of one look every ten steps of 40 ms."""
    lines = []
    for look in range(LOOKS):
        own = {name: value(look) for name, value in more.items()}
        resident = round(held(look) * MIB)
        lines.append(
            {"kind": "memory", "step": 10 * look, "at_ns": BEGIN + 400 * look * MS, "resident": resident, **own}
        )
    return lines


def run_with(folder, *ranks):
    lines = [
        process_lines(rank, len(ranks), ddp_steps(rank, lambda _: [0.0] * len(ranks), STEPS), lines=own)
        for rank, own in enumerate(ranks)
    ]
    return found_in(write(folder, *lines))


def growing(look):
    return 1000 + 2.0 * look


def test_growth_is_per_hour(tmp_path):
    (rank,) = run_with(tmp_path, looks(growing)).memory
    assert rank.growth_per_h.value == pytest.approx(2.0 * MIB / 0.4 * 3600)
    assert rank.grows


def test_what_is_left_is_enough_for_as_long_as_the_growth_says(tmp_path):
    run = run_with(tmp_path, looks(growing, available=lambda _: 18_000 * MIB))
    sentence = sentences_of(run)["memory_growth"]
    assert "17.6 GiB an hour" in sentence
    assert "at that rate for 1 h" in sentence


def test_the_rank_that_grows_is_named(tmp_path):
    run = run_with(tmp_path, looks(lambda _: 1000), looks(growing))
    assert [rank.grows for rank in run.memory] == [False, True]
    assert "memory of rank 1 grew" in sentences_of(run)["memory_growth"]


NOISE = np.random.default_rng(1).normal(size=LOOKS)
SETTLED = {
    "constant": lambda _: 1000,
    "noise": lambda look: 1000 + 20 * NOISE[look],
    "one jump": lambda look: 1000 + 200 * (look > 30),
    "warm-up that settles": lambda look: 1000 + 200 * (1 - np.exp(-look / 6)),
    "little": lambda look: 1000 + 0.1 * look,
    "a saw": lambda look: 1000 + 20 * (look % 10),
    "shrinking": lambda look: 1200 - 2 * look,
}


@pytest.mark.parametrize("held", SETTLED.values(), ids=SETTLED)
def test_memory_that_does_not_grow_on_is_no_finding(tmp_path, held):
    run = run_with(tmp_path, looks(held))
    assert not run.memory[0].grows
    assert "memory_growth" not in sentences_of(run)


@pytest.mark.parametrize("seed", range(3))
def test_growth_within_noise_is_found(tmp_path, seed):
    noise = np.random.default_rng(seed).normal(size=LOOKS)
    (rank,) = run_with(tmp_path, looks(lambda look: growing(look) + 5 * noise[look])).memory
    assert rank.grows
    assert rank.growth_per_h.low < 2.0 * MIB / 0.4 * 3600 < rank.growth_per_h.high


def test_few_looks_show_no_growth(tmp_path):
    (rank,) = run_with(tmp_path, looks(growing)[:20]).memory
    assert rank.growth_per_h.value is None


def test_waits_for_pages_are_named_from_one_a_step_on(tmp_path):
    run = run_with(tmp_path, looks(growing, faults=lambda look: 40 * look, swapped=lambda _: 300 * MIB))
    assert "waited for 2," in sentences_of(run)["page_faults"]
    assert "300 MiB of it are swapped out" in sentences_of(run)["page_faults"]


def test_few_waits_for_pages_are_not_named(tmp_path):
    assert "page_faults" not in sentences_of(run_with(tmp_path, looks(growing, faults=lambda look: look)))


def test_the_answer_states_the_peak_on_host_and_device_and_what_is_left(tmp_path):
    device = {"0": [12 << 30, 14 << 30, 80 << 30]}
    run = run_with(tmp_path, looks(growing, available=lambda _: 9 << 30, devices=lambda _: device))
    (line,) = (line for line in run_notes(run) if "host's memory" in line)
    assert line == (
        "It takes up to 1.09 GiB of the host's memory, with 9 GiB left; "
        "on its device 14 GiB of 80 GiB reserved, 12 GiB allocated."
    )


def test_a_run_of_an_earlier_hook_shows_no_memory(tmp_path):
    run = run_with(tmp_path, [])
    assert run.memory[0].resident_peak is None
    assert not any("memory" in line for line in run_notes(run))
