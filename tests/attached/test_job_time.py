"""The uses of a job's time sum to it, for every rank."""

import pytest
from stored_processes import BEGIN, COMMAND, MS, ddp_steps, found_in, process_lines, sentences_of, step, write


def job_of(run):
    return {part.name: part for part in run.job}


def alternating(rank, evaluating=(), saving=(), wait_ms=0.0, beside_ms=0):
    """Steps of 60 ms, with an evaluation of 500 ms, a checkpoint of 200 ms or a wait in some, and what lies beside."""
    found, begin = [], BEGIN
    for number in range(40):
        longer = wait_ms if number - 1 in evaluating else 0.0
        own = number in evaluating and not wait_ms
        regions = {"input": 20.0, "forward": 10.0, "backward": 25.0 + longer, "update": 5.0}
        if number in saving:
            regions["save"] = 200.0
        at = begin + 30 * MS
        end = at + round((25.0 + longer) * MS)
        last = at + 20 * MS
        more = {"apart_ms": 500.0} if own else {}
        one = step(number, begin, regions, backwards=[[at, last, end, True]], **more)
        one["duration_ns"] += beside_ms * MS * (own or number in saving)
        begin += one["duration_ns"]
        found.append(one)
    return found


def test_the_parts_sum_to_the_time_of_the_command(tmp_path):
    lines = process_lines(0, 1, alternating(0, evaluating=(10, 20), saving=(30,)))
    run = found_in(write(tmp_path, lines), 9_000.0)
    assert sum(part.time_s for part in run.job) == pytest.approx(9.0)
    assert run.wall_s == pytest.approx(9.0)


def test_each_use_has_its_seconds(tmp_path):
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0, evaluating=(10, 20), saving=(30,)))), 9_000.0)
    job = job_of(run)
    assert job["start_up"].time_s == pytest.approx((BEGIN - COMMAND) / 1e9)
    assert (job["evaluation"].time_s, job["evaluation"].count) == (pytest.approx(1.0), 2)
    assert (job["checkpoint"].time_s, job["checkpoint"].count) == (pytest.approx(0.2), 1)
    assert job["input"].time_s == pytest.approx(40 * 0.020)
    assert job["steps"].time_s == pytest.approx(40 * 0.040)
    assert job["end"].time_s == pytest.approx(9.0 - 3.0 - 40 * 0.060 - 1.2)


def outside(*, before, evaluation_ms=0, save_ms=0):
    return {"kind": "outside", "before": before, "evaluation_ns": evaluation_ms * MS, "save_ns": save_ms * MS}


def test_evaluations_and_checkpoints_in_no_step_are_parts_of_the_job(tmp_path):
    lines = [outside(before=True, evaluation_ms=2000), outside(before=False, evaluation_ms=1500, save_ms=500)]
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0, evaluating=(10,)), lines=lines)), 9_000.0)
    job = job_of(run)
    assert (job["evaluation"].time_s, job["evaluation"].count) == (pytest.approx(0.5 + 2.0 + 1.5), 3)
    assert (job["checkpoint"].time_s, job["checkpoint"].count) == (pytest.approx(0.5), 1)
    assert job["start_up"].time_s == pytest.approx(1.0)
    assert job["end"].time_s == pytest.approx(9.0 - 3.0 - 40 * 0.060 - 0.5 - 2.0)
    assert sum(part.time_s for part in run.job) == pytest.approx(9.0)
    assert (
        "3 evaluations (or other passes without gradient between steps) take 4 s, 44 % of the job"
        in sentences_of(run)["evaluation"]
    )
    assert sentences_of(run)["start_up"].startswith("1 s pass before the first step beside the evaluations and")


@pytest.mark.parametrize("before", [True, False])
def test_an_evaluation_in_no_step_takes_at_most_the_time_around_it(tmp_path, before):
    lines = [outside(before=before, evaluation_ms=10**9)]
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0), lines=lines)), 9_000.0)
    assert sum(part.time_s for part in run.job) == pytest.approx(9.0)
    assert ("start_up" if before else "end") not in job_of(run)


def test_ranks_that_wait_for_an_evaluation_of_one_are_held_up(tmp_path):
    processes = [
        process_lines(0, 2, alternating(0, evaluating=(10, 20))),
        process_lines(1, 2, alternating(1, evaluating=(10, 20), wait_ms=500.0)),
    ]
    # What the first rank computes behind its evaluation comes 500 ms later than what the other does.
    run = found_in(write(tmp_path, *processes), 9_000.0)
    job = job_of(run)
    assert job["evaluation"].ranks_s == pytest.approx([1.0, 0.0])
    assert job["held_up"].ranks_s == pytest.approx([0.0, 1.0], abs=0.01)
    assert "rank 0 evaluates 2 times while the others wait" in sentences_of(run)["evaluation_on_few_ranks"]


