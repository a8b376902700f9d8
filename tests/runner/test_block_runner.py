"""The order of launches, the repeats of failed ones, and the launches that a deadline leaves out."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from trials import trial

from steptime.execution.collected import Collected
from steptime.execution.executor import LaunchResult
from steptime.execution.progress import Remaining, Silent
from steptime.launchers.request import LATE, LaunchOutcome
from steptime.results.records import Launch, WorkerSteps
from steptime.runner.block_runner import (
    BUDGET_SPENT,
    AbstractRuns,
    BlockRunner,
    LaunchProgress,
    Schedule,
    StoppingRule,
)
from steptime.runner.further_launches import open_trials, what_more_launches_show
from steptime.runner.message_timing import MessageRuns
from steptime.runner.trial_runs import expected_ablation_s
from steptime.study.trial import Trial

TRIALS = [trial(name) for name in ("a", "b", "c", "d")]
COUNTED = StoppingRule(least=2, most=3, suffices=lambda _trial, _launches: False, failures_count=True)
"""As for timed launches: a failed one is a launch like others."""
REPEATED = StoppingRule(least=2, most=2)
"""As for ablation launches: a failed one is repeated in its block."""


WORKER = WorkerSteps(
    rank=0,
    host="here",
    warmup_ends_s=[],
    origin_s=0.0,
    ends_s=[0.1, 0.2],
    loss_first=None,
    loss_last=None,
    facts={},
    usage={},
    opened_in_s=0.1,
)


def launch(of: Trial, number: int, status: str = "ok", wall_s: float = 1.0) -> Launch:
    return Launch(
        trial=of.id,
        launch=number,
        block=number,
        status=status,
        reason=None,
        started_at="2026-01-01T00:00:00",
        wall_s=wall_s,
        commands=[],
        environment={},
        noise={},
        workers=[WORKER],
    )


class Runs(AbstractRuns[Trial, Launch]):
    """Launches whose end the executor alone decides."""

    title = "Racing"
    guess_s = 5.0

    def __init__(self, crash_repeats: int = 0) -> None:
        self.crash_repeats = crash_repeats

    def job(self, configuration: Trial, number: int) -> dict[str, Any]:
        return {"framework": configuration.framework, "number": number}

    def folder(self, configuration: Trial, number: int) -> Path:
        return Path(configuration.id, str(number))

    def record(self, configuration: Trial, number: int, _result: LaunchResult, fields: dict[str, Any]) -> Launch:
        return launch(configuration, number, fields["status"], fields["wall_s"])

    def describe(self, configuration: Trial, number: int) -> str:
        return f"{configuration.framework} {number}"


class KeepingRuns(Runs):
    """Launches that go on from what they kept: each epoch takes ten seconds."""

    def __init__(self, begun: str = "") -> None:
        super().__init__()
        self.begun = begun

    def kept_progress(self, configuration: Trial, number: int) -> LaunchProgress:
        begun = (configuration.framework, number) == (self.begun, 0)
        return LaunchProgress(begun, "epoch 3 of 8 is kept" if begun else "none was over", 10.0)


@dataclass
class ScriptedExecutor:
    """Starts no process: the script says how long a trial's launches take and how they end, on a clock of its own."""

    wall_s: Mapping[str, float] = field(default_factory=dict)
    """By framework; one second for the others."""
    ends: Callable[[str, int], str] = lambda _framework, _attempt: "ok"
    """``ok``, ``failed`` or ``crashed``, by framework and attempt."""
    now: float = 0.0
    launched: list[tuple[str, int]] = field(default_factory=list)
    kept_folders: list[bool] = field(default_factory=list)

    def launch(
        self,
        configuration: Trial,
        job: Mapping[str, Any],
        _folder: Path,
        *,
        keep_folder: bool,
        at_most_s: float | None = None,
    ) -> LaunchResult:
        framework = configuration.framework
        attempt = sum(name == framework for name, _ in self.launched)
        self.launched.append((framework, job["number"]))
        self.kept_folders.append(keep_folder)
        needed = self.wall_s.get(framework, 1.0)
        wall_s = needed if at_most_s is None else min(needed, at_most_s)
        self.now += wall_s
        end = self.ends(framework, attempt) if wall_s == needed else "late"
        reasons = {"ok": None, "crashed": "worker-0 was ended by SIGSEGV", "late": f"{LATE} of {at_most_s} s"}
        reason = reasons.get(end, "it failed")
        outcome = LaunchOutcome(reason is None, reason, wall_s, [])
        return LaunchResult(outcome, Collected({}), reason, {}, wall_s=wall_s)

    def record_fields(self, _configuration: Trial, result: LaunchResult) -> dict[str, Any]:
        return {"status": "failed" if result.reason else "ok", "wall_s": result.wall_s}


