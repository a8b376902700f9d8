"""Where the time of a step goes, in a terminal."""

import io
import re

import pytest
from ablations import breakdown, emulated, imbalance, launch_phases
from rich.console import Console
from summaries import quickstart, summary, trial

from steptime.report.overview import overview
from steptime.report.sections import StudyFindings, WholeReport


def printed(study, width=160):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(WholeReport(StudyFindings(study)))
    return console.file.getvalue()


def one(columns=100, **changes):
    """The report of a single trial of two workers, its sentences in one line each."""
    return " ".join(printed(summary([trial(breakdown=breakdown(**changes))]), columns).split())


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("study", [launch_phases(), emulated()], ids=["broken_down", "emulated"])
def test_no_line_is_longer_than_the_terminal_and_nothing_is_cut_off(study, width):
    text = printed(study, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("number", ["10.0", "9.0 to 11.0", "18.0 to 22.0", "4.50 to 5.50", "24.1 %"])
def test_every_width_has_every_phase_with_its_interval_and_share(width, number):
    assert number in printed(launch_phases(), width)


def test_a_wide_terminal_has_a_table_of_trials():
    assert re.search(
        r"pytorch allreduce +41\.5 +1\.00 +10\.0 +20\.0 +5\.00 +2\.00 +3\.00 +0\.500 +1\.20 %", printed(launch_phases())
    )


def test_a_narrow_terminal_has_a_line_for_each_phase():
    assert re.search(
        r"^  exposed comm\. +5\.00 ms \(4\.50 to 5\.50\), 12\.0 %", printed(launch_phases(), 80), re.MULTILINE
    )


@pytest.mark.parametrize("width", [80, 160])
def test_what_nobody_knows_is_a_dash_and_never_0(width):
    text = printed(summary([trial(breakdown=breakdown({"forward": None}))]), width)
    where = r"^  forward +- *$" if width == 80 else r"pytorch allreduce +31\.5 +1\.00 +- +20\.0"
    assert re.search(where, text, re.MULTILINE)


def test_a_phase_that_no_trial_has_takes_no_room():
    assert "to device" not in printed(launch_phases(), 80)


def test_a_phase_that_one_trial_has_is_none_in_the_others():
    trials = [trial(breakdown=breakdown({"h2d": 0.004})), trial("mxnet", rate=900.0, breakdown=breakdown())]
    assert re.search(r"^  to device +none\*", printed(summary(trials), 80), re.MULTILINE)


def test_a_single_block_has_no_interval():
    assert "10.0 ms (no interval)" in one(columns=80, width=None)


@pytest.mark.parametrize(
    "words",
    [
        "computes 1.21x (1.17 to 1.25) as long as the mean",
        "17.0 % always the same worker",
        "worker 1 on host h1 is to blame",
        "communication takes 12.5 ms (11.2 to 13.8) in all; computation covers 60.0 % of it, 7.50 ms",
        "3 launches; marking costs at most 1.40 % of a step",
        "their step is 0.324x (0.286 to 0.364) that of the timed launches",
    ],
)
def test_sentences_say_imbalance_overlap_and_cost(words):
    assert words in one()


def test_nobody_is_blamed_where_it_is_not_one_worker():
    assert "no one worker is to blame" in one(imbalance=imbalance(blamed=None))


@pytest.mark.parametrize(
    "words", ["load imbalance is not known", "how much communication is covered by computation is not known"]
)
def test_what_several_workers_do_not_show_is_said_to_be_unknown(words):
    assert words in one(overlap=False, imbalance=None)


def test_one_worker_waits_for_nobody_and_nothing_is_said_of_it():
    study = summary([trial("pytorch", "single", workers=1, breakdown=breakdown(workers=1))])
    assert not re.search("imbalance|worker computes|is covered|covers", printed(study))


def test_foreign_load_during_ablation_runs_is_said():
    flag = "noisy: CPU used by other processes above 0.1 core (2 of 3 launches)"
    assert f"note: {flag}" in one(flags=[flag])


def test_a_study_without_breakdown_has_no_such_part():
    assert "Where the time of a step goes" not in printed(quickstart())


@pytest.mark.parametrize(
    "words",
    [
        "Emulated hosts",
        "h0 (worker-0): link 100 Mbit/s, processor not limited, sent 14.3 MiB",
        "h3 (worker-3): link not limited, processor 0.500 cores, held back 400 ms (360 ms to 440 ms)",
        "h0 to h1: alpha 200 µs (180 µs to 220 µs), 95 Mbit/s (85.5 Mbit/s to 105 Mbit/s)",
        "105 Mbit/s); asked for no delay, 100 Mbit/s",
    ],
)
def test_emulated_hosts_and_links_are_said_as_measured_beside_what_was_asked_for(words):
    assert words in " ".join(printed(emulated()).split())


@pytest.mark.parametrize(("foreign", "said"), [(0.02, False), (0.3, True)])
def test_foreign_load_beside_emulated_hosts_is_flagged(foreign, said):
    assert ("above 0.1: times are too long" in " ".join(printed(emulated(foreign=foreign)).split())) is said


def test_phases_that_stages_contradict_are_named_with_the_launches_that_would_tell():
    text = one(columns=160, undecided=["comm_exposed", "input_wait"], more_launches=4)
    assert "exposed comm. and input wait are undecided" in text
    assert "about 4 launches of it more would tell" in text


def test_breakdown_runs_apart_from_the_timed_launches_are_named_with_the_ratio():
    def short(rate):
        console = Console(file=io.StringIO(), width=160)
        console.print(overview(summary([trial(rate=rate, breakdown=breakdown())])))
        return " ".join(console.file.getvalue().split())

    assert "pytorch allreduce: 0.324x (0.286 to 0.364) the step of the timed launches." in short(1000.0)
    assert "the step of the timed launches" not in short(2 * 64 / 0.042)
