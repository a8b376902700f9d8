"""Samples and tokens a second of an attached run, from records with a known truth."""

import pytest
from stored_processes import ddp_job, ddp_steps, found_in, process_lines, write

from steptime.report.attached import run_notes


def job(folder, amounts, late=lambda _: [0.0, 0.0], steps=40):
    """Two ranks whose steps take 40 ms; ``amounts`` gives what the step of a rank has of its batches."""
    lines = []
    for rank in range(2):
        own = ddp_steps(rank, late, steps)
        lines.append(process_lines(rank, 2, [{**step, **amounts(rank, step["number"])} for step in own]))
    return found_in(write(folder, *lines), 60_000.0)


def test_samples_of_all_ranks_are_over_the_step(tmp_path):
    found = job(tmp_path, lambda _, __: {"samples": 8}).throughput.samples
    assert (found.per_s.value, found.per_step) == pytest.approx((400.0, 16.0))
    assert found.ranks_per_s == pytest.approx([200.0, 200.0])


def test_ranks_with_batches_of_their_own_size_are_told_apart(tmp_path):
    found = job(tmp_path, lambda rank, _: {"samples": 8 + 8 * rank}).throughput.samples
    assert found.ranks_per_s == pytest.approx([200.0, 400.0])


def test_differing_batches_count_as_their_mean(tmp_path):
    found = job(tmp_path, lambda _, number: {"samples": 4 + 8 * (number % 2)}).throughput.samples
    assert found.per_s.value == pytest.approx(400.0, rel=0.02)


def test_the_interval_is_narrow_where_larger_batches_take_longer(tmp_path):
    found = job(
        tmp_path,
        lambda _, number: {"samples": 8 + 8 * (number % 2)},
        late=lambda number: [40.0 * (number % 2)] * 2,
    ).throughput.samples.per_s
    assert found.high - found.low < 0.02 * found.value


def test_a_last_step_whose_batch_came_before_is_left_out(tmp_path):
    found = job(tmp_path, lambda _, number: {"samples": 8 * (number < 39)}).throughput.samples
    assert found.per_s.value == pytest.approx(400.0)


def test_an_epoch_that_begins_with_two_requests_loses_nothing(tmp_path):
    amounts = {19: 0, 20: 16}
    found = job(tmp_path, lambda _, number: {"samples": amounts.get(number, 8)}).throughput.samples
    assert found.per_s.value == pytest.approx(400.0)


def test_padding_is_of_all_masks_looked_at_also_in_steps_that_are_left_out(tmp_path):
    few = {"mask": [256, 128]}
    found = job(tmp_path, lambda _, number: {"samples": 2, "tokens": 256, **(few if number < 1 else {})}).throughput
    assert found.padding == pytest.approx(0.5)


def test_padding_is_the_share_of_masked_tokens(tmp_path):
    found = job(tmp_path, lambda _, __: {"samples": 2, "tokens": 256, "mask": [256, 192]}).throughput
    assert (found.padding, found.tokens.per_s.value) == pytest.approx((0.25, 12_800.0))


@pytest.mark.parametrize(
    ("amounts", "words"),
    [({"flags": ["no_loader"]}, "no loader that steptime knows was seen"), ({}, "do not share a first dimension")],
    ids=["no loader", "no array"],
)
def test_unknown_samples_have_their_reason(tmp_path, amounts, words):
    run = job(tmp_path, lambda _, __: amounts)
    assert run.throughput.samples.per_s.value is None
    assert words in run.throughput.samples.reason
    assert any(line.startswith("Samples/s are not known") for line in run_notes(run))


def test_the_answer_states_both_rates(tmp_path):
    run = job(tmp_path, lambda _, __: {"samples": 8, "tokens": 512})
    (line,) = (line for line in run_notes(run) if "samples/s" in line)
    assert line.startswith("The ranks train on 400 samples/s (400 to 400) and 25600 tokens/s")


def test_one_step_without_its_batch_makes_no_number(tmp_path):
    run = job(tmp_path, lambda _, number: {"samples": 8} if number != 20 else {})
    assert run.throughput.samples.per_s.value is None


def test_a_run_of_an_earlier_hook_has_no_rate(tmp_path):
    assert ddp_job(tmp_path, lambda _: [0.0, 0.0]).throughput.samples.per_s.value is None


def test_a_graph_that_takes_its_batches_itself_is_why_samples_are_not_known(tmp_path):
    hidden = {"kind": "unseen", "phases": ["input_wait"], "reason": "the graph takes its batches itself"}
    steps = [{**step, "flags": ["no_loader"]} for step in ddp_steps(0, lambda _: [0.0])]
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=[hidden])), 60_000.0)
    assert "Samples/s are not known: the graph takes its batches itself." in list(run_notes(run))


