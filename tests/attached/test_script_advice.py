"""Rules about a user's own script: each fires on its planted cause, with its gain, and none on noise."""

import sys

import pytest
from stored_processes import MS, ddp_job, ddp_steps, found_in, process_lines, write
from test_attached_comparison import a_run, compared
from test_rotating_culprit import in_a_gap

from steptime.cli.app import run_program
from steptime.diagnosis.rules import script_findings
from steptime.execution.progress import Silent
from steptime.results.json_form import Interval
from steptime.results.store import Store
from steptime.runner.attached_run import OUTPUT, run_in_turns

STEP_MS = 40.0
"""Of which 20 are waiting for input and 4 are exchange."""


def by_rule(run):
    return {each.rule: each for each in script_findings(run)}


@pytest.fixture(scope="module")
def straggling(tmp_path_factory):
    """Rank 1 is 15 ms late in each step."""
    return ddp_job(tmp_path_factory.mktemp("late"), lambda _: [0.0, 15.0])


def test_a_wait_for_input_is_a_finding_with_its_share(tmp_path):
    found = by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0]))["own_input"]

    assert found.evidence[0].value.value == pytest.approx(20.0 / STEP_MS, rel=0.02)


def test_a_gain_is_at_most_that_of_a_step_without_the_part(tmp_path):
    gain = by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0]))["own_input"].rule_gain

    assert 0.9 <= gain.low < 1.0 < gain.value < gain.high <= 1.0 / (1.0 - 20.0 / STEP_MS) * 1.01


def test_a_gain_reaches_that_of_a_step_without_the_part(tmp_path):
    gain = by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0]))["own_input"].rule_gain

    assert gain.high == pytest.approx(1.0 / (1.0 - 20.0 / STEP_MS), rel=0.01)


def test_a_rank_that_is_waited_for_is_named(straggling):
    assert "rank 1" in by_rule(straggling)["own_straggler"].claim


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("forward>forward", "its time between forward and forward"),
        ("update>input_wait", "its time between update and input"),
        ("forward", "its forward"),
    ],
)
def test_what_a_straggler_is_to_shorten_is_a_noun(straggling, part, words):
    whom = straggling.waited_for.model_copy(update={"part": part})
    run = straggling.model_copy(update={"waited_for": whom})
    assert words in by_rule(run)["own_straggler"].change


def busy(run, share, part="forward", pressure=0.9, load=2.0):
    """The run on a machine of which other programs keep 1.2 cores busy, with a part that is longer by a share."""
    whom = run.waited_for.model_copy(update={"part": part, "part_share": share})
    noise = {"foreign_cpu_cores": 1.2, "cpu_pressure_share": pressure, "load_1min_after": load}
    return run.model_copy(update={"waited_for": whom, "noise": noise})


@pytest.mark.parametrize(
    ("share", "part", "load"), [(0.83, "update", 2.0), (1.1, "forward", 2.0), (None, None, 2.0), (2.9, "forward", 9.0)]
)
def test_a_rank_that_other_programs_may_have_slowed_is_not_advised_on(straggling, share, part, load):
    assert "own_straggler" not in by_rule(busy(straggling, share, part, load=load))


@pytest.mark.parametrize(("share", "pressure"), [(2.9, 0.9), (None, 0.9), (0.83, 0.01)])
def test_a_rank_that_is_slower_than_other_programs_explain_is_advised_on(straggling, share, pressure):
    assert "own_straggler" in by_rule(busy(straggling, share, pressure=pressure))


def test_a_script_that_saves_in_each_step_is_told_to_save_seldom(tmp_path):
    saving = [
        {**each, "duration_ns": each["duration_ns"] + 10 * MS, "regions": {**each["regions"], "save": 10 * MS}}
        for each in ddp_steps(0, lambda _: [0.0, 0.0])
    ]
    found = by_rule(found_in(write(tmp_path, process_lines(0, 1, saving)), 12_000.0))["own_checkpoint"]

    assert found.evidence[0].value.value == pytest.approx(10.0 / (STEP_MS + 10.0), rel=0.02)


def with_region(folder, name, took_ms, **more):
    """A run whose steps have a further region."""
    steps = [
        {
            **each,
            "duration_ns": each["duration_ns"] + took_ms * MS,
            "begin_ns": each["begin_ns"] + number * took_ms * MS,
            "regions": {**each["regions"], name: took_ms * MS},
        }
        for number, each in enumerate(ddp_steps(0, lambda _: [0.0, 0.0]))
    ]
    return found_in(write(folder, process_lines(0, 1, steps, **more)), 32_000.0)


def test_a_gain_of_saving_seldom_reaches_that_of_never_saving(tmp_path):
    gain = by_rule(with_region(tmp_path, "save", 360))["own_checkpoint"].rule_gain

    assert gain.high == pytest.approx((STEP_MS + 360.0) / STEP_MS, rel=0.01)


def test_passes_without_gradient_are_a_finding_with_their_share(tmp_path):
    found = by_rule(with_region(tmp_path, "nograd", 10))["own_passes"]

    assert found.evidence[0].value.value == pytest.approx(10.0 / (STEP_MS + 10.0), rel=0.02)


def test_passes_without_gradient_are_named_by_their_line(tmp_path):
    lines = [{"kind": "lines", "every_ns": 10 * MS, "places": {"nograd": {"train.py:9 main": 90}}}]

    assert by_rule(with_region(tmp_path, "nograd", 10, lines=lines))["own_passes"].change.endswith("(train.py:9 main)")