@dataclass
class Noting(Silent):
    """Keeps the reports of the launches to come, and the notes."""

    reports: list[Remaining] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def remaining(self, remaining: Remaining) -> None:
        self.reports.append(remaining)

    def note(self, text: str) -> None:
        self.notes.append(text)


def schedule(rule: StoppingRule = COUNTED, records=None, **fields: Any) -> Schedule:
    return Schedule(TRIALS, rule, seed="0", records=records or {}, **fields)


def run(
    plan: Schedule,
    executor: ScriptedExecutor | None = None,
    deadline: float | None = None,
    observer: Silent | None = None,
    runs: Runs | None = None,
    **fields: Any,
) -> tuple[list[tuple[str, int]], int]:
    """Return the launches in their order, by framework and number, and how many the budget left out."""
    executor = executor or ScriptedExecutor()
    kept: list[Launch] = []
    runner = BlockRunner(
        executor,
        runs or Runs(),
        kept.append,
        observer or Silent(),
        deadline=lambda: deadline,
        clock=lambda: executor.now,
        **fields,
    )
    left_out = runner.run(plan)
    return executor.launched, left_out


def in_block(launched: Iterable[tuple[str, int]], block: int) -> list[str]:
    return [name for name, number in launched if number == block]


class TestAdmission:
    """What is checked before it is launched for the first time."""

    def admitting(self, plan, admit, **fields):
        executor = ScriptedExecutor()
        BlockRunner(executor, Runs(), lambda _record: None, Silent(), admit=admit, **fields).run(plan)
        return executor.launched

    def test_a_part_is_admitted_when_the_one_before_has_its_least_launches(self):
        happened = []

        def admit(members):
            happened.append(sorted(each.framework for each in members))
            return members

        plan = schedule(part=lambda each: each.framework in "ab")
        self.admitting(plan, admit, after_block=lambda: happened.append("block"))

        assert happened[:6] == [["a", "b"], "block", "block", ["c", "d"], "block", "block"]
        assert len([each for each in happened if each != "block"]) == 2

    def test_what_is_not_admitted_is_never_launched(self):
        launched = self.admitting(schedule(), lambda members: [each for each in members if each.framework != "b"])

        assert {name for name, _ in launched} == {"a", "c", "d"}

    def test_nothing_is_launched_where_nothing_is_admitted(self):
        assert self.admitting(schedule(), lambda _members: []) == []

    def test_what_was_left_out_is_asked_for_again_before_any_other_has_a_second_launch(self):
        late = []

        def admit_late(members):
            late.extend(each.framework for each in members)
            return members

        first = [each for each in TRIALS if each.framework != "b"]
        launched = self.admitting(
            schedule(), lambda members: [each for each in members if each in first], admit_late=admit_late
        )

        assert late == ["b"]
        assert [name for name, number in launched[:4] if number == 0] == [name for name, _ in launched[:4]]
        assert {name for name, _ in launched[:4]} == {"a", "b", "c", "d"}

    @pytest.mark.parametrize("answer", [None, []], ids=["nothing-begun", "none-passed"])
    def test_what_is_left_out_twice_is_never_launched(self, answer):
        asked = []

        def admit_late(members):
            asked.append(members)
            return answer

        launched = self.admitting(schedule(), lambda members: members[:1], admit_late=admit_late)

        assert len({name for name, _ in launched}) == len(asked) == 1

    def test_a_stage_that_goes_on_after_checks_counts_on(self):
        stages = []
        observer = Silent()
        observer.stage = lambda _title, total, done=0: stages.append((total, done))
        plan = schedule(part=lambda each: each.framework in "ab")
        BlockRunner(ScriptedExecutor(), Runs(), lambda _: None, observer, admit=lambda members: members).run(plan)

        (total, begun), (again, done) = stages
        assert begun == 0
        assert again == total
        assert 0 < done < total

    def test_the_time_of_admission_is_of_the_budget(self):
        executor = ScriptedExecutor()

        def admit(members):
            executor.now += 5.0
            return members

        runner = BlockRunner(
            executor,
            Runs(),
            lambda _record: None,
            Silent(),
            deadline=lambda: 7.0,
            clock=lambda: executor.now,
            admit=admit,
        )
        runner.run(schedule())

        assert len(executor.launched) == 2


