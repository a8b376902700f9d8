"""The budget of a run: all that it takes on this machine but making environments and data.

It is divided by how long checks, launches and replays took here before. What no run has shown yet is not guessed: the
first check of a run shows how long its like take.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from steptime.equivalence.check import Case
from steptime.runner.block_runner import Schedule
from steptime.runner.durations import KeptDurations
from steptime.runner.run_kinds import RUN_KINDS, TIMED, RunKind, deadlines
from steptime.study.study import Study
from steptime.study.trial import Trial
from steptime.units import format_count, format_seconds
from steptime.validity.missing_evidence import can_replay

REPORT_S = 5.0
"""Of the report at the end of a run, until one was seen here."""
_MOST_FOR_REPORT = 0.4
"""Of a budget."""
GRACE = 0.05
"""Of a budget: what has begun within it is ended so long behind it."""
_FEWEST_FOR_CHECKS, _USUAL_FOR_CHECKS, _MOST_FOR_CHECKS = 0.4, 0.6, 0.8
"""Of the time that is left for timed launches: the part after which checks are ended; the usual one where the length of
launches is unknown."""
_ROUNDING = ((60.0, 10.0), (300.0, 30.0), (3600.0, 60.0), (math.inf, 600.0))
"""A budget that is proposed is a multiple of the second number of seconds, below the first."""
_MARGIN = 1.15


@dataclass
class Budget:
    """The time of one run of a study, and what the parts of the run are expected to take."""

    study: Study
    durations: KeptDurations
    total_s: float | None
    """None without a budget."""
    at_once: int = 1
    """Checks and replays side by side."""
    cores: float = math.inf
    """For their workers; of other hosts as many as are needed."""
    clock: Callable[[], float] = time.monotonic
    began: float = field(default_factory=time.monotonic)
    _cut: dict[str, float] = field(default_factory=dict)
    """What checks had when they were ended before they were over, by trial id. Another run begins them anew, which
    may find the machine less busy."""
    _shortest: dict[str, float] = field(default_factory=dict)
    """The shortest whole check of this run, by workload."""
    proposed_s: float = 0.0
    """What the budget that this run has proposed was to hold; 0 before it."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of a block, which makes environments or data, out of the budget."""
        since = self.clock()
        try:
            yield
        finally:
            self.began += self.clock() - since

    @property
    def end(self) -> float | None:
        """The moment by which all but the report is over; None without a budget."""
        return None if self.total_s is None else self.began + max(0.0, self.total_s - self._report_s)

    @property
    def grace_s(self) -> float:
        """How long behind its deadline a launch is ended that had begun before it."""
        return GRACE * (self.total_s or 0.0)

    def deadlines(self, trials: Sequence[Trial]) -> list[float | None]:
        """Return when the launches of each row of ``RUN_KINDS`` must end; None without a budget.

        First launches, without which nothing is ranked, may have all of it.
        """
        end = self.end
        if end is None:
            return [None] * len(RUN_KINDS)
        now = self.clock()
        return [*deadlines(self.study, trials, end - now, now, self.durations)]

    def note_check(self, trial: Trial, seconds: float, *, is_over: bool) -> None:
        """Take into account how long a check took, or for this run alone what it had when it was ended."""
        if is_over:
            self.durations.note("check", trial, seconds)
            self._shortest[trial.workload] = min(seconds, self._shortest.get(trial.workload, seconds))
        else:
            self._cut[trial.id] = seconds

    def holds_check(self, case: Case, until: float | None) -> bool:
        """Return whether a check that begins now can be over ``until`` then; so it is where its length is unknown."""
        seconds = self._check_s(case, at_best=True) or self._shortest.get(case.trial.workload)
        return until is None or seconds is None or self.clock() + seconds <= until

    def _check_s(self, case: Case, *, at_best: bool) -> float | None:
        seconds = self.durations.expected_s("check", case.trial, at_best=at_best)
        cut_s = self._cut.get(case.trial.id)
        return seconds if cut_s is None else max(cut_s, seconds or 0.0)

    def launch_s(self, trial: Trial) -> float:
        """Return about how long a timed launch takes."""
        return self.durations.expected_s("launch", trial) or TIMED.each_s(self.study, trial)

    def replay_s(self, trial: Trial) -> float:
        """Return about how much longer the replay of a trial's launches makes a run; 0 where it gets none."""
        return self._replay_alone_s(trial) / self._replays_beside(trial)

    def replays_s(self, trials: Iterable[Trial]) -> float:
        """Return about how long the replays of the launches of trials take: none is quicker for being the only one."""
        wanted = [*trials]
        return max(sum(map(self.replay_s, wanted)), max(map(self._replay_alone_s, wanted), default=0.0))

    def _replay_alone_s(self, trial: Trial) -> float:
        if not (self.study.equivalence.enabled and can_replay(trial)):
            return 0.0
        # Its processes begin with their framework imported, which the first of them waits for.
        return self.durations.expected_s("replay", trial) or self.launch_s(trial)

    def _replays_beside(self, trial: Trial) -> float:
        """Return how many replays like that of a trial run at once, whose workers have a core each.

        A length that is known holds the time for which its workers waited for cores.
        """
        if self.durations.expected_s("replay", trial) is not None:
            return self.at_once
        return max(1.0, min(self.at_once, self.cores / trial.workers))

    def note_cut_replays(self, trials: Sequence[Trial], seconds: float) -> None:
        """Take into account that the replays of trials were not over after so many seconds, where fewer were expected.

        Of more than are made at once some had not begun.
        """
        for trial in trials:
            had_s = seconds * min(1.0, self.at_once / len(trials))
            if had_s > self._replay_alone_s(trial):
                self.durations.note("replay", trial, had_s)

    def end_of_launches(self, end: float | None, kind: RunKind[Any], schedule: Schedule[Trial, Any]) -> float | None:
        """Return when launches must end, so that timed ones can be replayed.

        Args:
            end: of their row; of no account while a trial may still get one of its least launches.
            kind: the row.
            schedule: has the launches there are.
        """
        if kind is not TIMED or end is None or self.end is None:
            return end
        launches, trials = schedule.records, schedule.configurations
        launched = [each for each in trials if any(one.status == "ok" for one in launches.get(each.id, ()))]
        # A launch that had begun may end behind its deadline, which is not to cost the replays their time.
        behind_s = self.replays_s(launched) + (self.grace_s if launched else 0.0)
        left_s = self.end - behind_s - self.clock()
        owed = [each for each in trials if schedule.lacks_least(each)]
        fits = any(schedule.at_least_s(each, kind.each_s(self.study, each)) <= left_s for each in owed)
        return (self.end if fits else end) - behind_s

    def checks_s(self, cases: Sequence[Case], *, at_best: bool = False) -> float | None:
        """Return about how long checks take; those of unknown length as the others of their workload, None without any.

        A framework that was not checked before may need longer than all others. Checks of loaders train a small
        network, no longer than the mean of all.

        Args:
            cases: the checks.
            at_best: whether each is as quick as the quickest of its like that was seen here.
        """
        total, known_count, loaders = 0.0, 0, 0
        by_workload: dict[str, list[float | None]] = {}
        for each in cases:
            seconds = self._check_s(each, at_best=at_best)
            if seconds is None and each.loader is not None:
                loaders += 1
            else:
                by_workload.setdefault(each.trial.workload, []).append(seconds)
        for lengths in by_workload.values():
            known = [each for each in lengths if each is not None]
            if not known:
                return None
            total += sum(known) * len(lengths) / len(known)
            known_count += len(lengths)
        if loaders and not known_count:
            return None
        return total * (1.0 + loaders / known_count if known_count else 1.0) / self.at_once

    def affordable(
        self, trials: Sequence[Trial], pending: Sequence[Case], until: float | None, *, first: bool = False
    ) -> list[Trial]:
        """Return the trials to check and to launch until a moment, those of a first ranking first.

        That is all of them where the length of a check is unknown; else those that fit if checks are as quick as they
        ever were here. Those without a check to be made are among them.

        Args:
            trials: that are about to be launched for the first time.
            pending: the checks to be made of them.
            until: on ``clock``; None without a budget.
            first: whether nothing was launched yet. Then the quickest group is among them in any case: the machine may
                be quicker today, and a check that is over is kept for the next run.
        """
        if until is None or not pending:
            return [*trials]
        groups = self._quickest_first(trials, pending)
        chosen: list[Trial] = []
        for trial in (member for group in groups for member in group):
            is_checked = not any(trial.id in case.stands_for for case in pending)
            if is_checked or self._fits([*chosen, trial], pending, until):
                chosen.append(trial)
        return chosen or (groups[0] if first and groups else [])

    def _quickest_first(self, trials: Sequence[Trial], pending: Sequence[Case]) -> list[list[Trial]]:
        """Return trials by groups; groups, and the trials in them, by what checks, launches and replays take."""
        costs = {trial.id: self._cost_s(trial, pending) for trial in trials}
        groups: dict[str, list[Trial]] = {}
        for trial in trials:
            groups.setdefault(trial.group, []).append(trial)
        ordered = sorted(groups.values(), key=lambda group: sum(costs[trial.id] for trial in group))
        return [sorted(group, key=lambda trial: costs[trial.id]) for group in ordered]

    def affordable_late(self, trials: Sequence[Trial], pending: Sequence[Case], until: float | None) -> list[Trial]:
        """Return the trials whose checks were not over in time and can be until a moment, the quickest first.

        A check that was ended takes longer than it had, for which there is a margin.
        """
        chosen: list[Trial] = []
        if until is not None:
            for trial in sorted(trials, key=lambda trial: self._cost_s(trial, pending)):
                if self._fits([*chosen, trial], pending, until, margin=_MARGIN):
                    chosen.append(trial)
        return chosen

    def _fits(self, trials: Sequence[Trial], pending: Sequence[Case], until: float, margin: float = 1.0) -> bool:
        """Whether ``trials`` can be checked and launched until a moment; so if the length of a check is unknown."""
        waiting = [case for case in pending if any(trial.id in case.stands_for for trial in trials)]
        checks_s = self.checks_s(waiting, at_best=True)
        return checks_s is None or self.clock() + margin * checks_s + self.launches_s(trials) <= until

    def launches_s(self, trials: Sequence[Trial]) -> float:
        """Return about how long a launch of each trial takes, with their replays."""
        return sum(self.launch_s(trial) + self.replay_s(trial) for trial in trials)

    def _cost_s(self, trial: Trial, pending: Sequence[Case]) -> float:
        checks_s = self.checks_s([each for each in pending if trial.id in each.stands_for], at_best=True)
        return (checks_s or 0.0) + self.launch_s(trial) + self.replay_s(trial)

    def end_of_checks(self, trials: Sequence[Trial], until: float | None, *, first: bool = True) -> float | None:
        """Return when the checks of ``trials`` must end, so that these can be launched and replayed ``until`` then.

        Those that come ``first`` have more time where launches are of unknown length: later ones may be of a workload
        too large for this budget, and keep others from further launches.
        """
        if until is None:
            return None
        now = self.clock()
        left_s = max(0.0, until - now)
        if any(self.durations.expected_s("launch", each) is None for each in trials):
            return now + (_USUAL_FOR_CHECKS if first else _FEWEST_FOR_CHECKS) * left_s
        wanted_s = left_s - sum(self.launch_s(each) + self.replay_s(each) for each in trials)
        return now + min(max(wanted_s, _FEWEST_FOR_CHECKS * left_s), _MOST_FOR_CHECKS * left_s)

    @contextmanager
    def ending(self, cancelled: threading.Event, moment: float | None) -> Iterator[None]:
        """Set ``cancelled`` at a moment on ``clock`` that comes while a block runs; None never comes."""
        if moment is None:
            yield
            return
        timer = threading.Timer(max(0.0, moment - self.clock()), cancelled.set)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def shortage(self, trials: Sequence[Trial], pending: Sequence[Case]) -> list[str]:
        """Say what of a run the budget does not hold, with what would; nothing where it holds all, or that was said.

        Args:
            trials: of the run.
            pending: the checks to be made.
        """
        if self.total_s is None:
            return []
        checks_s = self.checks_s(pending) if pending else 0.0
        behind = {
            **self._launches_s(trials),
            "replays of the timed steps": self.replays_s(TIMED.trials(self.study, trials)),
            "the report": self._report_s,
        }
        if checks_s is None:
            return list(self._shortage_besides_checks(format_count(len(pending), "check"), behind))
        parts = {format_count(len(pending), "check"): checks_s, **behind}
        needed_s = sum(parts.values())
        if needed_s <= max(self.total_s, self.proposed_s):
            return []
        earlier_s, self.proposed_s = self.proposed_s, needed_s
        if earlier_s:
            return [f"by what the checks took, {proposed(needed_s)} rather than {proposed(earlier_s)} holds all"]
        sentence = (
            f"the budget of {format_seconds(self.total_s)} is too short for the whole study: {_listed(parts)}; "
            f"{proposed(needed_s)} does"
        )
        return [sentence, *self._long_checks(pending, needed_s)]

    def _shortage_besides_checks(self, checks: str, behind: Mapping[str, float]) -> Iterator[str]:
        """Say what a budget holds beside checks of unknown length, which get their usual part of it."""
        total_s, needed_s = self.total_s or 0.0, sum(behind.values())
        yield f"{checks} to be made; how long they take on this machine is not known before the first has ended"
        if needed_s <= (1.0 - _USUAL_FOR_CHECKS) * total_s:
            return
        self.proposed_s = 2.0 * needed_s
        yield (
            f"after them the budget of {format_seconds(total_s)} may be too short for {_listed(behind)}; what has "
            f"never run here is a guess; {proposed(2.0 * needed_s)} is enough for all"
        )

    def _launches_s(self, trials: Sequence[Trial]) -> dict[str, float]:
        """Return how long launches take, by what they do; a guess of those of which none was seen here."""
        lasting = {}
        for kind in RUN_KINDS:
            lengths = [
                (
                    kind.launches(self.study, each),
                    self.durations.expected_s(kind.work, each) or kind.each_s(self.study, each),
                )
                for each in kind.trials(self.study, trials)
            ]
            if lengths:
                count = format_count(sum(launches for launches, _ in lengths), "launch", "launches")
                lasting[f"{count} that {kind.purpose}"] = sum(launches * seconds for launches, seconds in lengths)
        return lasting

    def _long_checks(self, pending: Sequence[Case], needed_s: float) -> list[str]:
        """Name the longest checks of a framework on a workload, where checks take most of what is needed."""
        lengths: dict[str, float] = {}
        for each in pending:
            name = f"{each.trial.workload} in {each.trial.framework}"
            lengths[name] = lengths.get(name, 0.0) + (self.checks_s([each]) or 0.0)
        if not lengths or 2.0 * sum(lengths.values()) < needed_s:
            return []
        longest = max(lengths, key=lambda name: lengths[name])
        sentence = (
            f"of that the checks of {longest} take about {format_seconds(lengths[longest])}; equivalence.enabled=false "
            "leaves all checks out, and compares nothing with the reference"
        )
        return [sentence]

    @property
    def _report_s(self) -> float:
        # Nothing ends it, so that one that takes longer than usual would be over the budget.
        seconds = self.durations.longest_s("report") or REPORT_S
        return seconds if self.total_s is None else min(seconds, _MOST_FOR_REPORT * self.total_s)


def _listed(lasting: Mapping[str, float]) -> str:
    return ", ".join(f"{name} (about {format_seconds(seconds)})" for name, seconds in lasting.items() if seconds)


def missing_launches(kind: RunKind[Any], left_out: int, budget: Budget) -> str:
    """Say that launches of a kind were not made, and why."""
    return (
        f"{format_count(left_out, 'launch', 'launches')} that {kind.purpose} not made: the budget of "
        f"{format_seconds(budget.total_s or 0.0)} was spent; rerun to make them"
    )


def missing_replays(trials: Sequence[Trial]) -> str:
    """Name the trials whose timed steps were not all repeated; those that had a rank before keep it, with a flag."""
    names = "; ".join(trial.in_words for trial in trials)
    return f"the budget ended before timed steps were repeated without timers; rerun to repeat those of: {names}"


def proposed(needed_s: float) -> str:
    """Return a budget, as a study has it, that holds so many seconds and a margin."""
    wanted_s = _MARGIN * needed_s
    step_s = next(step for below, step in _ROUNDING if wanted_s < below)
    seconds = math.ceil(wanted_s / step_s) * step_s
    return f"budget={seconds / 60.0:g}m" if seconds % 60.0 == 0.0 else f"budget={seconds:g}s"