@pytest.mark.parametrize(
    ("own", "samples", "note"),
    [
        (
            {"samples": 16, "asked": 8},
            16,
            "samples are those that the loader was asked for, 2 rows each in the batches",
        ),
        ({"samples": 1, "asked": 8}, 16, "samples are those that the loader was asked for, joined to one row"),
        ({"samples": 7, "asked": 8}, 14, ""),
        ({"samples": 96, "asked": 8, "micro_steps": 2}, 16, "12 rows each in the batches"),
        ({"samples": 32, "asked": 1}, 64, "samples are rows of batches, 32 for each that the loader was asked for"),
        ({"samples": 8}, 16, ""),
    ],
    ids=["pairs", "packed", "some left out", "crops", "batches of a dataset", "plain"],
)
def test_samples_are_what_loaders_were_asked_for_and_what_they_are_is_said(tmp_path, own, samples, note):
    run = job(tmp_path, lambda _, __: own)
    assert run.throughput.samples.per_step == samples
    assert note in "\n".join(run.notes)
    assert ("samples are" in "\n".join(run.notes)) is bool(note)


@pytest.mark.parametrize(
    ("size", "named"),
    [
        (lambda number: 8 << number // 20, "20 steps of 8, 20 steps of 16, 20 steps of 32 samples"),
        (lambda number: 8 + 8 * (number % 2), ""),
        (lambda number: 8 if number % 20 < 19 else 3, ""),
        (lambda _: 8, ""),
    ],
    ids=["grows", "takes turns", "last of an epoch", "one size"],
)
def test_sizes_of_batches_that_change_for_good_are_named(tmp_path, size, named):
    run = job(tmp_path, lambda _, number: {"samples": size(number)}, steps=60)
    notes = "\n".join(run.notes)
    assert named in notes
    assert ("change for good" in notes) is bool(named)


ANEW = {
    "rows of batches made anew": ({"rows": 32, "samples": 48}, {"rows": 32, "requests": 0}, 64.0, ""),
    "rows of another dimension": ({"rows": 99, "samples": 48}, {"rows": 99, "requests": 0}, None, "not those of"),
    "rows that are not known": ({"samples": 48}, {"requests": 0}, None, "ask loaders for 0 to 1 batches each"),
    "rows of two loaders": (
        {"samples": 48, "flags": ["mixed"], "requests": 2},
        {"samples": 16},
        None,
        "for 1 to 2 batches",
    ),
}


IN_HAND = {
    "all of it": ({"rows": 32}, 64.0, ""),
    "parts of it": ({"rows": 8}, 16.0, ""),
    "more than it has": ({"rows": 99}, None, "steps ask no loader for a batch, as where one is in hand"),
    "nothing seen": ({}, None, "steps ask no loader for a batch, as where one is in hand"),
}


@pytest.mark.parametrize("name", IN_HAND)
def test_of_a_batch_in_hand_samples_are_the_rows_that_go_forward(tmp_path, name):
    own, per_step, words = IN_HAND[name]
    run = job(tmp_path, lambda _, number: {"requests": 0, **own} if number else {"samples": 32, **own})
    assert (run.throughput.samples.per_step, words in (run.throughput.samples.reason or "")) == (per_step, True)
    assert any("steps ask loaders for no batch" in note for note in run_notes(run)) == (per_step is not None)


@pytest.mark.parametrize("name", ANEW)
def test_where_steps_ask_unevenly_samples_are_the_rows_that_go_forward(tmp_path, name):
    asking, holding, per_step, words = ANEW[name]
    found = job(tmp_path, lambda _, number: holding if number % 3 == 1 else asking).throughput.samples
    assert found.per_step == per_step
    assert words in (found.reason or "")


@pytest.mark.parametrize("lost", [19, 20], ids=["the last before", "the first behind"])
def test_of_a_wrapper_that_asks_ahead_one_side_of_an_evaluation_changes_no_rate(tmp_path, lost):
    ahead = {19: {"samples": 0, "tokens": 0, "rows": 8, "requests": 0}}
    ahead[20] = {"samples": 16, "tokens": 256, "rows": 8, "requests": 2}
    usual = {"samples": 8, "tokens": 128}
    spoilt = {lost: {**ahead[lost], "flags": ["evaluated"]}}
    found = job(tmp_path, lambda _, number: {**ahead, **spoilt}.get(number, usual)).throughput
    assert (found.samples.per_s.value, found.tokens.per_s.value) == pytest.approx((400.0, 6400.0))
    assert (found.samples.per_step, found.tokens.per_step) == (16.0, 256.0)


KEPT = {
    "rows of one batch": (lambda _: {"rows": 32, "requests": 0, "flags": ["same_batch"]}, 64.0, True),
    "rows of a list of batches": (lambda _: {"rows": 32, "requests": 0}, 64.0, False),
    "rows of other arrays": (lambda _: {"rows": 40, "requests": 0}, None, False),
    "no rows": (lambda _: {"requests": 0}, None, False),
}


@pytest.mark.parametrize("name", KEPT)
def test_where_batches_are_in_hand_samples_are_rows_as_many_as_a_loader_gave(tmp_path, name):
    kept, per_step, same = KEPT[name]
    run = job(tmp_path, lambda _, number: kept(number) if number else {"samples": 32})
    assert run.throughput.samples.per_step == per_step
    notes = "\n".join(run_notes(run))
    assert ("samples are rows that went forward: steps ask loaders for no batch" in notes) == (per_step is not None)
    assert ("every step trains on one and the same batch" in notes) == same


def test_several_steps_on_each_batch_are_not_called_one_batch_where_the_first_of_each_are_left_out(tmp_path):
    """As where the first step of each batch is beside an evaluation, or behind acting."""
    steps = [{**each, "samples": 8} for each in ddp_steps(0, lambda _: [0.0, 0.0], 40)]
    for number, each in enumerate(steps):
        if number % 4:
            each["flags"] = ["same_batch"]
        elif number:
            each["apart"] = {"begin_ns": each["begin_ns"], "end_ns": each["begin_ns"] + 1, "regions": {}, "gaps": {}}
    run = found_in(write(tmp_path, process_lines(0, 1, steps)), 60_000.0)
    assert not any("one and the same batch" in note for note in run.notes)


def test_passes_beside_micro_steps_are_named(tmp_path):
    notes = run_notes(job(tmp_path, lambda _, __: {"samples": 8, "dropped": 3}))
    assert any("steps have 3 more backward passes, whose gradients the script drops" in note for note in notes)


BY_HAND = {"flags": ["no_loader"], "tokens": 512}


def test_without_a_loader_the_tensors_that_go_forward_are_counted_and_named(tmp_path):
    run = job(tmp_path, lambda _, __: BY_HAND)
    assert (run.throughput.tokens.per_step, run.throughput.samples.per_s.value) == (1024.0, None)
    notes = list(run_notes(run))
    assert any(line.startswith("The ranks train on 25600 tokens/s (25600 to 25600), 1024 a step") for line in notes)
    note = "tokens are of the arrays that go forward: no loader that steptime knows was seen"
    assert f"note: {note}" in notes


@pytest.mark.parametrize("backwards", [True, False], ids=["averaged", "not averaged"])
def test_ranks_that_were_not_compared_count_each_where_they_average_gradients(tmp_path, backwards):
    own = {**BY_HAND, **({} if backwards else {"backwards": []})}
    tokens = job(tmp_path, lambda _, __: own).throughput.tokens
    assert tokens.per_step == (1024.0 if backwards else None)
    assert tokens.ranks_per_s == [12_800.0, 12_800.0]
    assert (tokens.reason is None) == backwards


def test_why_what_goes_forward_is_not_counted_is_behind_that_there_is_no_loader(tmp_path):
    why = {"kind": "unseen", "phases": ["samples", "tokens"], "reason": "several arrays go forward for one update"}
    steps = [{**step, "flags": ["no_loader"]} for step in ddp_steps(0, lambda _: [0.0])]
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=[why])), 60_000.0)
    reason = "no loader that steptime knows was seen, and several arrays go forward for one update"
    assert run.throughput.samples.reason == run.throughput.tokens.reason == reason
    assert not {"samples", "tokens"} & {part.name for part in run.parts}