class TestBlocks:
    """The order of launches."""

    @pytest.mark.parametrize(("rule", "blocks"), [(COUNTED, 3), (REPEATED, 2)])
    def test_every_block_launches_every_unfinished_trial_once(self, rule, blocks):
        launched, _ = run(schedule(rule))
        assert [number for _, number in launched] == [block for block in range(blocks) for _ in TRIALS]
        assert [sorted(in_block(launched, block)) for block in range(blocks)] == [["a", "b", "c", "d"]] * blocks

    def test_blocks_are_in_different_orders(self):
        launched, _ = run(schedule(StoppingRule(6, 6)))
        assert len({tuple(in_block(launched, block)) for block in range(6)}) > 1

    def test_the_same_seed_gives_the_same_order(self):
        assert run(schedule()) == run(schedule())

    def test_a_trial_that_suffices_is_not_launched_beyond_its_minimum(self):
        rule = StoppingRule(2, 3, suffices=lambda each, _launches: each.framework == "a")
        launched, _ = run(schedule(rule))
        assert [("a" in in_block(launched, block)) for block in range(3)] == [True, True, False]

    def test_the_folder_of_a_first_launch_is_kept_and_those_of_others_are_not(self):
        executor = ScriptedExecutor()
        run(schedule(REPEATED), executor)
        assert executor.kept_folders == [True] * 4 + [False] * 4

    @pytest.mark.parametrize(("least", "most"), [(1, 3), (2, 3), (3, 3)])
    def test_a_part_has_its_least_launches_before_another_begins(self, least, most):
        rule = StoppingRule(least, most, suffices=lambda _trial, _launches: False)
        divided = replace(schedule(rule), part=lambda each: each.framework in {"b", "d"})
        launched, _ = run(divided)
        parts = ["ac" if name in "ac" else "bd" for name, _ in launched]
        assert parts[: 4 * least] == ["ac"] * 2 * least + ["bd"] * 2 * least
        assert [number for _, number in launched[: 2 * least]] == [block for block in range(least) for _ in "ac"]
        assert [set(in_block(launched, block)) for block in range(least, most)] == [set("abcd")] * (most - least)


