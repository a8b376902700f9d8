"""A cause that is on one rank after the other costs a step what all wait for it, not its mean over ranks."""

import pytest
from stored_processes import MS, ddp_job, ddp_steps, found_in, part_of, process_lines, sentences_of, write

from steptime.diagnosis.rules import script_findings

RANKS, STEPS, COLLECTION_MS = 4, 48, 60.0
"""A step takes 40 ms without a collection."""


def late(number: int, every: int = 1) -> list[float]:
    """Return a late rank in one of ``every`` steps: each in turn."""
    return [COLLECTION_MS * (number % every == 0 and number // every % RANKS == rank) for rank in range(RANKS)]


def in_a_gap(steps):
    """Put what the forward pass takes longer than 5 ms between it and the backward pass."""
    for one in steps:
        extra = one["regions"]["forward"] - 5 * MS
        one["regions"]["forward"] -= extra
        one["gaps"] = {"forward>backward": extra} if extra else {}
    return steps


def gap_run(folder, lateness):
    lines = [process_lines(rank, RANKS, in_a_gap(ddp_steps(rank, lateness, STEPS))) for rank in range(RANKS)]
    return found_in(write(folder, *lines))


def test_a_part_that_ranks_have_in_turn_costs_the_step_all_of_it(tmp_path):
    part = part_of(ddp_job(tmp_path, late, RANKS, steps=STEPS), "forward")
    assert part.time_s.value == pytest.approx(0.005 + COLLECTION_MS / 1000 / RANKS)
    assert part.gain_s.value == pytest.approx(0.005 + COLLECTION_MS / 1000)


def test_a_part_that_all_ranks_have_alike_costs_the_step_its_mean(tmp_path):
    part = part_of(ddp_job(tmp_path, lambda _: [0.0] * RANKS, RANKS), "forward")
    assert part.gain_s.value == pytest.approx(part.time_s.value)


def test_a_part_of_one_slow_rank_costs_the_step_what_that_rank_takes(tmp_path):
    part = part_of(ddp_job(tmp_path, lambda _: [0.0, 15.0]), "forward")
    assert part.gain_s.value == pytest.approx(0.020)


def test_one_process_has_no_such_gain(tmp_path):
    steps = ddp_steps(0, lambda _: [0.0])
    assert part_of(found_in(write(tmp_path, process_lines(0, 1, steps))), "forward").gain_s.value is None


@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_gain_of_code_that_ranks_run_in_turn_is_that_of_the_whole_step(tmp_path, every):
    run = gap_run(tmp_path, lambda number: late(number, every))
    finding = next(each for each in script_findings(run) if each.rule == "own_gap")
    share = COLLECTION_MS / every / (40.0 + COLLECTION_MS / every)
    assert finding.evidence[0].value.value == pytest.approx(share, rel=0.1)


def test_the_sentence_counts_the_waiting_of_the_others(tmp_path):
    said = sentences_of(gap_run(tmp_path, late))["gaps"]
    assert "the others wait for whom it takes longest: a step is 60 ms" in said
