"""How a budget is divided between checks, launches and replays, by what such work took on this machine before."""

import json
import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from trials import trial

from steptime.equivalence.check import Case
from steptime.execution.progress import Silent
from steptime.runner.admission import Checks
from steptime.runner.block_runner import Schedule, StoppingRule
from steptime.runner.budget import Budget, proposed
from steptime.runner.durations import KeptDurations
from steptime.runner.run_kinds import TIMED
from steptime.study.study import Study

ALONE = [trial(name) for name in "ab"]
PAIRS = [trial(name, workers=2, strategy="allreduce") for name in "ab"]
TRIALS = [*PAIRS, *ALONE]
STUDY = Study.model_validate(
    {"name": "planned", "workloads": ["mlp"], "frameworks": ["a"], "launches": {"min": 2}, "seconds_per_launch": 1}
)
BROKEN = {"name": "planned", "workloads": ["mlp"], "frameworks": ["a"], "breakdown": True}

OTHER_FORMS = [json.dumps({"report": each}) for each in ([], "5", [-1], [True], [1e9], [[]])]


def cases(trials):
    return [Case(each, (each.id,)) for each in trials]


def durations(check=None, launch=None, replay=None, report=1.0):
    found = KeptDurations()
    found.note("report", None, report)
    for work, seconds in (("check", check), ("launch", launch), ("replay", replay)):
        for each in TRIALS:
            if seconds is not None:
                found.note(work, each, seconds)
    return found


def budget(total_s, **fields):
    seen = fields.pop("durations", None) or durations(**fields)
    return Budget(STUDY, seen, total_s, clock=lambda: 0.0, began=0.0)


class TestAffordable:
    """Which trials are checked and launched."""

    def test_all_are_where_the_budget_holds_them(self):
        own = budget(100.0, check=4.0, launch=2.0, replay=1.0)
        assert sorted(each.id for each in own.affordable(TRIALS, cases(TRIALS), 99.0)) == sorted(t.id for t in TRIALS)

    def test_a_whole_group_comes_before_a_part_of_each(self):
        own = budget(30.0, check=4.0, launch=2.0, replay=1.0)
        for each in ALONE:
            own.durations.note("check", each, 3.0)
        found = own.affordable(TRIALS, cases(TRIALS), 18.0)
        assert {each.group for each in found} == {found[0].group}
        assert len(found) == 2

    def test_no_trial_is_where_no_check_fits(self):
        assert budget(30.0, check=40.0, launch=2.0).affordable(TRIALS, cases(TRIALS), 20.0) == []

    def test_the_quickest_group_is_tried_where_nothing_was_launched_yet(self):
        own = budget(30.0, check=40.0, launch=2.0)
        for _ in range(3):
            own.durations.note("check", ALONE[0], 30.0)
        assert own.affordable(TRIALS, cases(TRIALS), 20.0, first=True) == ALONE

    def test_those_whose_checks_are_kept_are_whatever_the_budget(self):
        own = budget(30.0, check=40.0, launch=2.0)
        assert own.affordable(TRIALS, cases(PAIRS), 20.0) == ALONE

    def test_all_are_where_no_check_has_shown_how_long_it_takes(self):
        assert len(budget(30.0).affordable(TRIALS, cases(TRIALS), 20.0)) == len(TRIALS)

    def test_a_budget_that_is_none_holds_all(self):
        assert budget(None, check=40.0).affordable(TRIALS, cases(TRIALS), None) == TRIALS