class TestOpenTrials:
    """Further launches of a budget go to trials that are not told apart yet."""

    @pytest.mark.parametrize("chosen", ["a", "bd", "abc", "abcd"])
    def test_they_get_theirs_before_the_others_once_all_have_the_least(self, chosen):
        ids = {each.id for each in TRIALS if each.framework in chosen}
        launched, _ = run(schedule(open_ids=lambda _: ids))
        assert {name for name, number in launched[:8] if number < 2} == set("abcd")
        assert {name for name, _ in launched[8 : 8 + len(chosen)]} == set(chosen)
        assert sorted(launched) == [(name, number) for name in "abcd" for number in range(3)]

    @pytest.mark.parametrize("ids", [None, set()])
    def test_all_go_on_in_turn_where_none_is(self, ids):
        assert run(schedule(open_ids=lambda _: ids)) == run(schedule())

    def steps(self, each: Trial, number: int) -> Launch:
        """Return a launch: of d a step is twice as long, and the others are as long by chance."""
        chance = {"a": (0, 3, -2), "b": (4, 1, 2), "c": (1, -2, 2), "d": (1, -3, 2)}[each.framework][number]
        long = (0.2 if each.framework == "d" else 0.1) * (1.0 + 0.005 * chance)
        worker = replace(WORKER, ends_s=[long * step for step in range(1, 9)])
        return replace(launch(each, number), workers=[worker], started_at=f"2026-01-01T00:00:0{number}")

    def planned(self, **fields: Any) -> Schedule[Trial, Launch]:
        records = {each.id: [self.steps(each, number) for number in range(3)] for each in TRIALS}
        return schedule(replace(COUNTED, most=9), records, **fields)

    def test_a_trial_that_is_told_apart_from_all_is_none_and_one_without_a_rival_is(self):
        plan = self.planned()
        assert open_trials(plan) == {each.id for each in TRIALS[:3]}
        alone = trial("a", workers=2, strategy="allreduce")
        plan.configurations = [*TRIALS, alone]
        assert open_trials(plan) == {*(each.id for each in TRIALS[:3]), alone.id}

    @pytest.mark.parametrize(
        ("left_s", "chosen"),
        [(61.0, "abc"), (62.0, "bc"), (106.0, "bc"), (107.0, "abc")],
        ids=["time for no pair", "for the cheapest", "hardly for two", "for two"],
    )
    def test_they_are_those_that_the_rest_of_the_budget_tells_apart_where_there_are_any(self, left_s, chosen):
        plan = self.planned()
        plan.rule = replace(plan.rule, most=50)
        assert open_trials(plan, left_s) == {each.id for each in TRIALS if each.framework in chosen}

    def test_pairs_that_need_more_launches_than_the_study_allows_for_do_not_come_first(self):
        plan = self.planned()
        plan.rule = replace(plan.rule, most=30)
        assert open_trials(plan, 1000.0) == {each.id for each in TRIALS[:3]}

    PAIR = re.compile(
        r"(\w) single, \S+ synthetic loader, 1 worker, and (\w) [^(]*\((\d+) more launches of each, about ([^,)]*)"
    )

    def last_line(self, launch_s: float) -> tuple[str, list[tuple[str, ...]]]:
        """Return how the last line of a run begins, and its pairs with launches and time."""
        (sentence,) = what_more_launches_show(self.planned(), lambda _: launch_s)
        return sentence.partition(":")[0], self.PAIR.findall(sentence)

    @pytest.mark.parametrize(
        ("launch_s", "begins", "pairs"),
        [
            (0.9, "another minute of launches would tell apart", [("b", "c", "31", "55.8 s")]),
            # Together 53.5 s, since both pairs share 31 launches of b.
            (0.5, "another minute of launches would tell apart", [("b", "c", "31", "31 s"), ("a", "b", "38", "38 s")]),
            (4.0, "another minute of launches would tell no pair apart", [("b", "c", "31", "4 min 8 s")]),
        ],
        ids=["one pair", "two pairs", "none"],
    )
    def test_the_last_line_names_the_pairs_that_a_minute_of_launches_tells_apart(self, launch_s, begins, pairs):
        said, named = self.last_line(launch_s)
        assert said.startswith(begins)
        assert named == pairs

    def test_pairs_that_hours_of_launches_would_not_tell_apart_are_not_offered(self):
        (sentence,) = what_more_launches_show(self.planned(), lambda _: 100.0)
        assert sentence.startswith("an hour of launches would tell no pair apart: they differ too little")

    def test_trials_without_a_launch_come_first(self):
        plan = self.planned()
        plan.records = {name: own for name, own in plan.records.items() if name != TRIALS[0].id}
        (sentence,) = what_more_launches_show(plan, lambda _: 0.9)
        assert sentence == f"another minute of launches would begin with 1 trial without any: {TRIALS[0].in_words}"

    def test_trials_short_of_their_least_launches_are_named(self):
        plan = self.planned()
        plan.rule = replace(plan.rule, least=4)
        plan.records[TRIALS[1].id] = [*plan.records[TRIALS[1].id], *plan.records[TRIALS[0].id]]
        short = what_more_launches_show(plan, lambda _: 4.0)[0]
        assert short.startswith("fewer launches than launches.min=4, so far: ")
        assert TRIALS[0].in_words in short
        assert TRIALS[1].in_words not in short

    def test_a_study_that_allows_for_fewer_launches_is_told_how_many_there_would_be(self):
        assert ", with launches.max=34)" in what_more_launches_show(self.planned(), lambda _: 4.0)[0]

    def test_single_launches_show_no_spread(self):
        plan = self.planned()
        plan.records = {name: own[:1] for name, own in plan.records.items()}
        *_, sentence = what_more_launches_show(plan, lambda _: 4.0)
        assert sentence.endswith("tell apart is unknown: one launch of a trial shows no spread")

    def test_a_minute_decides_no_place_of_tied_trials_that_get_no_further_launch(self):
        plan = self.planned()
        plan.rule = replace(plan.rule, most=3)
        (sentence,) = what_more_launches_show(plan, lambda _: 4.0)
        assert sentence.endswith("change no rank: those that are tied get no further launch (launches.max, target)")

    def test_a_minute_decides_no_place_where_all_are_told_apart(self):
        plan = self.planned()
        plan.configurations = [each for each in TRIALS if each.framework in "ad"]
        (sentence,) = what_more_launches_show(plan, lambda _: 4.0)
        assert sentence.endswith("change no rank: no two trials are tied")


