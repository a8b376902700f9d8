"""The measurement that would narrow the interval of a prediction most, as a command of the study that was fitted.

Its placeholders are STUDY and RESULTS, that study and its folder, and n0, n1 and n2, hosts.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steptime.catalog.choices import SYNTHETIC, strategy_named
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.observation import Deployment, GroupKey
from steptime.fitting.posterior import Array
from steptime.fitting.profile import MeasuredConfiguration, ProfileGroup
from steptime.fitting.step_model import INNER, OUTER
from steptime.predict.uncertainty import Extrapolation, UncertainStep

_TWO_HOSTS = "launcher=ssh hosts=n0,n1"
_LAUNCHES = 10
_TEXT_DIMENSIONS = 1
"""Of the input of a workload that reads text: its sequence."""


def narrowing(
    parameters: Mapping[str, Array],
    step: UncertainStep,
    extrapolation: Extrapolation,
    group: ProfileGroup,
    asked: tuple[GroupKey, Deployment],
) -> str:
    """Return the one measurement that would narrow the interval most, with its command.

    Args:
        parameters: draws of each.
        step: its draws.
        extrapolation: how far it lies outside the measured ones.
        group: whose exchange was measured, or else whose computing.
        asked: what is predicted.
    """
    return _Narrowing(group, *asked).advice(parameters, step, extrapolation)


@dataclass(frozen=True)
class _Narrowing:
    """What to measure of a model."""

    group: ProfileGroup
    key: GroupKey
    """Of what is asked for."""
    deployment: Deployment
    """Likewise."""

    def advice(self, parameters: Mapping[str, Array], step: UncertainStep, extrapolation: Extrapolation) -> str:
        """Return what to measure for the largest part of an interval."""
        shares = step.shares
        largest = max(shares.parameters, shares.launches, shares.extrapolation)
        if largest == shares.launches:
            return f"more launches: {_run(self._more_launches())}"
        if largest == shares.extrapolation and extrapolation.of_model == max(extrapolation.parts.values()):
            return self._where_it_errs()
        if largest == shares.extrapolation:
            return self._nearer(max(extrapolation.parts, key=lambda name: extrapolation.parts[name]))
        return self._for_parameter(_most_telling(parameters, step.modelled))

    @property
    def _next_workers(self) -> int:
        """Twice the most that were measured, or as many as are asked for where these are fewer."""
        most = max(each.deployment.workers for each in self.group.measured)
        return min(2 * most, max(self.deployment.workers, 1))

    def _more_launches(self) -> str:
        """Return the change of a study after which each trial gets more launches than it has."""
        count = max(_LAUNCHES, 2 * min(each.launches for each in self.group.measured))
        return f"launches.min={count} launches.max={count}"

    def _where_it_errs(self) -> str:
        """Return what shows where a model errs: its phases, or where they are known another number of workers."""
        if not all(each.ablation_launches for each in self.group.measured):
            return f"a breakdown, which shows the phase that is wrong: {_run('breakdown=true')}"
        most = max(each.deployment.workers for each in self.group.measured)
        return f"another number of workers to fit: {_run(f'workers={2 * most}')}"

    def _nearer(self, axis: str) -> str:
        """Return what to measure where the largest error is of a direction of extrapolation."""
        if axis == "workload":
            return f"one worker of that workload: {_run(self._workload([self.deployment.batch]), 'workers=1')}"
        if axis == "batch":
            return f"the batch itself: {_run(self._workload([self.deployment.batch]))}"
        if axis == "crosses":
            return f"two hosts: {self._on_two_hosts()}"
        if axis == "turns":
            return f"workers that take turns on a core: {_run(f'workers={self._next_workers}')}"
        if axis == "bandwidth":
            return self._messages(between_hosts=self.deployment.crosses)
        return f"more workers: {_run(f'workers={self._next_workers}')}"

    def _on_two_hosts(self) -> str:
        """Return the command of a worker on each of two hosts; servers share these, which have no host of their own."""
        servers = strategy_named(self.key.strategy).servers
        return _run("workers=2", _TWO_HOSTS, *(["server_placement=colocated"] if servers else []))

    def _for_parameter(self, name: str) -> str:
        if name in (*OUTER, *INNER):
            return self._messages(between_hosts=name in OUTER)
        if name in ("overlap_efficiency", "persistent", "transient", "contention_factor"):
            several = [each for each in self.group.measured if each.deployment.workers > 1]
            return self._breakdown("of several workers", several, "workers=2")
        if name in ("input_per_sample_s", "input_share"):
            return self._breakdown("with the loader", self.group.measured)
        if name == "timing":
            return f"more launches of one worker: {_run('workers=1', self._more_launches())}"
        batches = sorted({each.deployment.batch for each in self.group.measured})
        if len(batches) == 1:
            batches.append(2 * batches[0])
        return f"one worker, broken down, at two batches: {_run(self._workload(batches), 'workers=1 breakdown=true')}"

    def _breakdown(self, which: str, measured: list[MeasuredConfiguration], *changes: str) -> str:
        """Return the command of a breakdown, of more of its launches where all of ``measured`` have one."""
        fewest = min((each.ablation_launches for each in measured), default=0)
        if not fewest:
            return f"a breakdown {which}: {_run(*changes, 'breakdown=true')}"
        more = max(_LAUNCHES // 2, 2 * fewest)
        return f"more launches of the breakdown {which}: {_run(*changes, f'breakdown.launches={more}')}"

    def _workload(self, batches: list[int]) -> str:
        """Return the change of a study to the workload that is asked for with batches of a worker."""
        key = self.key
        fields = {"name": key.workload, **({"dataset": key.dataset} if key.dataset else {})}
        if tuple(build_workload(key.workload).input_shape) != tuple(key.input_shape):
            side = "sequence" if len(key.input_shape) == _TEXT_DIMENSIONS else "image"
            fields[side] = str(key.input_shape[-1])
        fields["batch_per_worker"] = f"[{', '.join(map(str, batches))}]"
        workload = ", ".join(f"{name}: {value}" for name, value in fields.items())
        loader = [] if key.dataset else [f"loaders={SYNTHETIC.name}"]
        return " ".join([shlex.quote(f"workloads={{{workload}}}"), *loader])

    def _messages(self, *, between_hosts: bool) -> str:
        """Return what times messages over a link, and steps where the framework has no back end to time alone."""
        where = "between hosts" if between_hosts else "inside a host"
        if self.key.device == "cuda":
            return f"the link {where}: steptime fit RESULTS --nccl-tests FILE, with what all_reduce_perf prints"
        back_end = _back_end(self.key)
        if back_end is not None:
            # Servers get a host of their own, so that every worker's messages cross.
            names = "n0,n1,n2" if strategy_named(self.key.strategy).servers else "n0,n1"
            hosts = f" --launcher ssh --hosts {names}" if between_hosts else ""
            return f"the link {where}: steptime net {back_end}{hosts} -o RESULTS"
        if between_hosts:
            return f"the link between hosts, in steps: {self._on_two_hosts()}"
        return f"the link inside a host, in steps: {_run('workers=2', self._more_launches())}"


def _run(*changes: str) -> str:
    return " ".join(["steptime run STUDY", *changes, "-o RESULTS"])


def _most_telling(parameters: Mapping[str, Array], step: Array) -> str:
    """Return the parameter whose draws go with those of the step most closely."""

    def correlation(values: Array) -> float:
        return 0.0 if np.ptp(values) == 0.0 else abs(float(np.corrcoef(values, step)[0, 1]))

    return max(parameters, key=lambda name: correlation(parameters[name]))


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