class TestEnds:
    """When checks and launches must be over."""

    def test_checks_leave_time_for_the_launches_and_replays_of_their_trials(self):
        assert budget(100.0, check=4.0, launch=5.0, replay=3.0).end_of_checks(TRIALS, 99.0) == 99.0 - 4 * (5.0 + 3.0)

    @pytest.mark.parametrize(("launch", "share"), [(None, 0.6), (1000.0, 0.4), (0.001, 0.8)])
    def test_checks_have_a_part_of_the_time_whatever_launches_take(self, launch, share):
        own = budget(100.0, launch=launch, replay=0.0)
        assert own.end_of_checks(TRIALS, 50.0) == pytest.approx(50.0 * share)

    @pytest.mark.parametrize("launched", range(5))
    def test_every_trial_that_was_launched_shortens_the_time_of_launches_by_its_replay(self, launched):
        own = budget(100.0, launch=2.0, replay=3.0)
        record = SimpleNamespace(status="ok", lost_hosts=[], wall_s=2.0)
        done = {each.id: [record] for each in TRIALS[:launched]}
        plan = Schedule(TRIALS, StoppingRule(1, 1), "0", done)
        row = 60.0 if launched == len(TRIALS) else 99.0  # all but the report, until there is a ranking
        behind = own.grace_s if launched else 0.0  # which a launch that had begun may take
        assert own.end_of_launches(60.0, TIMED, plan) == row - 3.0 * launched - behind

    @pytest.mark.parametrize(
        ("each_has", "wall_s", "end"),
        [(1, 2.0, 99.0), (2, 2.0, 60.0), (1, 200.0, 60.0), (0, 2.0, 99.0)],
        ids=["one of two", "both", "one, and another does not fit", "none"],
    )
    def test_the_least_launches_of_each_trial_come_before_launches_of_later_rows(self, each_has, wall_s, end):
        own = budget(100.0, launch=2.0, replay=0.0)
        records = [SimpleNamespace(status="ok", lost_hosts=[], wall_s=wall_s)] * each_has
        plan = Schedule(TRIALS, StoppingRule(2, 4), "0", {each.id: [*records] for each in TRIALS})
        behind = own.replays_s(TRIALS if each_has else []) + (own.grace_s if each_has else 0.0)
        assert own.end_of_launches(60.0, TIMED, plan) == end - behind

    @pytest.mark.parametrize(("trials", "seconds"), [(0, 0.0), (1, 3.0), (2, 3.0), (4, 6.0)])
    def test_two_replays_at_once_take_half_as_long_and_one_is_no_quicker_alone(self, trials, seconds):
        own = replace(budget(100.0, launch=2.0, replay=3.0), at_once=2)
        assert own.replays_s(TRIALS[:trials]) == seconds

    @pytest.mark.parametrize(("cores", "seconds"), [(1, 8.0), (2, 6.0), (4, 4.0), (64, 4.0)])
    def test_replays_that_no_run_has_made_wait_for_a_core_of_each_worker(self, cores, seconds):
        own = replace(budget(100.0, launch=2.0), at_once=2, cores=cores)
        assert own.replays_s([*PAIRS, *ALONE]) == seconds

    @pytest.mark.parametrize(("had_s", "expected_s"), [(1.0, 3.0), (3.0, 3.0), (20.0, 20.0)])
    def test_a_replay_that_was_cut_is_expected_to_take_as_long_as_it_had_at_least(self, had_s, expected_s):
        own = budget(100.0, launch=2.0, replay=3.0)
        own.note_cut_replays(TRIALS[:1], had_s)
        assert own.replays_s(TRIALS[:1]) == pytest.approx(expected_s)

    def test_of_replays_one_after_the_other_none_had_all_of_the_time(self):
        own = budget(100.0, launch=2.0, replay=3.0)
        own.note_cut_replays(TRIALS, 20.0)
        assert own.replays_s(TRIALS) == pytest.approx(20.0)

    def test_a_report_may_take_as_long_as_the_longest_that_was_seen(self):
        own = budget(100.0, report=3.0)
        for seconds in (9.0, 2.0, 2.0):
            own.durations.note("report", None, seconds)
        assert own.end == 91.0

    def test_the_report_leaves_most_of_a_budget_to_what_it_reports(self):
        assert budget(10.0, report=100.0).end == 6.0

    def test_environments_and_data_are_not_of_the_budget(self):
        now = [0.0]
        own = Budget(STUDY, durations(), 10.0, clock=lambda: now[0], began=0.0)
        with own.paused():
            now[0] = 70.0
        assert own.end == 79.0

    def test_what_runs_at_the_end_is_cancelled_then(self):
        own, cancelled = Budget(STUDY, durations(), 10.0), threading.Event()
        with own.ending(cancelled, time.monotonic()):
            assert cancelled.wait(10.0)