class TestResuming:
    """A run into a folder that holds launches already."""

    def test_a_resumed_run_finishes_the_interrupted_block_first(self):
        done = {each.id: [launch(each, 0)] for each in TRIALS[:2]}
        block, trials = schedule(records=done).next_block()
        assert block == 0
        assert sorted(each.framework for each in trials) == ["c", "d"]

    def test_a_resumed_run_repeats_nothing(self):
        done = {each.id: [launch(each, number) for number in range(3)] for each in TRIALS}
        assert run(schedule(records=done)) == ([], 0)

    def test_each_trial_gets_the_launches_that_it_lacks(self):
        counts = zip(TRIALS, (2, 1, 0, 2), strict=True)
        done = {each.id: [launch(each, number) for number in range(count)] for each, count in counts}
        launched, _ = run(schedule(REPEATED, done))
        assert sorted(launched) == [("b", 1), ("c", 0), ("c", 1)]

    def test_a_launch_that_was_set_aside_is_launched_again_under_its_number(self):
        done = {each.id: [launch(each, number) for number in range(3)] for each in TRIALS}
        del done[TRIALS[1].id][1]
        launched, _ = run(schedule(records=done))
        assert launched == [("b", 1)]


class TestFailures:
    """Launches that fail."""

    @pytest.mark.parametrize("rule", [COUNTED, REPEATED, StoppingRule(9, 9, failures_count=True)])
    def test_a_trial_that_fails_twice_is_given_up(self, rule):
        launched, _ = run(schedule(rule), ScriptedExecutor(ends=lambda name, _: "failed" if name == "a" else "ok"))
        assert sum(name == "a" for name, _ in launched) == 2

    def test_a_launch_whose_record_does_not_fit_has_failed_and_says_so(self):
        class TwoWorkers(Runs):
            def record(self, *arguments: Any) -> Launch:
                made = super().record(*arguments)
                return replace(made, workers=[WORKER, WORKER])

        plan, observer = schedule(COUNTED), Noting()
        launched, _ = run(plan, observer=observer, runs=TwoWorkers())
        assert Counter(name for name, _ in launched) == dict.fromkeys("abcd", 2)
        reasons = {each.reason for records in plan.records.values() for each in records}
        assert len(reasons) == 1
        assert "its record does not fit what was launched: it has records of the ranks 0, 0" in reasons.pop()
        assert "does not fit what was launched" in observer.notes[0]

    def test_a_trial_that_fails_once_gets_its_launches(self):
        plan = schedule(StoppingRule(2, 4, suffices=lambda *_: False, failures_count=True))
        plan.add(TRIALS[0], launch(TRIALS[0], 0, "failed"))
        launched, _ = run(plan)
        assert [number for name, number in launched if name == "a"] == [1, 2, 3]

    def test_a_failed_launch_that_does_not_count_is_repeated_at_the_end_of_its_block(self):
        fails_first = ScriptedExecutor(ends=lambda name, attempt: "failed" if (name, attempt) == ("b", 0) else "ok")
        launched, _ = run(schedule(REPEATED), fails_first)
        assert launched[4] == ("b", 0)
        assert Counter(launched)["b", 0] == 2
        assert Counter(launched)["b", 1] == 1

    def test_a_crash_is_repeated_at_once_where_the_kind_of_launch_says_so(self):
        crashing = ScriptedExecutor(ends=lambda name, attempt: "crashed" if (name, attempt) == ("b", 0) else "ok")
        launched, _ = run(schedule(StoppingRule(1, 1, failures=1)), crashing, runs=Runs(crash_repeats=1))
        first = launched.index(("b", 0))
        assert launched[first : first + 2] == [("b", 0)] * 2

    def test_message_timing_repeats_crashes(self):
        assert MessageRuns.crash_repeats == 2

    def test_given_up_trials_are_not_what_the_budget_left_out(self):
        executor = ScriptedExecutor(ends=lambda name, _: "failed" if name == "a" else "ok")
        _, left_out = run(schedule(REPEATED), executor)
        assert left_out == 0


