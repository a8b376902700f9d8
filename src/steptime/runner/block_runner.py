"""Launches in randomised blocks, until every configuration has enough of them or the budget is spent.

A block launches every unfinished configuration once, in random order, so that a drift of the machine hits all alike
and configurations can be compared pair by pair. The block of a launch is its index among the launches of its
configuration, so that a resumed run finishes the block that was interrupted before it begins another.
"""

import abc
import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count as count_from
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.launch_request import Launchable
from steptime.execution.progress import Observer, Remaining
from steptime.results.consistency import misfit
from steptime.results.stored_record import LaunchRecord
from steptime.runner.allocation import Allocation

START_S = 6.0
"""A guess of the time that starting a framework takes, until the first launch has shown it."""
Verdict = Literal["continue", "settled", "abandoned"]
BUDGET_SPENT = "the budget is spent; what was measured is kept"
Configuration = TypeVar("Configuration", bound=Launchable)
Record = TypeVar("Record", bound=LaunchRecord)


@dataclass(frozen=True)
class LaunchProgress:
    """How far a launch is that goes on from what an earlier one kept, and that a deadline may therefore end."""

    is_begun: bool
    in_words: str
    next_s: float
    """The seconds that a launch needs to get further than this."""


class AbstractRuns(abc.ABC, Generic[Configuration, Record]):
    """One kind of launch, to be run in blocks: its job, its run folder and its record."""

    title: str
    """Shown while its launches run."""
    guess_s: float
    """A guess of the seconds that a launch takes, shown for as long as none has been seen."""
    crash_repeats: ClassVar[int] = 0
    """How often a launch that a signal ended is repeated at once, without a record."""

    def keeps_folder(self, configuration: Configuration) -> bool:  # noqa: ARG002 - of the interface
        """Say whether the run folders of all good launches stay, since something is read from them later."""
        return False

    @abc.abstractmethod
    def job(self, configuration: Configuration, number: int) -> Mapping[str, Any]:
        """Return the ``job.json`` of a configuration's launch ``number``."""

    @abc.abstractmethod
    def folder(self, configuration: Configuration, number: int) -> Path:
        """Return the run folder of a launch; those of the first launch and of failed ones are kept.

        They can be looked into and started by hand; those of other launches differ in nothing but their records.
        """

    @abc.abstractmethod
    def record(self, configuration: Configuration, number: int, result: LaunchResult, fields: dict[str, Any]) -> Record:
        """Return the record of a launch; ``fields`` are those that the records of all kinds have."""

    def kept_progress(
        self,
        configuration: Configuration,  # noqa: ARG002 - most launches begin anew
        number: int,  # noqa: ARG002
    ) -> LaunchProgress | None:
        """Return how far a launch is; None if launches begin anew, so that one that is ended would be lost."""
        return None

    def followed(
        self,
        configuration: Configuration,  # noqa: ARG002 - most launches have nothing to say before they end
        number: int,  # noqa: ARG002
        observer: Observer,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Return a context in which a launch runs, and that may tell the observer how far it is."""
        return nullcontext()

    @abc.abstractmethod
    def describe(self, configuration: Configuration, number: int) -> str:
        """Return a launch in a few words."""


@dataclass(frozen=True)
class StoppingRule(Generic[Configuration, Record]):
    """When a configuration has enough launches, and when it is given up."""

    least: int
    """Good launches that it needs."""
    most: int
    """Launches after which it gets no other."""
    suffices: Callable[[Configuration, Sequence[Record]], bool] = lambda _configuration, _good: True
    """Whether its good launches, ``least`` or more, are enough."""
    failures: int = 2
    """After so many failed launches, and no more good ones than that, the configuration is given up."""
    failures_count: bool = False
    """Whether a failed launch is one of the ``most``, with a number of its own; else it is repeated in its block."""


@dataclass
class Schedule(Generic[Configuration, Record]):
    """The order of launches of one run; ``records`` grows as launches end."""

    configurations: Sequence[Configuration]
    rule: StoppingRule[Configuration, Record]
    seed: str
    """Decides the order within the blocks."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """By configuration id, those of earlier runs included; without failed ones where the rule does not count these.

    Those in which a host died do not count either."""
    part: Callable[[Configuration], object] = lambda _: None
    """By what the first blocks are divided: one part has its least launches before the next begins, so that its results
    come early."""
    prior_s: Callable[[Configuration], float | None] = lambda _: None
    """The seconds of a first launch, where launches of another kind tell, or earlier runs."""
    open_ids: Callable[[float | None], Collection[str] | None] = lambda _: None
    """Returns, by the seconds that are left of a budget, the ids of configurations that get further launches before the
    others, beyond the least of each; None of a schedule that treats all alike."""
    follow_up_s: Callable[[Configuration], float] = lambda _: 0.0
    """The seconds that a first launch makes necessary after all launches, as of its replay."""

    def verdict(self, configuration: Configuration) -> Verdict:
        """Say whether ``configuration`` needs another launch."""
        good = [record for record in self._records(configuration) if record.status != "failed"]
        failed = len(self._records(configuration)) - len(good)
        if failed >= self.rule.failures and failed >= len(good):
            return "abandoned"
        if self.count(configuration) >= self.rule.most:
            return "settled"
        if len(good) >= self.rule.least and self.rule.suffices(configuration, good):
            return "settled"
        return "continue"

    def count(self, configuration: Configuration) -> int:
        """Return how many launches of ``configuration`` count."""
        records = self._records(configuration)
        return len(records) if self.rule.failures_count else sum(record.status != "failed" for record in records)

    def lacks_least(self, configuration: Configuration) -> bool:
        """Whether ``configuration`` is to get another of its least launches."""
        return self.count(configuration) < self.rule.least and self.verdict(configuration) == "continue"

    def launches(self) -> int:
        """Return how many launches there are of all configurations."""
        return sum(map(len, self.records.values()))

    def next_number(self, configuration: Configuration) -> int:
        """Return the number of the next launch: the first that none has, as after one that was set aside."""
        failures_count = self.rule.failures_count
        taken = {each.launch for each in self._records(configuration) if failures_count or each.status != "failed"}
        return next(number for number in count_from(0) if number not in taken)

    def unfinished(self) -> list[Configuration]:
        """Return the configurations that need another launch."""
        return [each for each in self.configurations if self.verdict(each) == "continue"]

    def next_block(
        self, fits: Callable[[Configuration], bool] = lambda _: True, left_s: float | None = None
    ) -> tuple[int, list[Configuration]]:
        """Return the index of the next block and its configurations in random order; of the first blocks the next part.

        There are none when all configurations are finished, or no other ``fits``; ``left_s`` is what a budget leaves.
        """
        waiting = [each for each in self.unfinished() if fits(each)]
        if not waiting:
            return 0, []
        numbers = {each.id: self.next_number(each) for each in waiting}
        early = [each for each in waiting if numbers[each.id] < self.rule.least]
        chosen = [each for each in early if self.part(each) == self.part(early[0])] or self._open(waiting, left_s)
        block = min(numbers[each.id] for each in chosen)
        members = [each for each in chosen if numbers[each.id] == block]
        random.Random(f"{self.seed}/{block}").shuffle(members)  # noqa: S311 - reproducible, not secret
        return block, members

    def _open(self, waiting: list[Configuration], left_s: float | None) -> list[Configuration]:
        ids = self.open_ids(left_s)
        return waiting if ids is None else [each for each in waiting if each.id in ids] or waiting

    def add(self, configuration: Configuration, record: Record) -> None:
        """Take the record of a launch into account."""
        self.records.setdefault(configuration.id, []).append(record)

    def expected_s(self, configuration: Configuration) -> float | None:
        """Return how long a launch of ``configuration`` will take; None while unknown.

        That is the median of its own launches, or else ``prior_s``, or else the mean of the others.
        """
        seen = self._seen_s(configuration)
        if seen is not None:
            return seen
        others = [record.wall_s for records in self.records.values() for record in records]
        return statistics.fmean(others) if others else None

    def _seen_s(self, configuration: Configuration) -> float | None:
        """Return the median of the launches of ``configuration``, or else ``prior_s``."""
        own = [record.wall_s for record in self._records(configuration)]
        return statistics.median_high(own) if own else self.prior_s(configuration)

    def at_least_s(self, configuration: Configuration, guess_s: float) -> float:
        """Return the seconds that must be left of a budget for a launch of ``configuration`` to be begun.

        Those that it is expected to take. A configuration of which nothing is known yet gets its first launch if the
        shortest one so far, or a usual one of ``guess_s``, would end in time: it may be quick where others are slow.
        The very first launch of all is begun while there is any time.
        """
        if self._records(configuration):
            return self.expected_s(configuration) or 0.0
        behind_s = self.follow_up_s(configuration)
        if self.prior_s(configuration) is not None:
            return behind_s + (self.expected_s(configuration) or 0.0)
        shortest = min((record.wall_s for records in self.records.values() for record in records), default=0.0)
        return behind_s + min(shortest, guess_s)

    def remaining(self, time_left_s: float | None) -> Remaining:
        """Return how many launches are still to come, and how long they take where that is known.

        Args:
            time_left_s: of the budget, which may end before them; None for no budget. The numbers are those of the
                study all the same: they would be others after each launch.
        """
        least = most = 0
        least_s: float | None = 0.0
        most_s: float | None = 0.0
        for each in self.unfinished():
            needed = max(0, self.rule.least - self.count(each))
            allowed = max(needed, self.rule.most - self.count(each))
            least, most = least + needed, most + allowed
            seconds = self._seen_s(each)
            if seconds is None or least_s is None or most_s is None:
                least_s = most_s = None
            else:
                least_s, most_s = least_s + needed * seconds, most_s + allowed * seconds
        if time_left_s is not None:
            left_s = max(0.0, time_left_s)
            least_s = None if least_s is None else min(least_s, left_s)
            most_s = left_s if most_s is None else min(most_s, left_s)
        return Remaining(least, most, least_s, most_s)

    def _records(self, configuration: Configuration) -> list[Record]:
        return [record for record in self.records.get(configuration.id, []) if not record.lost_hosts]


@dataclass
class _Admitted(Generic[Configuration]):
    """What of a schedule may be launched in one run."""

    before: int
    """Launches of earlier runs."""
    ids: set[str] = field(default_factory=set)
    left_out: list[Configuration] = field(default_factory=list)
    """Those that ``admit`` left out, until ``admit_late`` is asked."""

    def take_left_out(self) -> list[Configuration]:
        """Return those, and have none left."""
        taken, self.left_out = self.left_out, []
        return taken


@dataclass(frozen=True)
class BlockRunner(Generic[Configuration, Record]):
    """Runs the launches of a schedule in fresh processes and keeps each record as soon as its launch is over."""

    executor: Executor
    runs: AbstractRuns[Configuration, Record]
    keep: Callable[[Record], None]
    observer: Observer
    deadline: Callable[[], float | None] = lambda: None
    """Returns the moment on ``clock`` at which launches must end, None for no budget; ``admit`` may move it.

    A launch that is expected to end after it is not begun, unless it goes on from what it keeps: such a launch is ended
    there, and leaves no record."""
    grace_s: float | None = None
    """So long behind the deadline every other launch is ended that takes longer than expected; None: not at all."""
    allocation: Allocation | None = None
    """That the launches must end in: the first launch that would not stops the run with Unfinished."""
    clock: Callable[[], float] = time.monotonic
    before_block: Callable[[Sequence[Configuration]], None] = lambda _: None
    """Called with the configurations that a block launches."""
    after_block: Callable[[], None] = lambda: None
    """Called when the launches of a block are over."""
    admit: Callable[[Sequence[Configuration]], Sequence[Configuration]] | None = None
    """Called with the configurations that are about to be launched for the first time in this run, which may be a stage
    of its own; those that it leaves out are not launched."""
    admit_late: Callable[[Sequence[Configuration]], Sequence[Configuration] | None] | None = None
    """Called once with those that were left out, before others get a second launch; returns None if nothing changes."""

    def run(self, schedule: Schedule[Configuration, Record]) -> int:
        """Launch block after block; return how many launches the budget left out of those needed in any case.

        A slow configuration whose next launch would end too late does not keep quick ones from theirs.
        """
        if not schedule.unfinished():
            return 0
        if self.admit is None:
            self.observer.stage(self.runs.title, schedule.remaining(None).least)
        admission: _Admitted[Configuration] = _Admitted(schedule.launches())

        def ends_in_time(configuration: Configuration) -> bool:
            time_left = self._time_left_s()
            return time_left is None or 0.0 < time_left >= schedule.at_least_s(configuration, self.runs.guess_s)

        while True:
            # As long as no launch has shown how long one takes, what an earlier run began is gone on with.
            if not any(schedule.records.values()) and self._launch_until_deadline(schedule, only_begun=True):
                continue
            block, members = self._next_block(schedule, ends_in_time, admission)
            self.before_block([*filter(ends_in_time, members)])
            for configuration in filter(ends_in_time, members):
                self._launch(schedule, configuration, block)
            if members:
                self.after_block()
            if not members and not self._launch_until_deadline(schedule):
                break
        if schedule.unfinished():
            self.observer.note(BUDGET_SPENT)
        return schedule.remaining(None).least

    def _next_block(
        self,
        schedule: Schedule[Configuration, Record],
        fits: Callable[[Configuration], bool],
        admission: "_Admitted[Configuration]",
    ) -> tuple[int, list[Configuration]]:
        """Return the next block, with members that may be launched, as ``admission`` has them."""
        while True:
            block, members = schedule.next_block(fits, self._time_left_s())
            if admission.left_out and (block or not members):
                left_out = admission.take_left_out()
                passing = self.admit_late(left_out) if self.admit_late else None
                schedule.configurations = [*schedule.configurations, *(passing or ())]
            else:
                new = [each for each in members if each.id not in admission.ids]
                if not new or self.admit is None:
                    return block, members
                passing = self.admit(new)
                refused = {each.id for each in new} - {each.id for each in passing}
                admission.left_out += [each for each in new if each.id in refused]
                schedule.configurations = [each for each in schedule.configurations if each.id not in refused]
            if passing is not None:
                admission.ids |= {each.id for each in passing}
                made = schedule.launches() - admission.before
                self.observer.stage(self.runs.title, made + schedule.remaining(None).least, made)

    def _launch_until_deadline(self, schedule: Schedule[Configuration, Record], *, only_begun: bool = False) -> bool:
        """Launch one that the deadline may end and that gets further until then; return whether there was any."""
        waiting = [(each, schedule.next_number(each)) for each in schedule.unfinished()]
        found = [(self.runs.kept_progress(each, number), each, number) for each, number in waiting]
        left = self._time_left_s()
        further = [
            (not kept.is_begun, number, each)
            for kept, each, number in found
            if kept is not None and left is not None and kept.next_s <= left and kept.is_begun >= only_begun
        ]
        if further:
            # What is begun first, so that one is over before another is half done.
            _, number, configuration = min(further, key=lambda one: one[:2])
            self._launch(schedule, configuration, number)
        return bool(further)

    def _launch(self, schedule: Schedule[Configuration, Record], configuration: Configuration, number: int) -> None:
        self.observer.remaining(schedule.remaining(self._time_left_s()))
        what = self.runs.describe(configuration, number)
        before = self.runs.kept_progress(configuration, number)
        if self.allocation:
            whole_s = schedule.at_least_s(configuration, self.runs.guess_s)
            self.allocation.require(whole_s if before is None else before.next_s, what)
        self.observer.working_on(what)
        job, folder = self.runs.job(configuration, number), self.runs.folder(configuration, number)
        keeps = number == 0 or self.runs.keeps_folder(configuration)
        for _ in range(1 + self.runs.crash_repeats):
            with self.runs.followed(configuration, number, self.observer):
                limit = self._limit_s(goes_on=before is not None)
                result = self.executor.launch(configuration, job, folder, keep_folder=keeps, at_most_s=limit)
            if not result.crashed:
                break
        if self.allocation and result.reason:
            self.allocation.await_signal()
        kept = self.runs.kept_progress(configuration, number)
        left = self._time_left_s()
        if result.is_late and left is not None and left <= 0:
            progress = f"{kept.in_words}; rerun to continue from there" if kept else "it left no record"
            self.observer.note(f"the budget ended {what}: {progress}")
            return
        fields = self.executor.record_fields(configuration, result)
        record = self._fitting(self.runs.record(configuration, number, result, fields), configuration)
        self.keep(record)
        schedule.add(configuration, record)
        self.observer.finished(what, ok=record.status == "ok")

    def _fitting(self, record: Record, configuration: Configuration) -> Record:
        """Return a record that does not fit what was launched as that of a failed launch: its repeats are limited."""
        found = misfit(record, configuration)
        if found is None:
            return record
        self.observer.note(f"the record of a launch does not fit what was launched: {found.message}")
        return replace(record, status="failed", reason=f"its record does not fit what was launched: {found.message}")

    def _limit_s(self, *, goes_on: bool) -> float | None:
        """Return after how long the budget ends a launch; None without one."""
        left, grace_s = self._time_left_s(), 0.0 if goes_on else self.grace_s
        return None if left is None or grace_s is None else left + grace_s

    def _time_left_s(self) -> float | None:
        deadline = self.deadline()
        return None if deadline is None else deadline - self.clock()