@pytest.mark.parametrize("evaluating", [(), (10, 20)])
def test_ranks_wait_for_no_evaluation_behind_the_last_step(tmp_path, evaluating):
    late = {"evaluating": (10, 20), "wait_ms": 500.0}  # behind evaluations of rank 0, or its checkpoints
    first = alternating(0, evaluating=evaluating, saving=() if evaluating else (10, 20))
    last = outside(before=False, evaluation_ms=900)
    processes = [process_lines(0, 2, first, lines=[last]), process_lines(1, 2, alternating(1, **late))]
    run = found_in(write(tmp_path, *processes), 9_000.0)
    assert job_of(run)["evaluation"].count == len(evaluating) + 1
    said = sentences_of(run).get("evaluation_on_few_ranks", "")
    assert said.startswith("rank 0 evaluates 2 times while the others wait, 1 s in all" if evaluating else "")
    lost = [finding.lost_s for finding in run.findings if finding.kind == "evaluation_on_few_ranks"]
    assert lost == ([pytest.approx(1.0, abs=0.01)] if evaluating else [])


def test_steps_that_are_on_record_as_sums_count(tmp_path):
    steps = alternating(0)[:20]
    end = steps[-1]["begin_ns"] + steps[-1]["duration_ns"]
    summed = {
        "kind": "steps",
        "first": 20,
        "last": 119,
        "begin_ns": end,
        "duration_ns": 6000 * MS,
        "micro_steps": 100,
        "regions": {"input": 2000 * MS, "forward": 4000 * MS},
        "apart_ns": 0,
    }
    run = found_in(write(tmp_path, process_lines(0, 1, steps, lines=[summed])), 12_000.0)
    job = job_of(run)
    assert job["steps"].count == 120
    assert job["input"].time_s == pytest.approx(20 * 0.020 + 2.0)
    assert any("sums, since steps are short: 100 of 120 steps;" in note for note in run.notes)


def test_a_checkpoint_that_stalls_the_job_is_found(tmp_path):
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0, saving=range(5, 35, 3)))), 9_000.0)
    assert "10 checkpoints take 2 s" in sentences_of(run)["checkpoint"]


def test_the_rank_that_saves_is_named_where_others_do_not(tmp_path):
    saving = alternating(0, saving=range(5, 35, 3))
    run = found_in(write(tmp_path, process_lines(0, 2, saving), process_lines(1, 2, alternating(1))), 9_000.0)
    assert "10 checkpoints of rank 0 take 2 s" in sentences_of(run)["checkpoint"]


def test_no_rank_is_named_where_all_save(tmp_path):
    ranks = [process_lines(rank, 2, alternating(rank, saving=range(5, 35, 3))) for rank in range(2)]
    assert "10 checkpoints take 2 s" in sentences_of(found_in(write(tmp_path, *ranks), 9_000.0))["checkpoint"]


@pytest.mark.parametrize(
    ("saving", "step_ms"),
    [
        (range(40), 260.0),
        (range(0, 40, 2), 160.0),
        (range(1, 39, 2), 155.0),
        ([*range(10), *range(20, 40)], 210.0),
        (range(0, 40, 5), 60.0),
    ],
    ids=["all", "every-other", "every-other-but-the-last", "most", "few"],
)
def test_checkpoints_of_half_the_steps_and_more_are_a_part_of_the_step(tmp_path, saving, step_ms):
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0, saving=saving))), 12_000.0)
    assert run.step_s.value == pytest.approx(step_ms / 1e3, rel=0.02)
    saved = sum(part.time_s.value for part in run.parts if part.name == "checkpoint")
    assert saved == pytest.approx(run.step_s.value - 0.060)


def test_checkpoints_that_are_a_part_of_steps_make_none_of_them_longer(tmp_path):
    run = found_in(write(tmp_path, process_lines(0, 1, alternating(0, saving=range(40)))), 12_000.0)
    assert "what lies beside them" not in sentences_of(run)["checkpoint"]


@pytest.mark.parametrize(
    ("work", "beside_ms", "is_named"),
    [("saving", 400, True), ("evaluating", 400, True), ("saving", 5, False), ("evaluating", 0, False)],
)
def test_an_upload_or_a_metric_behind_other_work_is_named_with_it(tmp_path, work, beside_ms, is_named):
    steps = alternating(0, **{work: range(20, 38, 3)}, beside_ms=beside_ms)
    said = sentences_of(found_in(write(tmp_path, process_lines(0, 1, steps)), 12_000.0))
    sentence = said["checkpoint" if work == "saving" else "evaluation"]
    assert ("; what lies beside them makes their steps 2.4 s longer in all" in sentence) == is_named


def test_the_end_of_a_command_that_was_killed_with_steptime_is_not_known(tmp_path):
    run = found_in(write(tmp_path, process_lines(0, 2, ddp_steps(0, lambda _: [0.0, 0.0]))), None)
    assert run.wall_s is None
    assert "end" not in job_of(run)


def test_a_process_on_another_host_is_placed_by_the_time_of_day(tmp_path):
    lines = process_lines(0, 1, alternating(0), boot="boot-9")
    for each in lines:
        if each["kind"] == "step":
            each["begin_ns"] += 777_000 * MS
            each["backwards"] = []
    lines[0]["clock"] = {"wall_ns": COMMAND, "monotonic_ns": COMMAND + 777_000 * MS}
    run = found_in(write(tmp_path, lines), 9_000.0)
    assert job_of(run)["start_up"].time_s == pytest.approx(3.0)
