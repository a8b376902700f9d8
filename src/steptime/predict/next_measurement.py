"""The measurement that would narrow the interval of a prediction most, as a command of the study that was fitted.

Each measurement is tried: what the interval would be were the parameters known that it shows, or were the configuration
measured that it adds. One is named only where its run adds records to those that are there: more launches, another size
or another number of workers.

Its placeholders are STUDY and RESULTS, that study and its folder, and n0, n1 and n2, hosts.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from steptime.catalog.choices import SINGLE, SYNTHETIC, strategy_named
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.observation import Deployment, GroupKey
from steptime.fitting.posterior import Array, bounds
from steptime.fitting.profile import MeasuredConfiguration, ProfileGroup
from steptime.fitting.step_model import INNER, OUTER, StepModel
from steptime.predict.uncertainty import Extrapolation, uncertain_step
from steptime.units import format_seconds

STUDY, RESULTS = "STUDY", "RESULTS"
_TWO_HOSTS = "launcher=ssh hosts=n0,n1"
_LAUNCHES = 10
_TEXT_DIMENSIONS = 1
"""Of the input of a workload that reads text: its sequence."""
_SEED = 17
_NARROWER = 0.98
"""An interval whose ends lie a larger share as far apart, by logarithms, is not called narrower."""
_OF_SEVERAL = ("overlap_efficiency", "persistent", "transient", "contention_factor")
_OF_LOADING = ("input_per_sample_s", "input_share")
_TIMING = "timing"


@dataclass(frozen=True)
class UncertainPrediction:
    """What the interval of a step follows from."""

    parameters: Mapping[str, Array]
    model: StepModel
    extrapolation: Extrapolation
    spread: float
    """Relative standard deviation of launches."""

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the step, of 90 %, seconds."""
        rng = np.random.default_rng(_SEED)
        step = uncertain_step(self.parameters, self.model, self.extrapolation, self.spread, rng)
        return bounds(step.seen)

    def knowing(self, names: Collection[str]) -> "UncertainPrediction":
        """Return it with the medians of parameters in place of their draws."""
        known = {name: np.full_like(self.parameters[name], np.median(self.parameters[name])) for name in names}
        return replace(self, parameters={**self.parameters, **known})

    def with_more_launches(self, names: Collection[str], ratio: float) -> "UncertainPrediction":
        """Return it with parameters from so many times the launches: their logarithms spread by the root less."""
        shrunk = {}
        for name in names:
            draws = self.parameters[name]
            middle = float(np.median(draws))
            shrunk[name] = middle * (np.maximum(draws, 1e-300) / middle) ** ratio**-0.5 if middle > 0.0 else draws
        return replace(self, parameters={**self.parameters, **shrunk})


@dataclass(frozen=True)
class MeasurementOption:
    """One that can be made, and the interval with it."""

    what: str
    command: str
    with_it: UncertainPrediction


