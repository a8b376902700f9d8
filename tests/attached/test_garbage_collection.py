"""Collections of garbage are named as what they are, with the waiting of the others."""

import pytest
from stored_processes import MS, ddp_steps, found_in, part_of, process_lines, sentences_of, write

from steptime.diagnosis.rules import script_findings
from steptime.report.attached import part_rows

STEPS, COLLECTION_MS = 48, 60.0


def run_with(folder, lateness, ranks=2):
    """What is found where what a forward pass takes longer than 5 ms is a collection of garbage."""
    lines = []
    for rank in range(ranks):
        steps = ddp_steps(rank, lateness, STEPS)
        for step in steps:
            if extra := step["regions"]["forward"] - 5 * MS:
                step["regions"] |= {"forward": 5 * MS, "collection": extra}
                step["collections"] = [1, extra]
        lines.append(process_lines(rank, ranks, steps))
    return found_in(write(folder, *lines))


def in_turn(number):
    return [COLLECTION_MS * (number % 2 == rank) for rank in range(2)]


def test_a_collection_is_a_part_of_the_step(tmp_path):
    part = part_of(run_with(tmp_path, in_turn), "garbage_collection")
    assert (part.time_s.value, part.gap) == (pytest.approx(COLLECTION_MS / 2000), False)


def test_staggered_collections_count_with_the_waiting_for_them(tmp_path):
    sentence = sentences_of(run_with(tmp_path, in_turn))["garbage_collection"]
    assert "on the ranks at different times" in sentence
    assert "a step is 60 ms longer for it" in sentence
    assert "of up to 60 ms" in sentence


def test_collections_in_the_same_steps_have_no_such_waiting(tmp_path):
    sentence = sentences_of(run_with(tmp_path, lambda number: [COLLECTION_MS * (number % 2)] * 2))["garbage_collection"]
    assert "on all ranks in the same steps" in sentence
    assert "longer for it" not in sentence


def test_one_process_waits_for_no_other(tmp_path):
    sentence = sentences_of(run_with(tmp_path, lambda _: [COLLECTION_MS], ranks=1))["garbage_collection"]
    assert "ranks" not in sentence


@pytest.mark.parametrize("lateness", [lambda _: [0.0, 0.0], lambda number: [30.0 * (number == 9), 0.0]])
def test_none_or_a_single_collection_is_not_named(tmp_path, lateness):
    assert "garbage_collection" not in sentences_of(run_with(tmp_path, lateness))


def test_advice_is_to_collect_together(tmp_path):
    finding = next(one for one in script_findings(run_with(tmp_path, in_turn)) if one.rule == "own_garbage")
    assert "gc.freeze()" in finding.change
    assert finding.evidence[0].value.value == pytest.approx(0.6, rel=0.1)


def test_little_collection_is_in_the_rest_of_the_answer(tmp_path):
    run = run_with(tmp_path, lambda number: [0.5 * (number % 4 == 0)] * 2)
    assert part_of(run, "garbage_collection").time_s.value > 0.0
    assert "garbage collection" not in [row[0] for row in part_rows(run, 4)]
