"""What a step of an attached script is made of: its phases, and the gaps between what was marked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from steptime.attached.attempts import Attempt
from steptime.attached.device_steps import device_lengths, device_sums
from steptime.attached.exchange import Exchange
from steptime.attached.few_steps import few_steps, mean_with_few
from steptime.attached.form import CollectiveCount, FewSteps, StepPart
from steptime.attached.sampled_lines import most_seen_line
from steptime.phases import BY_NAME, EXCHANGED, REST
from steptime.results.attached_lines import DeviceLine, StepLine
from steptime.results.json_form import NOT_MEASURED, Interval
from steptime.statistics.interval import difference_within, mean_within, median_within, step_time
from steptime.statistics.launch_times import LaunchTimes, mean_errors, reduce_times

Array = NDArray[np.float64]

REGIONS: Mapping[str, tuple[str, ...]] = {
    "input_wait": ("input", "epoch", "loader_start"),
    "no_grad": ("nograd",),
    "forward": ("forward",),
    "backward": ("backward", "gradient"),
    "update": ("clip", "update"),
    "call": ("call", "replay"),
    "compute": ("compute",),
    "copy": ("copy",),
    "device_wait": ("wait",),
    "compile": ("compile",),
    "garbage_collection": ("collection",),
    "checkpoint": ("save",),
}
"""The regions of a record that make up each part of a step, but for the exchange."""
EXCHANGE = "exchange"
"""Waiting and transfer together, where they cannot be told apart."""
_TITLES = {
    "no_grad": "no-grad passes",
    "call": "call of the step",
    "compute": "computing",
    "copy": "copies",
    "device_wait": "wait for device",
    "compile": "compilation",
    "garbage_collection": "garbage collection",
    "checkpoint": "checkpoint",
    EXCHANGE: "exchange",
}
_BESIDE_GAPS = {"nograd": "a pass without gradient"}
"""Of regions whose own names are not words."""
_COLLECTIVE = "collective"
_DIVIDED = {"sync_wait": "waiting", "comm_exposed": "transfer"}
"""Regions of imported traces, whose collectives have been divided."""
_AMOUNTS = {"samples", "tokens"}
"""Not known for the reasons that lines for phases have, too."""
_MORE_INPUT = "input wait is what Python asks loaders for alone; more lies in the call, since {reason}"
_ROUNDING_S = 1e-9
_ORDER = (
    *("input_wait", "call", "compute", "copy", "no_grad", "forward", "backward"),
    *(EXCHANGE, "comm_exposed", "sync_wait", "update"),
    *("device_wait", "compile", "garbage_collection", "checkpoint"),
)
"""Of phases, by time."""
FEWEST = 4
"""Fewer steps are not told apart."""
_IN_TURN = 1.2
"""Times its mean over ranks, that a part adds at least to a step where others wait for who has it."""


def title_of(name: str) -> str:
    """Return a part of a step as a title: ``sync wait``, ``between forward and backward``."""
    before, gap, after = name.partition(">")
    if gap:
        return f"between {_BESIDE_GAPS.get(before, before)} and {_BESIDE_GAPS.get(after, after)}"
    return BY_NAME[name].title if name in BY_NAME else _TITLES.get(name, name)


@dataclass(frozen=True)
class KeptSteps:
    """Which steps the parts are means of."""

    attempt: Attempt
    numbers: list[int]
    exchange: Exchange | None
    no_exchange: str | None
    """Why waiting and transfer are not told apart; None if they are, and for a single rank."""
    near_evaluation: bool = False
    """Whether they lie beside evaluations, since too few others do not."""
    with_saves: bool = False
    """Whether checkpoints are part of them, since at least half of all steps save one."""
    left_out_for: Mapping[str, int] = field(default_factory=dict)
    """How many other steps are left out for what."""
    device: Mapping[int, DeviceLine] = field(default_factory=dict)
    """These steps on the device, whose clock then counts; empty where the host's does."""
    queued_s: Mapping[int, float] = field(default_factory=dict)
    """Of a step of a host that ran ahead, what an evaluation waited for its device, in seconds."""

    @property
    def left_out(self) -> int:
        return len(self.attempt.steps) - len(self.numbers)

    def of_ranks(self, value: Callable[[StepLine], float]) -> Array:
        """Return a value of each step, ranks x steps."""
        rows = [[value(step) for step in self.attempt.steps[number]] for number in self.numbers]
        return np.array(rows, dtype=np.float64).T

    @cached_property
    def length_s(self) -> Array:
        """Ranks x steps."""
        return device_lengths(self.of_device) if self.device else self.host_length_s

    @cached_property
    def host_length_s(self) -> Array:
        """Of the host, ranks x steps."""
        saving = REGIONS["checkpoint"] if self.with_saves else ()
        return self.of_ranks(lambda step: step.active_s + step.seconds(*saving)) + self._drained_s

    @property
    def _drained_s(self) -> Array:
        return np.array([self.queued_s.get(number, 0.0) for number in self.numbers])

    @property
    def of_device(self) -> list[DeviceLine]:
        """The device's times of these steps; empty if the clock of the host counts."""
        return [self.device[number] for number in self.numbers] if self.device else []

    @cached_property
    def _device_s(self) -> dict[str, Array]:
        steps = [self.attempt.steps[number][0] for number in self.numbers]
        return device_sums(self.of_device, steps)

    @cached_property
    def phases_s(self) -> dict[str, Array]:
        """Of each phase that is known, ranks x steps, in the order of time."""
        if self.device:
            none = np.zeros_like(self.length_s)
            times = {
                name: sum((self._device_s.get(region, none) for region in own), none) for name, own in REGIONS.items()
            }
            return {name: times[name] for name in _ORDER if name in times and times[name].any()}
        seconds = {name: self.of_ranks(lambda step, own=own: step.seconds(*own)) for name, own in REGIONS.items()}  # type: ignore[misc]
        seconds["device_wait"] = seconds["device_wait"] + self._drained_s
        for name in _unseen(self).keys() & REGIONS.keys() - {"input_wait"}:  # what was asked for, not what was done
            seconds["call"] = seconds["call"] + seconds.pop(name)
        if self.exchange and self.exchange.is_compiled:
            seconds |= _without_waiting(seconds, self.exchange.waiting_s)
        elif self.exchange:
            passing = seconds["backward"] + self.of_ranks(lambda step: step.in_exchange_s)
            seconds["backward"] = np.maximum(passing - self.exchange.within_backward_s, 0.0)
            seconds["sync_wait"], seconds["comm_exposed"] = self.exchange.waiting_s, self.exchange.exposed_s
        else:
            seconds[EXCHANGE] = self.of_ranks(lambda step: step.seconds(_COLLECTIVE))
            divided = {name: self.of_ranks(lambda step, own=own: step.seconds(own)) for name, own in _DIVIDED.items()}  # type: ignore[misc]
            seconds |= divided if any(times.any() for times in divided.values()) else {}
        shown = [name for name in _ORDER if name in seconds]
        return {name: seconds[name] for name in shown if seconds[name].any() or name in EXCHANGED}

    @cached_property
    def gaps_s(self) -> dict[str, Array]:
        """Of each gap, ranks x steps, the longest first."""
        if self.device:
            gaps = {name: times for name, times in self._device_s.items() if ">" in name}
        else:
            gaps = self.host_gaps_s
        return dict(sorted(gaps.items(), key=lambda gap: -float(gap[1].mean())))

    @cached_property
    def host_gaps_s(self) -> dict[str, Array]:
        """Likewise by the host, in no order."""
        names = dict.fromkeys(
            name for number in self.numbers for step in self.attempt.steps[number] for name in step.gaps
        )
        return {name: self.of_ranks(lambda step, name=name: step.gaps.get(name, 0) * 1e-9) for name in names}  # type: ignore[misc]

    @cached_property
    def rest_s(self) -> Array:
        """What is left of the steps, ranks x steps."""
        phases = sum(self.phases_s.values(), np.zeros_like(self.length_s))
        rest = self.length_s - phases - sum(self.gaps_s.values(), 0.0)
        return np.where(np.abs(rest) < _ROUNDING_S, 0.0, rest)