def narrowing(
    now: UncertainPrediction,
    group: ProfileGroup,
    asked: tuple[GroupKey, Deployment],
    timed: Collection[tuple[str, ...]],
    place: tuple[str, str] = (STUDY, RESULTS),
) -> str | None:
    """Return the one measurement that would narrow the interval most, with its command; None if none does.

    Args:
        now: what the interval follows from.
        group: whose exchange was measured, or else whose computing.
        asked: what is predicted.
        timed: of ``INNER`` and ``OUTER``, the links whose messages ``steptime net`` timed for the profile.
        place: the study and its folder.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        options = [(each.with_it.interval, each) for each in measurements(now, group, asked, timed)]
        low, high = now.interval
    known = [(ends, each) for ends, each in options if 0.0 < ends[0] <= ends[1] < np.inf]
    (best_low, best_high), best = min(known, key=lambda item: item[0][1] / item[0][0], default=((low, high), None))
    if best is None or np.log(best_high / best_low) > _NARROWER * np.log(high / low):
        return None
    ends = f"at best from {format_seconds(low)} to {format_seconds(high)} down to {format_seconds(best_low)} to"
    command = best.command
    for placeholder, path in zip((STUDY, RESULTS), place, strict=True):
        command = " ".join(shlex.quote(path) if word == placeholder else word for word in command.split(" "))
    return f"{best.what}, {ends} {format_seconds(best_high)}: {command}"


def measurements(
    now: UncertainPrediction,
    group: ProfileGroup,
    asked: tuple[GroupKey, Deployment],
    timed: Collection[tuple[str, ...]],
) -> Iterator[MeasurementOption]:
    """Yield each measurement whose run adds records; see ``narrowing`` for the arguments."""
    options = _Options(group, *asked, timed)
    yield from options.parameter_measurements(now)
    yield from options.nearer_configurations(now)


@dataclass(frozen=True)
class _Options:
    """What can be measured of a model."""

    group: ProfileGroup
    key: GroupKey
    """Of what is asked for."""
    deployment: Deployment
    """Likewise."""
    timed: Collection[tuple[str, ...]]

    def parameter_measurements(self, now: UncertainPrediction) -> Iterator[MeasurementOption]:
        """Yield what shows parameters."""
        groups: dict[str, list[str]] = {}
        for name, draws in now.parameters.items():
            if np.ptp(draws) > 0.0 and (name not in {*OUTER, *INNER} or name in now.model.link_factors):
                groups.setdefault(_group_of(name), []).append(name)
        for which, names in groups.items():
            what, command = self._for(which)
            yield MeasurementOption(what, command, now.knowing(names))
        measured = [
            name
            for name, parameter in self.group.parameters.items()
            if parameter.how == "measured" and name in now.parameters
        ]
        fewest = min(each.launches for each in self.group.measured)
        more = now.with_more_launches(measured, self._launches(self.group.measured) / fewest)
        yield MeasurementOption("more launches", self._run(None, self._more_launches(self.group.measured)), more)

    def nearer_configurations(self, now: UncertainPrediction) -> Iterator[MeasurementOption]:
        """Yield what lies nearer to what is asked for than all that was measured."""
        outside, most, following = now.extrapolation, self._most_workers, self._next_workers
        without = {"workload": 1.0, "batch": 1.0, "crosses": False, "turns": 1.0, "bandwidth": 1.0, "of_model": 0.0}
        changes: dict[str, dict[str, Any]] = {
            name: {name: value} for name, value in without.items() if getattr(outside, name) != value
        }
        if outside.workers > 1.0:
            changes["workers"] = {"workers": max(self.deployment.workers / following, 1.0)}
        for axis, change in changes.items():
            if axis in {"workers", "turns"} and following <= most:
                continue
            what, command = self._where_it_errs() if axis == "of_model" else self._nearer(axis)
            yield MeasurementOption(what, command, replace(now, extrapolation=replace(outside, **change)))

    @property
    def _most_workers(self) -> int:
        return max(each.deployment.workers for each in self.group.measured)

    @property
    def _next_workers(self) -> int:
        """Twice the most that were measured, or as many as are asked for where these are fewer."""
        return min(2 * self._most_workers, max(self.deployment.workers, 1))

    @staticmethod
    def _launches(measured: Sequence[MeasuredConfiguration]) -> int:
        return max(_LAUNCHES, 2 * min(each.launches for each in measured))

    def _more_launches(self, measured: Sequence[MeasuredConfiguration]) -> str:
        """Return the change of a study after which each trial gets more launches than it has."""
        count = self._launches(measured)
        return f"launches.min={count} launches.max={count}"

    def _where_it_errs(self) -> tuple[str, str]:
        """Return what shows where a model errs: its phases, or where they are known another number of workers."""
        if not all(each.ablation_launches for each in self.group.measured):
            return "a breakdown, which shows the phase that is wrong", self._run(None, "breakdown=true")
        return "another number of workers to fit", self._run(2 * self._most_workers)

    def _nearer(self, axis: str) -> tuple[str, str]:
        """Return what to measure where the model errs in a direction of extrapolation."""
        if axis == "workload":
            return "one worker of that workload", self._run(1, batches=[self.deployment.batch], key=self.key)
        if axis == "batch":
            return "the batch itself", self._run(None, batches=[self.deployment.batch], key=self.key)
        if axis == "crosses":
            return "two hosts", self._on_two_hosts()
        if axis == "turns":
            return "workers that take turns on a core", self._run(self._next_workers)
        if axis == "bandwidth":
            return self._messages(OUTER if self.deployment.crosses else INNER)
        return "more workers", self._run(self._next_workers)

    def _on_two_hosts(self, *changes: str) -> str:
        """Return the command of a worker on each of two hosts; servers share these, which have no host of their own."""
        servers = strategy_named(self.key.strategy).servers
        return self._run(2, _TWO_HOSTS, *(["server_placement=colocated"] if servers else []), *changes)

    def _for(self, which: str) -> tuple[str, str]:
        """Return what shows a group of parameters."""
        measured = self.group.measured
        if which in {"outer", "inner"}:
            return self._messages(OUTER if which == "outer" else INNER)
        if which == "several":
            return self._breakdown("of several workers", [each for each in measured if each.deployment.workers > 1])
        if which == "loading":
            return self._breakdown("with the loader", measured)
        alone = [each for each in measured if each.deployment.workers == 1]
        if which == _TIMING:
            return "more launches of one worker", self._run(1, self._more_launches(alone or measured))
        most = max(each.deployment.batch for each in measured)
        return "one worker, broken down, at two batches", self._run(1, "breakdown=true", batches=[most, 2 * most])

    def _breakdown(self, which: str, measured: Sequence[MeasuredConfiguration]) -> tuple[str, str]:
        """Return a breakdown: of the configuration with fewest of its launches, of more of them where it has some."""
        least = min(measured, key=attrgetter("ablation_launches"), default=None)
        workers = 2 if least is None else least.deployment.workers
        batches = None if least is None else [least.deployment.batch]
        if least is None or not least.ablation_launches:
            return f"a breakdown {which}", self._run(workers, "breakdown=true", batches=batches)
        more = max(_LAUNCHES // 2, 2 * least.ablation_launches)
        command = self._run(workers, f"breakdown.launches={more}", batches=batches)
        return f"more launches of the breakdown {which}", command

    def _run(
        self,
        workers: int | None,
        *changes: str,
        batches: Sequence[int] | None = None,
        key: GroupKey | None = None,
    ) -> str:
        """Return the command of the study with the trials of this model alone.

        Args:
            workers: None for those of the study.
            changes: of its keys.
            batches: of a worker; by default those that were measured.
            key: of the workload; by default what was measured.
        """
        of_model = key or self.group.key
        own = self.group.key.strategy if key is None else key.strategy
        alone = {each.strategy for each in self.group.measured if strategy_named(each.strategy).single_baseline}
        if workers == 1:
            of_one = {each.strategy for each in self.group.measured if each.deployment.workers == 1}
            strategies = sorted(of_one & {own} or alone) or [SINGLE.name]
        elif workers is None:
            strategies = [*sorted(alone - {own}), own]
        else:
            strategies = [self.key.strategy]
        those = strategies[0] if len(strategies) == 1 else f"[{','.join(strategies)}]"
        sizes = batches or sorted({each.deployment.batch for each in self.group.measured})
        words = [f"frameworks={of_model.framework}", f"strategies={those}", _workload(of_model, sizes)]
        counted = [] if workers is None else [f"workers={workers}"]
        return " ".join(["steptime run", STUDY, *words, *counted, *changes, "-o", RESULTS])

    def _messages(self, link: tuple[str, ...]) -> tuple[str, str]:
        """Return what times messages over a link; steps where it has no back end to time alone, or these were timed."""
        between_hosts = link == OUTER
        where = "between hosts" if between_hosts else "inside a host"
        if self.key.device == "cuda":
            command = f"steptime fit {RESULTS} --nccl-tests FILE, with what all_reduce_perf prints"
            return f"the link {where}", command
        back_end = _back_end(self.key)
        if back_end is not None and link not in self.timed:
            # Servers get a host of their own, so that every worker's messages cross.
            names = "n0,n1,n2" if strategy_named(self.key.strategy).servers else "n0,n1"
            hosts = f" --launcher ssh --hosts {names}" if between_hosts else ""
            return f"the link {where}", f"steptime net {back_end}{hosts} -o {RESULTS}"
        if between_hosts:
            crossing = [each.launches for each in self.group.measured if each.deployment.crosses]
            count = max(_LAUNCHES, 2 * max(crossing, default=0))
            more = [f"launches.min={count} launches.max={count}"] if crossing else []
            return "the link between hosts, in steps", self._on_two_hosts(*more)
        several = [each for each in self.group.measured if each.deployment.workers > 1]
        return "the link inside a host, in steps", self._breakdown("", several)[1]


def _group_of(name: str) -> str:
    """Return which measurement shows a parameter."""
    if name in OUTER:
        return "outer"
    if name in INNER:
        return "inner"
    if name in _OF_SEVERAL:
        return "several"
    if name in _OF_LOADING:
        return "loading"
    return _TIMING if name == _TIMING else "passes"


def _workload(key: GroupKey, batches: Sequence[int]) -> str:
    """Return the changes of a study to one workload with batches of a worker."""
    fields = {"name": key.workload, **({"dataset": key.dataset} if key.dataset else {})}
    if tuple(build_workload(key.workload).input_shape) != tuple(key.input_shape):
        side = "sequence" if len(key.input_shape) == _TEXT_DIMENSIONS else "image"
        fields[side] = str(key.input_shape[-1])
    written = str(batches[0]) if len(batches) == 1 else f"[{', '.join(map(str, batches))}]"
    fields["batch_per_worker"] = written
    workload = ", ".join(f"{name}: {value}" for name, value in fields.items())
    loader = [] if key.dataset else [f"loaders={SYNTHETIC.name}"]
    return " ".join([shlex.quote(f"workloads={{{workload}}}"), *loader])


def _back_end(key: GroupKey) -> str | None:
    """Return the back end that carries a model's messages, as ``steptime net`` names it; None without any."""
    manifest = load_manifests().get(key.framework)
    operation = "push_pull" if strategy_named(key.strategy).servers else "allreduce"
    candidates = {
        name: support.options
        for name, support in ({} if manifest is None else manifest.back_ends).items()
        if support.device == key.device and operation in support.operations
    }
    chosen = dict(key.options)

    def differing(name: str) -> int:
        return sum(chosen.get(option) != value for option, value in candidates[name].items())

    return min(candidates, key=differing, default=None)