class TestShortage:
    """What is said before a run of what its budget does not hold."""

    def test_nothing_is_of_a_budget_that_holds_all(self):
        assert budget(100.0, check=4.0, launch=2.0, replay=1.0).shortage(TRIALS, cases(TRIALS)) == []

    def test_what_takes_how_long_and_which_budget_holds_it_is(self):
        said = " ".join(budget(30.0, check=4.0, launch=2.0, replay=1.0).shortage(TRIALS, cases(TRIALS)))
        assert (
            "the budget of 30 s is too short for the whole study: 4 checks (about 16 s), 8 launches that time" in said
        )
        assert "budget=50s does" in said

    def test_the_longest_checks_are_with_the_key_that_leaves_them_out(self):
        own = budget(180.0, check=100.0, launch=2.0, replay=1.0)
        own.durations.note("check", ALONE[1], 480.0)
        own.durations.note("check", ALONE[1], 480.0)
        said = own.shortage(TRIALS, cases(TRIALS))[-1]
        assert said.startswith("of that the checks of lenet5 in b take about 9 min 40 s; ")
        assert "equivalence.enabled=false" in said

    def test_one_budget_is_proposed_until_checks_take_longer_than_it_holds(self):
        own = budget(30.0)
        said = [own.shortage(TRIALS, cases(TRIALS))]
        own.note_check(ALONE[0], 15.0, is_over=True)
        said.append(own.shortage(TRIALS, cases(TRIALS)))
        own.note_check(ALONE[1], 400.0, is_over=False)
        said += [own.shortage(TRIALS, cases(TRIALS)), own.shortage(TRIALS, cases(TRIALS))]

        proposals = [re.findall(r"budget=\w+", " ".join(each)) for each in said]
        assert proposals == [["budget=210s"], [], [proposals[2][0], "budget=210s"], []]
        assert said[2][0].startswith("by what the checks took, budget=")

    def test_a_proposal_is_in_one_sentence(self):
        own = budget(180.0, check=100.0, launch=2.0, replay=1.0)
        assert len(re.findall("budget=", " ".join(own.shortage(TRIALS, cases(TRIALS))))) == 1

    def test_what_is_kept_counts_no_more(self):
        assert budget(40.0, check=100.0, launch=2.0, replay=1.0).shortage(TRIALS, []) == []

    def test_the_time_of_checks_that_were_never_made_here_is_not_guessed(self):
        said = budget(300.0).shortage(TRIALS, cases(TRIALS))
        assert len(said) == 1
        assert said[0].startswith("4 checks to be made; how long they take on this machine is not known")

    def test_launches_that_a_first_run_cannot_hold_are_with_the_budget_that_would(self):
        said = budget(30.0).shortage(TRIALS, cases(TRIALS))[-1]
        assert said.startswith(
            "after them the budget of 30 s may be too short for 8 launches that time steps (about 56 s)"
        )
        assert said.endswith("; what has never run here is a guess; budget=210s is enough for all")

    def test_launches_that_leave_little_for_checks_are_said_too(self):
        said = budget(150.0).shortage(TRIALS, cases(TRIALS))[-1]
        assert "the budget of 2 min 30 s may be too short for 8 launches that time steps" in said

    def test_launches_that_break_steps_down_are_held_against_a_first_budget(self):
        broken = STUDY.model_copy(update={"breakdown": Study.model_validate(BROKEN).breakdown})
        said = Budget(broken, durations(), 90.0, clock=lambda: 0.0, began=0.0).shortage(TRIALS, cases(TRIALS))[-1]
        assert "launches that break steps down (about " in said

    def test_a_check_of_a_loader_takes_as_long_as_the_mean_of_all_where_none_was_made_here(self):
        own, other = budget(30.0, check=4.0), trial("a", workload="mlp")
        of_loader = Case(other, (other.id,), SimpleNamespace())
        assert own.checks_s([*cases(TRIALS), of_loader]) == 5 * 4.0
        assert own.checks_s([of_loader]) is None
        assert own.checks_s([*cases(TRIALS), *cases([other])]) is None

    @pytest.mark.parametrize(
        ("needed_s", "text"), [(20.0, "30s"), (60.0, "90s"), (100.0, "2m"), (250.0, "5m"), (480.0, "10m")]
    )
    def test_a_proposed_budget_is_round_and_has_a_margin(self, needed_s, text):
        assert proposed(needed_s) == f"budget={text}"