@pytest.mark.parametrize("took_ms", [0, 3], ids=["none", "few"])
def test_few_passes_without_gradient_are_no_finding(tmp_path, took_ms):
    assert "own_passes" not in by_rule(with_region(tmp_path, "nograd", took_ms))


def test_the_share_of_a_straggler_is_what_the_others_wait(straggling):
    share = by_rule(straggling)["own_straggler"].evidence[0].value.value

    assert share == pytest.approx(15.0 / (STEP_MS + 15.0), rel=0.05)


def test_ranks_that_are_as_quick_have_no_straggler(tmp_path):
    assert "own_straggler" not in by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0]))


def test_a_gap_is_named_by_what_surrounds_it(tmp_path):
    found = by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0], gap=10.0))["own_gap"]

    assert "between forward and backward" in found.claim


def test_a_slow_rank_and_its_code_are_one_cause(tmp_path, straggling):
    late = [process_lines(rank, 2, in_a_gap(ddp_steps(rank, lambda _: [0.0, 15.0]))) for rank in range(2)]
    found = by_rule(found_in(write(tmp_path, *late), 60_000.0))
    assert "own_straggler" in found
    assert "one cause with the waiting for rank 1, and one gain" in found["own_gap"].claim
    assert "own_gap" not in by_rule(straggling)


def test_the_code_of_all_ranks_is_a_cause_of_its_own(tmp_path):
    assert "one cause" not in by_rule(ddp_job(tmp_path, lambda _: [0.0, 15.0], gap=10.0))["own_gap"].claim


def test_an_exchange_below_its_limit_is_no_finding(tmp_path):
    assert "own_exchange" not in by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0]))


def test_a_long_exchange_is_a_finding(tmp_path):
    assert "own_exchange" in by_rule(ddp_job(tmp_path, lambda _: [0.0, 0.0], transfer=20.0))


@pytest.fixture(scope="module")
def exchanging(tmp_path_factory):
    """Rank 1 is 15 ms late in each step, whose exchange takes 20 ms."""
    return ddp_job(tmp_path_factory.mktemp("exchange"), lambda _: [0.0, 15.0], transfer=20.0)


def waiting(run, waited_s, ranks=()):
    """The run with so much waiting in each step, for some ranks or for none that is named."""
    some = Interval(waited_s, waited_s, waited_s)
    parts = [each.model_copy(update={"time_s": some}) if each.name == "sync_wait" else each for each in run.parts]
    whom = run.waited_for and run.waited_for.model_copy(update={"ranks": list(ranks)})
    return run.model_copy(update={"parts": parts, "waited_for": whom})


def test_fewer_exchanges_may_end_the_waiting_in_them(exchanging):
    gains = [by_rule(waiting(exchanging, seconds))["own_exchange"].rule_gain for seconds in (0.0, 0.010)]
    assert gains[0].high < gains[1].high
    assert gains[0].low == pytest.approx(gains[1].low, rel=0.02)


def test_fewer_exchanges_do_not_end_the_waiting_for_a_slow_rank(exchanging):
    gains = [by_rule(waiting(exchanging, seconds, [1]))["own_exchange"].rule_gain for seconds in (0.0, 0.010)]
    assert gains[0] == gains[1]


def test_an_interval_that_reaches_the_limit_is_no_finding(tmp_path):
    run = ddp_job(tmp_path, lambda _: [0.0, 0.0])
    parts = [
        part.model_copy(update={"time_s": Interval(part.time_s.value, 0.04 * run.step_s.value, 0.1)})
        if part.name == "input_wait"
        else part
        for part in run.parts
    ]

    assert "own_input" not in by_rule(run.model_copy(update={"parts": parts}))


def test_the_largest_gain_comes_first(straggling):
    gains = [each.gain.value for each in script_findings(straggling)]

    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)


@pytest.fixture
def turns(tmp_path):
    """Runs of two scripts that took turns, the second 8 ms slower, on a machine that grows slower by and by."""
    for number in range(3):
        for index, version in enumerate(("old", "new")):
            (tmp_path / version).mkdir(exist_ok=True)
            place, turn = tmp_path / version / str(number), 2 * number + index
            a_run(place, turn, 10.0 * number + 8.0 * index)
    return tmp_path


def test_runs_that_took_turns_are_compared_within_their_blocks(turns):
    (trial,) = compared(turns / "old", turns / "new")["trials"]

    assert trial["interleaved"] == 3
    assert trial["verdict"] == "slower"


def test_runs_of_one_script_after_those_of_the_other_are_not(turns):
    (trial,) = compared(turns / "old" / "0", turns / "new" / "0")["trials"]

    assert trial["interleaved"] == 0


@pytest.mark.parametrize("arguments", [["--", "true"], ["--rule", "own_input"], ["--verify"]])
def test_a_command_and_a_verification_belong_together(turns, arguments, capsys):
    assert run_program(["advise", str(turns / "old" / "0"), *arguments]) == 2
    assert "--verify -- COMMAND" in capsys.readouterr().err


def test_a_rule_without_a_finding_is_named_with_those_that_have_one(turns, capsys):
    assert run_program(["advise", str(turns / "old" / "0"), "--verify", "--rule", "own_gap", "--", "true"]) == 2
    assert "own_input" in capsys.readouterr().err


def test_what_a_command_in_turn_writes_is_kept_in_its_folder(tmp_path):
    script = [sys.executable, "-c", "print('heard'); raise SystemExit(4)"]

    with pytest.raises(Exception, match="exit code 4"):
        run_in_turns([script, script], tmp_path, 3, Silent())

    (written,) = tmp_path.glob(f"*/*/{OUTPUT}")
    assert written.read_text() == "heard\n"
    assert Store.exists(written.parent)