def _without_waiting(seconds: Mapping[str, Array], waiting_s: Array) -> dict[str, Array]:
    """Return the waiting for other ranks, and what is left of the waits and calls of whole steps that it is a part of.

    ``waiting_s`` is not longer than these.
    """
    parts, left = {"sync_wait": waiting_s}, waiting_s
    for name in ("device_wait", "call", "compile"):
        taken = np.minimum(seconds[name], left)
        parts[name], left = seconds[name] - taken, left - taken
    return parts


def longest_training(kept: Sequence[KeptSteps]) -> KeptSteps:
    """Return the one whose steps took longest together; each must have some."""
    return max(kept, key=lambda own: float(own.length_s.max(axis=0).sum()))


def step_length(kept: KeptSteps) -> Interval[float | None]:
    """Return the mean step over ranks and kept steps, with the interval of a single launch."""
    if not kept.numbers:
        return NOT_MEASURED
    series = kept.length_s.mean(axis=0)
    if len(series) < FEWEST or series.min() <= 0.0:
        return Interval(float(series.mean()), None, None)
    found = reduce_times([series])[0]
    if found.dropped:
        return _widened(mean_within(series))
    time = step_time([found])
    return Interval(time.value, time.low, time.high)


def launch_of(kept: KeptSteps, block: int) -> LaunchTimes:
    """Return the kept steps of a run as those of a launch, with the mean that ``step_length`` shows."""
    series = kept.length_s.mean(axis=0)
    found = reduce_times([series], [block])[0]
    if not found.dropped:
        return found
    mean = float(series.mean())
    error = mean_errors([series])[0] / mean
    return replace(found, steady_s=series, dropped=0, log_mean=float(np.log(mean)), mean_error=error)