class TestDeadline:
    """The launches that are still begun before the end of a budget."""

    @pytest.mark.parametrize("rule", [COUNTED, REPEATED])
    @pytest.mark.parametrize("deadline", [9.5, 25.0, 39.9])
    def test_no_launch_ends_after_the_deadline_once_one_has_shown_how_long_it_takes(self, rule, deadline):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 4.0))
        run(schedule(rule), executor, deadline=deadline)
        assert executor.now <= deadline
        assert deadline - executor.now < 4.0 or executor.now == 4.0 * len(TRIALS) * rule.most

    def test_a_first_launch_of_which_nothing_is_known_is_begun_while_there_is_time(self):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 30.0))
        launched, _ = run(schedule(), executor, deadline=5.0)
        assert len(launched) == 1

    def test_a_trial_of_which_nothing_is_known_gets_its_first_launch_where_a_quick_one_would_end_in_time(self):
        executor = ScriptedExecutor({"a": 50.0, "b": 2.0, "c": 2.0, "d": 2.0})
        done = {TRIALS[0].id: [launch(TRIALS[0], 0, wall_s=50.0)]}
        launched, _ = run(schedule(StoppingRule(1, 1), done), executor, deadline=6.0)
        assert {name for name, _ in launched} == set("bcd")
        assert len(launched) == 3

    def test_one_that_takes_longer_than_expected_is_ended_a_little_behind_the_deadline(self):
        observer, executor = Noting(), ScriptedExecutor(dict.fromkeys("abcd", 80.0))
        plan = schedule(prior_s=lambda _: 10.0)
        run(plan, executor, deadline=30.0, observer=observer, grace_s=1.5)
        assert executor.now == 31.5
        assert plan.records == {}
        assert observer.notes[0].endswith("0: it left no record")

    def test_a_first_launch_is_begun_where_what_it_makes_necessary_ends_in_time_too(self):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 4.0))
        plan = schedule(REPEATED, prior_s=lambda _: 4.0, follow_up_s=lambda _: 7.0)
        assert run(plan, executor, deadline=10.0)[0] == []
        launched, _ = run(plan, executor, deadline=12.0)
        assert len({name for name, _ in launched}) == 1

    def test_nothing_is_begun_after_the_deadline(self):
        executor = ScriptedExecutor(now=6.0)
        assert run(schedule(), executor, deadline=5.0)[0] == []

    def test_a_slow_trial_does_not_keep_quick_ones_from_their_launches(self):
        executor = ScriptedExecutor({"a": 50.0})
        launched, _ = run(schedule(StoppingRule(5, 5)), executor, deadline=80.0)
        assert Counter(name for name, _ in launched) == {"a": 1, "b": 5, "c": 5, "d": 5}
        assert executor.now <= 80.0

    def test_where_launches_of_another_kind_tell_the_first_launch_ends_in_time_too(self):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 4.0))
        launched, left_out = run(schedule(REPEATED, prior_s=lambda _: 4.0), executor, deadline=3.0)
        assert launched == []
        assert left_out == 8

    def test_the_budget_says_that_it_is_spent_and_how_many_launches_it_left_out(self):
        observer, executor = Noting(), ScriptedExecutor(dict.fromkeys("abcd", 4.0))
        launched, left_out = run(schedule(REPEATED), executor, 13.0, observer)
        assert len(launched) == 3
        assert left_out == 5
        assert observer.notes == [BUDGET_SPENT]