class TestChecks:
    """Checks within a budget."""

    def made(self, total_s, over):
        """Return which trials were left unchecked by checks that are ``over`` as soon as they begin, or last on."""
        cancelled = threading.Event()
        left = cases(TRIALS)

        def run(trials, side_by_side, may_begin):
            assert side_by_side == 1
            assert all(map(may_begin, left))
            if not over:
                assert cancelled.wait(60.0)
            else:
                left.clear()

        checks = SimpleNamespace(
            pending=lambda trials: [each for each in left if any(one.id in each.stands_for for one in trials)],
            run=run,
            checker=SimpleNamespace(executor=SimpleNamespace(cancelled=cancelled)),
        )
        own = Budget(STUDY, durations(), total_s, began=time.monotonic())
        unchecked = Checks(checks, own, lambda _: 1, Silent()).run(TRIALS, time.monotonic() + (60.0 if over else 1.0))
        assert not cancelled.is_set()
        return unchecked

    def test_trials_whose_checks_are_over_in_time_are_checked(self):
        assert self.made(100.0, over=True) == set()

    def test_trials_whose_checks_are_ended_are_not(self):
        assert self.made(100.0, over=False) == {each.id for each in TRIALS}

    def test_a_check_that_was_ended_takes_what_it_had_at_least_in_this_run_and_no_other(self):
        own = budget(30.0)
        own.note_check(ALONE[0], 20.0, is_over=False)
        assert own.checks_s(cases(ALONE[:1])) == 20.0
        assert budget(30.0, durations=own.durations).checks_s(cases(ALONE[:1])) is None

    @pytest.mark.parametrize("cut_s", [1.0, 20.0, 500.0])
    def test_a_check_that_was_ended_is_made_by_the_next_run(self, cut_s):
        own = budget(30.0)
        own.note_check(ALONE[0], cut_s, is_over=False)
        after = budget(30.0, durations=own.durations)
        assert after.affordable(TRIALS, cases(TRIALS), 20.0) == TRIALS
        assert after.holds_check(*cases(ALONE[:1]), until=1.0)

    def test_a_busy_hour_leaves_out_no_check_that_was_quick_in_another(self):
        own = budget(30.0, launch=1.0)
        for seconds in (4.0, 90.0, 90.0, 90.0):
            for each in ALONE:
                own.durations.note("check", each, seconds)
        assert own.affordable(ALONE, cases(ALONE), 20.0) == ALONE

    @pytest.mark.parametrize(("now", "may_begin"), [(0.0, True), (11.0, True), (13.0, False), (25.0, False)])
    def test_a_check_that_cannot_end_in_time_is_not_begun(self, now, may_begin):
        known = budget(30.0, check=8.0)
        known.clock = lambda: now
        assert known.holds_check(*cases(ALONE[:1]), until=20.0) == may_begin

    def test_the_shortest_check_of_its_workload_in_this_run_is_what_an_unknown_one_takes_at_least(self):
        own = budget(30.0)
        own.note_check(ALONE[0], 25.0, is_over=True)
        own.note_check(PAIRS[0], 12.0, is_over=True)
        (other,) = cases(ALONE[1:])
        assert [own.holds_check(other, until) for until in (11.0, 13.0, None)] == [False, True, True]
        assert own.holds_check(*cases([trial("b", workload="mlp")]), until=1.0)

    @pytest.mark.parametrize(("until", "names"), [(20.0, []), (22.0, ["a"]), (60.0, ["a", "b"]), (None, [])])
    def test_checks_that_were_ended_are_made_anew_where_more_than_they_had_is_left(self, until, names):
        own = budget(100.0, launch=2.0, replay=1.0)
        own.note_check(ALONE[0], 16.0, is_over=False)
        own.note_check(ALONE[1], 20.0, is_over=False)
        assert [each.framework for each in own.affordable_late(ALONE, cases(ALONE), until)] == names

    @pytest.mark.parametrize("until", [20.0, 50.0, 99.0])
    def test_checks_of_a_further_workload_of_unknown_length_have_less_time_than_the_first(self, until):
        own = budget(100.0)
        assert own.end_of_checks(TRIALS, until) == 0.6 * until
        assert own.end_of_checks(TRIALS, until, first=False) == 0.4 * until

    def test_work_takes_longer_while_others_use_the_machine(self):
        own = budget(30.0)
        own.durations.slowdown = lambda: 4.0
        own.durations.note("check", ALONE[0], 8.0)
        assert own.durations.expected_s("check", ALONE[0]) == 8.0
        own.durations.slowdown = lambda: 1.0
        assert own.durations.expected_s("check", ALONE[0]) == 2.0


class TestDurations:
    """What is kept of earlier runs."""

    def test_they_are_those_of_the_same_work_or_else_of_the_same_framework_on_the_same_workload(self):
        found = KeptDurations()
        found.note("check", ALONE[0], 4.0)
        assert found.expected_s("check", ALONE[0]) == 4.0
        assert found.expected_s("check", PAIRS[0]) == 4.0
        assert found.expected_s("check", ALONE[1]) is None
        assert found.expected_s("launch", ALONE[0]) is None

    def test_another_run_reads_them(self, tmp_path, monkeypatch):
        monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path))
        before = KeptDurations.of_machine()
        before.slowdown = lambda: 1.0
        before.note("check", ALONE[0], 4.0)
        before.keep()
        after = KeptDurations.of_machine()
        after.slowdown = before.slowdown
        assert after.expected_s("check", ALONE[0]) == 4.0

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{", "null", *(json.dumps({"report": each}) for each in ([], "5", [-1], [True], [1e9], [[]]))],
    )
    def test_a_file_of_another_form_is_none(self, tmp_path, monkeypatch, text):
        monkeypatch.setenv("STEPTIME_CACHE", str(tmp_path))
        path = KeptDurations.of_machine().path
        path.parent.mkdir()
        path.write_text(text)
        assert KeptDurations.of_machine().expected_s("report") is None

    def test_a_folder_that_cannot_be_written_is_no_fault_of_the_run(self, tmp_path):
        (tmp_path / "file").write_text("")
        found = KeptDurations(tmp_path / "file" / "durations.json")
        found.note("report", None, 4.0)
        found.keep()
        assert found.expected_s("report") == 4.0