def median_step_length(kept: KeptSteps) -> Interval[float | None]:
    """Return the median of the steps that ``step_length`` is the mean of."""
    return _widened(median_within(kept.length_s.mean(axis=0))) if kept.numbers else NOT_MEASURED


def _widened(found: Interval) -> Interval[float | None]:
    return Interval(found.value, found.low, found.high)


def step_parts(kept: KeptSteps) -> list[StepPart]:
    """Return the parts of a step, which sum to it: phases in the order of time, then gaps, and what is left."""
    if not kept.numbers:
        return []
    total = float(kept.length_s.mean())
    unseen = _unseen(kept)
    phases = kept.phases_s
    parts = [_part(kept, name, seconds, total, REGIONS.get(name, (_COLLECTIVE,))) for name, seconds in phases.items()]
    if kept.no_exchange:
        unseen = {**dict.fromkeys(("comm_exposed", "sync_wait"), kept.no_exchange), **unseen}
    parts += [_unknown(name, reason) for name, reason in unseen.items() if name not in phases]
    parts += [
        _part(kept, name, seconds, total, _host_gaps(kept, name), gap=True) for name, seconds in kept.gaps_s.items()
    ]
    return [*parts, _part(kept, REST, kept.rest_s, total, ())]


def _host_gaps(kept: KeptSteps, name: str) -> list[str]:
    """Return the gaps of the host that make up a gap, which on the device may hold regions of the host alone."""
    before, _, after = name.partition(">")
    inside = [own for own in kept.host_gaps_s if own.startswith(f"{before}>") or own.endswith(f">{after}")]
    return inside if kept.device else [name]


def _unseen(kept: KeptSteps) -> dict[str, str]:
    """Return the phases that a library shows no times of, with the reason; of the exchange only where there is one."""
    found: dict[str, str] = {}
    for process in kept.attempt.processes.values():
        found |= process.unseen
    for amount in _AMOUNTS & found.keys():
        del found[amount]
    alone = len(kept.attempt.ranks) < 2 and kept.attempt.world < 2  # noqa: PLR2004 - it exchanges with no other
    return {name: reason for name, reason in found.items() if not (alone and name in EXCHANGED)}


def _part(  # noqa: PLR0913 - what a part is made of
    kept: KeptSteps, name: str, seconds: Array, total: float, places: Sequence[str], *, gap: bool = False
) -> StepPart:
    series = seconds.mean(axis=0)
    mean = float(series.mean())
    few = _few(kept, name, seconds)
    if kept.device:
        series = series[[bool(line.regions) for line in kept.of_device]]
    found = difference_within(series) if series.min() < 0.0 else mean_within(series)  # parts may overlap in the rest
    if few is not None and few.regular:
        found = mean_with_few(series, few, kept.numbers)
    if kept.device:  # of which not every step may be timed in parts
        bounds = (None if each is None else each + mean - found.value for each in (found.low, found.high))
        found = Interval(mean, *bounds)
    if name in EXCHANGED and kept.exchange and found.low is not None and found.high is not None:
        open_s = kept.exchange.clock.uncertainty_s
        found = Interval(found.value, max(0.0, found.low - open_s), found.high + open_s)
    return StepPart(
        name=name,
        gap=gap,
        time_s=_widened(found),
        share=found.value / total if total > 0.0 else None,
        gain_s=_gain(kept, name, seconds, few),
        ranks_s=[float(value) for value in seconds.mean(axis=1)],
        device_s=float(seconds.mean()) if kept.device else _on_device(kept, places),
        host_s=_on_host(kept, name, places) if kept.device else None,
        where=most_seen_line(kept.attempt.processes.values(), places, few.numbers if few else None),
        reason=None,
        few=few,
    )


def _few(kept: KeptSteps, name: str, seconds: Array) -> FewSteps | None:
    """Return the few steps that a part lies in; None if it lies in most.

    Times of a device are of few steps, and the waiting for other ranks is of what these do.
    """
    if kept.device or name in {REST, "sync_wait"}:
        return None
    return few_steps(kept.numbers, seconds, float(kept.length_s.mean(axis=0).sum()))


