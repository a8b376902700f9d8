"""A trial as the rules look at it: its configuration, its breakdown, and what the study knows around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import Any

from steptime.analysis.ablation.form import Phase, StepBreakdown
from steptime.analysis.loader_form import LoaderVerdict
from steptime.analysis.message_times import NetRow
from steptime.analysis.summary_form import TrialSummary
from steptime.catalog.choices import Strategy, strategy_named
from steptime.catalog.manifest import Manifest
from steptime.catalog.options import OptionValue
from steptime.catalog.workloads.costs import costs
from steptime.errors import SteptimeError
from steptime.results.json_form import Interval
from steptime.results.machine import usable_cores
from steptime.study.trial import Trial

CPU_FLOP_RATE = (1e9, 6e10)
"""FLOP per second that one thread of a processor reaches in layers of usual sizes, from the slowest to the quickest: a
belief, which no record of a trial is about. A core of 2 to 4 GHz with AVX2 has at most 60 to 130, and with AVX-512
twice as much, which ``steptime peak`` measures."""


@dataclass(frozen=True)
class Exchanged:
    """What travels in a step, as the framework's own transfers have it."""

    pieces: float
    bytes: float
    """Of all pieces of a step of one worker."""


@dataclass(frozen=True)
class DiagnosedTrial:
    """One trial that was measured."""

    trial: Trial
    summary: TrialSummary
    machine: Mapping[str, Any]
    manifest: Manifest | None = None
    """Of its framework; None if this installation does not have it."""
    loading: LoaderVerdict | None = None
    exchanged: Exchanged | None = None
    links: Sequence[NetRow] = ()
    """Of the network benchmark in the same folder."""
    trivial_step_s: float | None = None
    """The step of the smallest workload that the same framework trained with as many workers; None without one."""

    @property
    def breakdown(self) -> StepBreakdown | None:
        return self.summary.breakdown

    @property
    def strategy(self) -> Strategy:
        return strategy_named(self.trial.strategy)

    @cached_property
    def cores(self) -> float | None:
        """Cores that its launches could use; None if the machine does not say."""
        return usable_cores(self.machine)

    @property
    def busy(self) -> int:
        """Compute threads of all workers, and servers."""
        return self.trial.workers * self.trial.threads + self.trial.servers

    def share(self, *names: str) -> Interval | None:
        """Return the share of the step that phases take together; None if one of them is unknown.

        Their noise is taken to be independent. Phases that exclude each other vary less together than that.
        """
        if self.breakdown is None:
            return None
        phases = [self.breakdown.phases.get(name) for name in names]
        known = [each for each in phases if each is not None]
        if len(known) < len(phases):
            return None
        return _sum_of(known, self.breakdown.step_s.value_s)

    def option(self, name: str) -> OptionValue | None:
        """Return the value of one of the framework's options; None if it means nothing to the strategy."""
        return self.trial.options.get(name)

    def overrides(self, options: Mapping[str, OptionValue]) -> list[str]:
        """Return options as overrides of a study."""
        return [f"options.{self.trial.framework}.{name}={_written(value)}" for name, value in options.items()]

    def better_options(self, names: Sequence[str]) -> dict[str, OptionValue]:
        """Return those of ``names`` that the tier ``tuned`` has otherwise than this trial, with its values.

        A value that somebody chose, which is neither the framework's default nor that of the tier, is left alone.
        """
        if self.manifest is None or self.trial.strategy not in self.manifest.strategies:
            return {}
        tuned = self.manifest.tier_options("tuned", self.trial.strategy, self.trial.device)
        usual = self.manifest.tier_options("documented", self.trial.strategy, self.trial.device)
        return {
            name: tuned[name]
            for name in names
            if name in tuned and name in self.trial.options
            if self.trial.options[name] == usual[name] != tuned[name]
        }

    def has_loader(self, name: str) -> bool:
        """Whether the framework can read the trial's dataset by a loader."""
        return self.manifest is not None and name in self.manifest.loaders

    @cached_property
    def computing_s(self) -> tuple[float, float] | None:
        """Return the least and the most seconds that the arithmetic of a step should take; None if it is unknown."""
        if self.trial.device != "cpu" or self.trial.own is not None:
            return None
        try:
            work = costs(self.trial.build())
        except SteptimeError:  # a workload of somebody's that is not installed here
            return None
        flops = (work.forward_flops + work.backward_flops) * self.trial.batch_per_worker
        slow, quick = (rate * self.trial.threads for rate in CPU_FLOP_RATE)
        return flops / (self._measured_peak or quick), flops / slow

    @property
    def _measured_peak(self) -> float | None:
        """What the threads of a worker multiply per second at most (``steptime peak``); None unless measured."""
        work = self.summary.work
        if work is None or work.peak_source != "measured":
            return None
        return work.peak_flop_per_s.high or work.peak_flop_per_s.value


def _sum_of(phases: Sequence[Phase], step_s: float) -> Interval:
    value = sum(each.value_s for each in phases) / step_s
    below = [each.value_s - each.low_s for each in phases if each.low_s is not None]
    above = [each.high_s - each.value_s for each in phases if each.high_s is not None]
    if len(below) < len(phases) or len(above) < len(phases):
        return Interval(value, None, None)
    return Interval(value, value - hypot(*below) / step_s, value + hypot(*above) / step_s)


def _written(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
