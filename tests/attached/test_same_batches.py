"""Ranks that read the same batches, from records with a known truth."""

import pytest
from stored_processes import ddp_steps, found_in, process_lines, sentences_of, write

from steptime.report.attached import run_notes

READS = {
    "all the same": lambda _, number: number,
    "parts of their own": lambda rank, number: 1000 * rank + number,
    "pairs": lambda rank, number: 1000 * (rank // 2) + number,
    "one batch again and again": lambda _, __: 7,
    "few batches": lambda _, number: number if number < 3 else None,
    "one rank that is not read": lambda rank, number: number if rank else None,
    "one batch in common": lambda rank, number: number if number == 5 else 1000 * rank + number,
}


def job(folder, read, *, averaged=True, sums=None, collective=None, **facts):
    """Ranks whose steps take 40 ms and 8 samples; ``read`` gives the checksum of the first 16 batches of a rank."""
    world, lines, by = 4, [], facts.pop("by", "torch.distributed/gloo")
    for rank in range(world):
        steps = [{**step, "samples": 8} for step in ddp_steps(rank, lambda _: [0.0] * world)]
        for number in range(16):
            steps[number] |= {} if read(rank, number) is None else {"content": read(rank, number)}
        if not averaged:
            moved = {"collectives": {collective: [1, 400, 1_000_000]}} if collective else {}
            steps = [{**step, "backwards": [], **moved} for step in steps]
        weights = {"kind": "weights", "step": 40, "parameters": 2, "sums": sums(rank) if sums else [], **facts}
        lines.append(process_lines(rank, world, steps, lines=[weights] if sums or facts else [], by=by))
    return found_in(write(folder, *lines), 60_000.0)


@pytest.mark.parametrize(
    ("name", "groups", "per_step"),
    [
        ("all the same", [[0, 1, 2, 3]], 8.0),
        ("parts of their own", [], 32.0),
        ("pairs", [[0, 1], [2, 3]], 16.0),
        ("one batch again and again", [], 32.0),
        ("few batches", [], 32.0),
        ("one rank that is not read", [], 32.0),
        ("one batch in common", [], 32.0),
    ],
)
def test_what_several_ranks_read_counts_once(tmp_path, name, groups, per_step):
    throughput = job(tmp_path, READS[name]).throughput
    assert (throughput.same_batches, throughput.samples.per_step) == (groups, per_step)


@pytest.mark.parametrize("name", READS)
def test_ddp_whose_ranks_all_read_the_same_is_a_finding_and_nothing_else_is(tmp_path, name):
    sentence = sentences_of(job(tmp_path, READS[name])).get("same_batches")
    assert (sentence is not None) == (name == "all the same")
    assert sentence is None or sentence.startswith(
        "all 4 ranks train on the same batches (16 were compared): a step learns from 8 samples, not 32;"
    )


@pytest.mark.parametrize(
    ("sums", "is_named"),
    [(None, False), (lambda rank: [1.0, 2.0 + rank], False), (lambda _: [1.0, 2.0], True)],
    ids=["no weights", "pieces of a model", "equal weights"],
)
def test_ranks_without_ddp_read_the_same_by_mistake_where_their_weights_are_equal(tmp_path, sums, is_named):
    run = job(tmp_path, READS["all the same"], averaged=False, sums=sums)
    assert ("same_batches" in sentences_of(run)) == is_named
    assert run.throughput.same_batches == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("all the same", "8.00 a step; all ranks read the same batches."),
        ("pairs", "16.0 a step; ranks read the same batches in groups (0, 1; 2, 3)."),
        ("parts of their own", "32.0 a step."),
    ],
)
def test_the_answer_names_who_reads_the_same(tmp_path, name, words):
    (line,) = (line for line in run_notes(job(tmp_path, READS[name])) if "samples/s" in line)
    assert line.endswith(words)


@pytest.mark.parametrize(
    ("averaging", "collective", "is_named"),
    [
        (4, "backward:_reduce_scatter_base", True),
        (4, "backward:allreduce", True),
        (2, "backward:_reduce_scatter_base", False),
        (0, "backward:_reduce_scatter_base", False),
        (4, "forward:_allgather_base", False),
    ],
    ids=["FSDP", "an engine", "pairs that hold halves of layers", "not known", "nothing averaged yet"],
)
def test_fsdp_and_engines_that_average_over_all_ranks_are_named_without_a_sampler(
    tmp_path, averaging, collective, is_named
):
    run = job(tmp_path, READS["all the same"], averaged=False, averaging=averaging, collective=collective)
    assert ("same_batches" in sentences_of(run)) == is_named


@pytest.mark.parametrize(
    ("read", "by", "collective", "is_named"),
    [
        ("all the same", "horovod", "backward:allreduce_async_", True),
        ("all the same", "horovod", "none:grouped_allreduce_async_", True),
        ("parts of their own", "horovod", "backward:allreduce_async_", False),
        ("all the same", "horovod", "update:wait", False),
        ("all the same", "torch.distributed/gloo", "backward:allreduce_async_", False),
    ],
    ids=["one by one", "in groups", "a sampler", "nothing averaged", "another library"],
)
def test_ranks_whose_gradients_horovod_averages_are_named_without_a_sampler(tmp_path, read, by, collective, is_named):
    run = job(tmp_path, READS[read], averaged=False, collective=collective, by=by)
    assert ("same_batches" in sentences_of(run)) == is_named


def test_equal_weights_name_no_sampler_where_ranks_hold_others_in_pieces(tmp_path):
    run = job(tmp_path, READS["all the same"], averaged=False, sums=lambda _: [1.0, 2.0], pieces=3)
    assert "same_batches" not in sentences_of(run)