def _gain(kept: KeptSteps, name: str, seconds: Array, few: FewSteps | None) -> Interval[float | None]:
    """Return by how much steps would be shorter without a part: by what it adds to the slowest rank of each step.

    Where ranks have it in turn, as collections of garbage that are not at one time, each waits for all of them.
    """
    if kept.exchange is None or name in EXCHANGED or not seconds.any():
        return NOT_MEASURED
    work = kept.length_s - kept.exchange.waiting_s
    shorter = work.max(axis=0) - (work - seconds).max(axis=0)
    if few is not None and few.regular:
        return _widened(mean_with_few(shorter, few, kept.numbers))
    return _widened(difference_within(shorter))


def _unknown(name: str, reason: str) -> StepPart:
    return StepPart(
        name=name,
        gap=False,
        time_s=NOT_MEASURED,
        share=None,
        gain_s=NOT_MEASURED,
        ranks_s=[],
        device_s=None,
        host_s=None,
        where=None,
        reason=reason,
        few=None,
    )


def _on_host(kept: KeptSteps, name: str, places: Sequence[str]) -> float:
    """Return the mean time of a part by the host."""
    if ">" in name:
        return float(sum((kept.host_gaps_s[own].mean() for own in places if own in kept.host_gaps_s), 0.0))
    return float(kept.of_ranks(lambda step: step.seconds(*places)).mean())


def _on_device(kept: KeptSteps, regions: Sequence[str]) -> float | None:
    numbers = set(kept.numbers)
    found = [
        sum(device.regions.get(name, 0) for name in regions) * 1e-9
        for process in kept.attempt.processes.values()
        for device in process.devices
        if device.step in numbers and any(name in device.regions for name in regions)
    ]
    return float(np.mean(found)) if found else None


def why_input_is_unseen(kept: KeptSteps) -> str | None:
    """Return why a library shows no waiting for input; None if it does."""
    return why_unseen(kept, "input_wait")


def input_notes(kept: KeptSteps) -> list[str]:
    """Return that the waiting for input has more than its times show, where they show some, as of a loader's start."""
    reason = why_input_is_unseen(kept)
    return [_MORE_INPUT.format(reason=reason)] if reason and "input_wait" in kept.phases_s else []


def why_unseen(kept: KeptSteps, name: str) -> str | None:
    """Return why a phase or an amount, `samples` or `tokens`, is not on record, or None."""
    return next((each.unseen[name] for each in kept.attempt.processes.values() if name in each.unseen), None)


def loader_starts(kept: KeptSteps) -> tuple[int, float]:
    """Return in how many steps the loader begins or ends an epoch, and what share of all input wait lies in these."""
    waits = kept.of_ranks(lambda step: step.seconds(*REGIONS["input_wait"]))
    starts = kept.of_ranks(lambda step: step.seconds("epoch", "loader_start")).any(axis=0)
    return int(starts.sum()), float(waits[:, starts].sum() / waits.sum()) if waits.any() else 0.0


def requests_elsewhere(kept: KeptSteps) -> tuple[float, float] | None:
    """Return how long a request to a loader takes in another thread of the script, and their share of all time.

    None if the thread that trains asks the loaders itself, or there are none.
    """
    asked = [step.elsewhere for number in kept.numbers for step in kept.attempt.steps[number] if step.elsewhere]
    count, lasted_s = sum(number for number, _ in asked), sum(lasting for _, lasting in asked) * 1e-9
    return (lasted_s / count, lasted_s / float(kept.length_s.sum())) if count else None


def known_part(parts: Sequence[StepPart], name: str) -> StepPart | None:
    """Return the part of a step with this name; None if there is none, or if its time cannot be told."""
    return next((part for part in parts if part.name == name and part.time_s.value is not None), None)


def is_in_turn(part: StepPart) -> bool:
    """Say whether a part costs a step clearly more than its mean over ranks, since the others wait for who has it."""
    return part.gain_s.low is not None and part.gain_s.low >= _IN_TURN * (part.time_s.value or 0.0)


def collective_counts(kept: KeptSteps) -> list[CollectiveCount]:
    """Return the kinds of collectives that Python starts in a step, those with most bytes first."""
    sums: dict[str, Array] = {}
    count = len(kept.numbers) * max(1, len(kept.attempt.ranks))
    for number in kept.numbers:
        for step in kept.attempt.steps[number]:
            for name, values in step.collectives.items():
                sums[name] = sums.get(name, np.zeros(3)) + np.array(values, dtype=np.float64)
    rows = [
        CollectiveCount(
            region=name.rpartition(":")[0],
            kind=name.rpartition(":")[2],
            count=float(total[0] / count),
            bytes=float(total[1] / count),
            time_s=float(total[2] * 1e-9 / count),
        )
        for name, total in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, -row.time_s, row.region, row.kind))