class TestLaunchesThatKeepWhatTheyDid:
    """A deadline ends them, and a later run goes on."""

    def test_one_that_takes_longer_than_the_budget_is_ended_at_its_end(self):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 80.0))
        launched, _ = run(schedule(REPEATED), executor, deadline=30.0, runs=KeepingRuns())
        assert (len(launched), executor.now) == (1, 30.0)

    def test_one_that_is_ended_leaves_no_record_of_a_failure(self):
        plan = schedule(REPEATED)
        run(plan, ScriptedExecutor(dict.fromkeys("abcd", 80.0)), deadline=30.0, runs=KeepingRuns())
        assert plan.records == {}

    def test_how_far_it_is_and_how_it_goes_on_is_said(self):
        observer, executor = Noting(), ScriptedExecutor(dict.fromkeys("abcd", 80.0))
        run(schedule(REPEATED), executor, deadline=30.0, observer=observer, runs=KeepingRuns("b"))
        ended = "the budget ended b 0: epoch 3 of 8 is kept; rerun to continue from there"
        assert observer.notes == [ended, BUDGET_SPENT]

    def test_one_that_is_known_to_take_longer_is_begun_where_it_gets_further(self):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 80.0))
        run(schedule(REPEATED, prior_s=lambda _: 80.0), executor, deadline=30.0, runs=KeepingRuns())
        assert executor.now == 30.0

    def test_none_is_begun_where_no_epoch_would_end_in_time(self):
        plan = schedule(REPEATED, prior_s=lambda _: 80.0)
        assert run(plan, deadline=9.0, runs=KeepingRuns())[0] == []

    def test_those_that_end_in_time_come_first(self):
        executor = ScriptedExecutor({"a": 80.0, "b": 5.0, "c": 5.0, "d": 5.0})
        plan = schedule(StoppingRule(1, 1), prior_s=lambda each: executor.wall_s[each.framework])
        launched, _ = run(plan, executor, deadline=30.0, runs=KeepingRuns())
        assert [name for name, _ in launched][3:] == ["a"]

    @pytest.mark.parametrize("begun", "abcd")
    def test_what_is_begun_goes_on_before_another_is_begun(self, begun):
        executor = ScriptedExecutor(dict.fromkeys("abcd", 80.0))
        plan = schedule(REPEATED, prior_s=lambda _: 80.0)
        launched, _ = run(plan, executor, deadline=30.0, runs=KeepingRuns(begun))
        assert launched == [(begun, 0)]

    def test_a_failure_is_a_failure_when_the_budget_is_not_over(self):
        plan = schedule(StoppingRule(1, 1))
        run(plan, ScriptedExecutor(ends=lambda *_: "failed"), deadline=50.0, runs=KeepingRuns())
        assert {len(records) for records in plan.records.values()} == {2}