def dispatched(folder, own, *, world=2, steps=40):
    """Ranks of which the first reads for all others; ``own`` is what its steps have, by their number."""
    other = {"samples": 8, "tokens": 128, "flags": ["no_loader"]}
    lines = []
    for rank in range(world):
        found = ddp_steps(rank, lambda _: [0.0] * world, steps)
        lines.append(
            process_lines(rank, world, [{**step, **(other if rank else own(step["number"]))} for step in found])
        )
    return found_in(write(folder, *lines), 60_000.0)


DISPATCHED = {
    "a batch in parts": lambda _: {"samples": 16, "rows": 8, "tokens": 256},
    "a batch of each rank": lambda _: {"requests": 2, "samples": 16, "rows": 8, "tokens": 256},
    "one asked for ahead": lambda number: {
        "requests": {0: 2, 39: 0}.get(number, 1),
        "samples": 16 * {0: 2, 39: 0}.get(number, 1),
        "rows": 8,
        "tokens": 256 * {0: 2, 39: 0}.get(number, 1),
    },
}


@pytest.mark.parametrize("name", DISPATCHED)
def test_a_rank_that_reads_for_others_counts_what_it_keeps(tmp_path, name):
    run = dispatched(tmp_path, DISPATCHED[name])
    assert (run.throughput.samples.per_step, run.throughput.tokens.per_step) == pytest.approx((16.0, 256.0), rel=0.02)
    assert "samples are rows that went forward: ranks ask loaders for the batches of others" in run.notes


def test_a_rank_that_reads_for_two_others_counts_a_third(tmp_path):
    run = dispatched(tmp_path, lambda _: {"samples": 24, "rows": 8, "tokens": 384}, world=3)
    assert (run.throughput.samples.per_step, run.throughput.tokens.per_step) == pytest.approx((24.0, 384.0))


def test_a_rank_whose_rows_are_no_share_of_its_batches_reads_for_itself(tmp_path):
    run = dispatched(tmp_path, lambda _: {"samples": 12, "rows": 8, "tokens": 192})
    assert run.throughput.samples.per_step == pytest.approx(20.0)