def test_an_ablation_launch_is_expected_to_start_and_end_as_the_timed_ones_did():
    timed = [launch(TRIALS[0], number, wall_s=wall_s) for number, wall_s in enumerate((7.0, 9.0, 30.0))]
    assert expected_ablation_s(timed, timed_s=3.0, seconds=10.0) == 9.0 - 3.0 + 10.0


class TestExpectedTime:
    """How long the next launch of a trial will take."""

    def test_it_is_the_median_of_its_own_launches(self):
        plan = schedule()
        for number, wall_s in enumerate((10.0, 30.0, 12.0)):
            plan.add(TRIALS[0], launch(TRIALS[0], number, wall_s=wall_s))
        assert plan.expected_s(TRIALS[0]) == 12.0

    def test_without_launches_it_is_the_mean_of_the_others(self):
        plan = schedule()
        assert plan.expected_s(TRIALS[2]) is None
        plan.add(TRIALS[0], launch(TRIALS[0], 0, wall_s=10.0))
        plan.add(TRIALS[1], launch(TRIALS[1], 0, wall_s=50.0))
        assert plan.expected_s(TRIALS[2]) == 30.0


class TestRemaining:
    """The launches that are still to come, as a range."""

    def test_before_the_first_launch_the_range_is_that_of_the_rule_and_its_time_is_unknown(self):
        assert schedule().remaining(None) == Remaining(8, 12, None, None)

    def test_the_time_is_that_of_earlier_runs_as_long_as_no_launch_has_shown_another(self):
        assert schedule(prior_s=lambda _: 5.0).remaining(None) == Remaining(8, 12, 40.0, 60.0)

    def test_a_quick_launch_tells_nothing_of_trials_that_may_be_slow(self):
        done = {TRIALS[0].id: [launch(TRIALS[0], 0, wall_s=1.0)]}
        assert schedule(records=done).remaining(None).least_s is None

    def test_of_a_trial_that_has_its_minimum_and_is_not_settled_none_is_needed(self):
        done = {TRIALS[0].id: [launch(TRIALS[0], number, wall_s=2.0) for number in range(2)]}
        plan = Schedule(TRIALS[:1], StoppingRule(2, 9, suffices=lambda *_: False), "0", done)
        assert plan.remaining(None) == Remaining(0, 7, 0.0, 14.0)

    @pytest.mark.parametrize("left_s", [50.0, 30.0, 0.0])
    def test_a_budget_ends_the_time_and_leaves_the_numbers_of_the_study(self, left_s):
        plan = schedule(prior_s=lambda _: 5.0)
        assert plan.remaining(left_s) == Remaining(8, 12, min(40.0, left_s), left_s)

    def test_the_number_that_is_needed_stays_the_same_over_a_run(self):
        observer = Noting()
        launched, _ = run(schedule(StoppingRule(2, 3, suffices=lambda *_: False)), observer=observer)
        needed = {done + each.least for done, each in enumerate(observer.reports) if each.least}
        assert len(launched) > 8
        assert needed == {8}

    def test_the_runner_reports_the_range_before_every_launch(self):
        observer = Noting()
        launched, _ = run(schedule(StoppingRule(2, 3)), observer=observer)
        assert len(observer.reports) == len(launched)
        assert [(each.least, each.most) for each in observer.reports[:2]] == [(8, 12), (7, 11)]
