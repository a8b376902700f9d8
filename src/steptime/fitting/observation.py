"""Observations: the records of one trial as a few numbers per launch, which are all that a fit reads.

Launches are read one at a time, so that a large results folder needs no memory.

Effects of the measured machine on exchanges: threads that share cores, and sockets behind token buckets.

They were found on machines with as many cores as workers and on emulated hosts, and hold nowhere else; so each is
switched on by what the launches of a results folder recorded, whatever the framework.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from steptime.analysis.ablation.imbalance import imbalance
from steptime.analysis.ablation.nested_stages import nested_phases
from steptime.analysis.ablation.stages import communication_s, stage_times_of
from steptime.analysis.pooled_conditions import pooled_versions, versions_of
from steptime.catalog.choices import strategy_named
from steptime.catalog.optimizer import Optimizer
from steptime.catalog.options import OptionValue, Tuning
from steptime.errors import StoreError
from steptime.model.policies import AS_PLANNED, Traffic
from steptime.results.ablation_records import AblationLaunch
from steptime.results.record_kinds import ABLATION, TIMING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.launch_spread import TrialSpread, pool_spread
from steptime.statistics.launch_times import LaunchTimes, launch_times
from steptime.statistics.shared_imports import one_of_each_import
from steptime.study.study import FURTHER_FIELDS
from steptime.study.trial import ServerPlacement, Trial

TICK_S = 4e-3
"""Scheduler tick of Linux as most distributions build it (250 Hz): a thread that wakes up waits so long for a core that
computing holds."""
RAMP_S = 0.3
"""Six times the 50 ms of messages that the queue of an emulated link holds: round trips that a further connection of
TCP Reno needs until it has its share. Updates of 41 ms and of 2 s on emulated links ask for it."""
_PREEMPTED_AT = 1.0
"""Involuntary switches of a worker in a step, beyond those of one worker alone."""


@dataclass(frozen=True)
class MachineEffects:
    """What the launches of a configuration recorded of its machine."""

    preempted: bool = False
    """Whether computing lost its core to threads that communicate, in every step."""
    token_buckets: bool = False
    """Whether messages between hosts went over sockets, through the token buckets of emulated links."""


NO_EFFECTS = MachineEffects()


def preemptions_of(launch: Launch) -> float | None:
    """Return the involuntary switches of a worker in a step; None if the system did not count them."""
    counts = [
        worker.usage["involuntary_switches"] / len(worker.ends_s)
        for worker in launch.workers
        if worker.ends_s and worker.usage.get("involuntary_switches") is not None
    ]
    return float(np.mean(counts)) if counts else None


def crossed_token_buckets(launch: Launch) -> bool:
    """Say whether bytes crossed the interfaces of hosts whose links a token bucket limits."""
    hosts = (launch.cluster or {}).get("hosts", [])
    return any(host["burst_bytes"] and host["received_bytes"] > 0 for host in hosts) and len(hosts) > 1


def effects_of(preemptions: float | None, alone: Iterable[float], *, token_buckets: bool) -> MachineEffects:
    """Return the effects in a configuration.

    Args:
        preemptions: per worker and step; None if not counted.
        alone: the same of one worker by itself.
        token_buckets: whether its messages crossed some.
    """
    usual = max(alone, default=0.0)
    return MachineEffects(preemptions is not None and preemptions - usual >= _PREEMPTED_AT, token_buckets)


def combined(effects: Sequence[MachineEffects]) -> MachineEffects:
    """Return the effects that any of several configurations showed."""
    return MachineEffects(any(each.preempted for each in effects), any(each.token_buckets for each in effects))


# A profile holds the numbers of groups and deployments: their bounds are those of any trial, and are tested when a
# profile is read. Numbers inside them can be multiplied and divided without leaving those of a computer.
Size = Annotated[int, Field(ge=1, le=10**9)]
"""Of workers, hosts, samples and threads."""
Number = Annotated[int, Field(ge=0, le=10**9)]
"""Of what there need not be any."""
Seconds = Annotated[float, Field(ge=0.0, le=1e15)]
"""Which may be none."""
PositiveSeconds = Annotated[float, Field(ge=1e-15, le=1e15)]
EndSeconds = Annotated[float, Field(ge=1e-150, le=1e150)]
"""Of an interval, which few launches leave wide."""
Rate = Annotated[float, Field(ge=1e-6, le=1e18)]
"""Bytes per second."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveShare = Annotated[float, Field(ge=1e-9, le=1.0)]


USUAL_SETTINGS: Mapping[str, str] = {
    **{name: str(Trial.model_fields[name].default) for name in FURTHER_FIELDS if name != "accumulation"},
    "optimizer": Optimizer().computes,
}
"""What goes without saying in ``GroupKey.settings``; accumulation is a part of the size."""


@dataclass(frozen=True)
class GroupKey:
    """The trials that one performance model describes: everything of a trial but its size and its hosts."""

    framework: str
    strategy: str
    workload: str
    input_shape: tuple[int, ...]
    classes: int
    dataset: str | None
    loader: str
    loader_processes: Number
    device: str
    precision: str
    threads: Size
    options: tuple[tuple[str, OptionValue], ...]
    """Sorted by name; without those that ``Deployment`` has."""
    tuning: Tuning = "documented"
    """Trials of two tiers are never one group, even where they differ in nothing but an option that ``Deployment``
    has."""
    cores_per_worker: Size | None = None
    """None if a worker has as many cores as compute threads."""
    environment_variables: tuple[tuple[str, str], ...] = ()
    """That the study set, sorted by name."""
    container: tuple[str, ...] = ()
    """The words by which the interpreter is started in a container; empty where it runs in none."""
    settings: tuple[tuple[str, str], ...] = ()
    """By field, sorted: what differs from the default on other axes of a study, and what an update computes."""

    @property
    def name(self) -> str:
        """``pytorch allreduce, lenet5``; ``pytorch allreduce tuned optimizer=adam, lenet5`` with other settings."""
        tier = " tuned" if self.tuning == "tuned" else ""
        settings = "".join(f" {name}={value}" for name, value in self.settings)
        return f"{self.framework} {self.strategy}{tier}{settings}, {self.workload}"

    def setting(self, name: str) -> str:
        """Return the value of one of ``USUAL_SETTINGS``."""
        return dict(self.settings).get(name, USUAL_SETTINGS[name])

    def computes_as(self, other: "GroupKey") -> bool:
        """Say whether workers of both compute the same, whatever they exchange.

        Of two tiers, only one worker alone computes as the other does: where all options that both have are equal.
        """
        mine, theirs = dict(self.options), dict(other.options)
        alike = all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())
        alone = any(strategy_named(each.strategy).single_baseline for each in (self, other))
        return (
            alike
            and (self.tuning == other.tuning or alone)
            and all(
                getattr(self, name) == getattr(other, name)
                for name in self.__dataclass_fields__
                if name not in ("strategy", "options", "tuning")
            )
        )


@dataclass(frozen=True)
class Deployment:
    """The size of a trial: workers, servers, hosts and the links between them; SI units."""

    workers: Size
    batch: Size
    """Per worker."""
    servers: Number = 0
    placement: ServerPlacement | None = None
    hosts: Size = 1
    """Of workers."""
    server_hosts: Number = 0
    """Of servers alone."""
    workers_per_host: Size = 1
    emulated: bool = False
    """Whether the hosts are parts of one machine and share its cores."""
    bandwidth: Rate | None = None
    """Bytes per second that links between hosts were asked to have; None if nothing limits them."""
    delay_s: Seconds = 0.0
    bucket_mb: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None
    nics_per_host: Size = 1
    """Network cards of a host, each of the stated bandwidth."""
    traffic: Traffic = AS_PLANNED
    accumulation: Size = 1
    """Passes over a batch for each exchange and update."""
    collectives: str | None = None
    """One of ``LIBRARIES``; None for NCCL on devices, and elsewhere for what the framework brings."""
    cpu_share: PositiveShare = 1.0
    """Of a core that each compute thread may use, where all hosts of workers are limited alike."""

    @property
    def crosses(self) -> bool:
        """Whether messages travel between hosts."""
        # A profile of before ``server_hosts`` has emulated servers, of which each has a host of its own.
        before = self.emulated and self.servers > 0 and self.placement != "colocated"
        return self.hosts > 1 or self.server_hosts > 0 or before


@dataclass(frozen=True)
class LaunchPhases:
    """One ablation launch: seconds of a step, means over its blocks and workers; None is not known, which is not 0."""

    phases: dict[str, float | None]
    communication_s: float | None
    """All of it, hidden or not."""
    input_s: float | None
    """The loader alone."""
    persistent: float | None
    """What the slowest worker computes longer than the mean one on average over all steps, as a share."""
    transient: float | None
    """What the slowest of each step adds to that, as a share."""
    pieces: tuple[tuple[float, float], ...] = ()
    """Bytes of each piece of gradients, and the share of the backward pass after which it could go, in the order in
    which they went; empty where the framework does not show them."""


@dataclass(frozen=True)
class Observation:
    """One configuration as it was measured."""

    trial: str
    key: GroupKey
    deployment: Deployment
    steps_s: tuple[float, ...]
    """The step time of each good launch: the mean of its steps."""
    step_count: int
    """Steps behind them."""
    launch_phases: tuple[LaunchPhases, ...] = ()
    alpha_s: float | None = None
    """Of the links between hosts, measured before the launches; median over paths and launches."""
    rate: float | None = None
    """Likewise, bytes per second."""
    pooled: tuple[str, ...] = field(default=())
    """Flags of launches under several versions, whose times are none of either version."""
    preemptions: float | None = None
    """Involuntary switches of a worker in a step, median over launches; None if not counted."""
    token_buckets: bool = False
    """Whether messages crossed the token buckets of emulated links."""
    device_bytes: float | None = None
    """Most that a worker had allocated on its device; None if its framework does not tell."""
    pooled_spread: float | None = None
    """Standard deviation of the logarithm of a launch, with what all trials of the folder show of it, as in reports."""
    notes: tuple[str, ...] = ()
    """What a fit that takes it has to say of it."""


BUCKET = "bucket_mb"
"""The option that is a quantity of the model rather than another way to train."""
_BITS = 8


def observe(store: Store) -> list[Observation]:
    """Return what the folder's trials measured, those without a good launch or with micro-batches left out.

    Raises StoreError when nothing is left.
    """
    own = {trial.workload: None for trial in store.trials() if trial.own}
    trials = [trial for trial in store.trials() if not trial.own]
    if own and not trials:
        message = (
            f"{store.path} has modules of yours only ({', '.join(own)}), whose layers are unknown; predictions need "
            "workloads of steptime list workloads"
        )
        raise StoreError(message)
    whole = sum(trial.accumulation == 1 for trial in trials)
    times, measured, workloads = {}, [], {}
    for trial in store.trials():
        timed = _timed(store, trial)
        times[trial.id], workloads[trial.id] = one_of_each_import([each for _, each in timed]), trial.workload
        if timed and trial.accumulation == 1 and not trial.own:
            measured.append(_observation(store, trial, timed))
    spreads = pool_spread(times, workloads)
    found = [replace(each, pooled_spread=_deviation(spreads.get(each.trial))) for each in measured]
    if not found and whole < len(trials):
        message = f"{store.path} has only trials with accumulation, which no model describes yet; measure without it"
        raise StoreError(message)
    if not found:
        message = f"{store.path} has no launch that timed a step; measure first: steptime run STUDY -o {store.path}"
        raise StoreError(message)
    return found


def _timed(store: Store, trial: Trial) -> list[tuple[Launch, LaunchTimes]]:
    launches = store.records(TIMING, trial.id)
    pairs = zip(launches, launch_times(launches, trial.strategy), strict=True)
    return [(launch, times) for launch, times in pairs if times is not None]


def _deviation(spread: TrialSpread | None) -> float | None:
    return None if spread is None else float(np.sqrt(spread.variance))


def _observation(store: Store, trial: Trial, timed: Sequence[tuple[Launch, LaunchTimes]]) -> Observation:
    """Return what a trial measured, without the spread that it has with others."""
    steps, counts, versions = [], 0, []
    links: list[tuple[float, float]] = []
    preemptions, token_buckets = [], False
    for launch, times in timed:
        steps.append(float(np.exp(times.log_mean)))
        counts += len(times.steady_s)
        versions.append(versions_of(launch))
        links += _links(launch)
        preemptions.append(preemptions_of(launch))
        token_buckets |= crossed_token_buckets(launch)
    ablations = store.records(ABLATION, trial.id)
    versions += [versions_of(launch) for launch in ablations if launch.status == "ok"]
    peaks = [worker.facts.get("device_peak_bytes") for launch, _ in timed for worker in launch.workers]
    launch_phases = _launch_phases(trial, [each for each in ablations if each.status == "ok" and each.workers])
    return Observation(
        trial=trial.id,
        key=key_of(trial),
        deployment=deployment_of(trial),
        steps_s=tuple(steps),
        step_count=counts,
        launch_phases=tuple(launch_phases),
        alpha_s=_median(alpha for alpha, _ in links),
        rate=_median(rate for _, rate in links),
        pooled=tuple(pooled_versions(versions)),
        preemptions=_median(count for count in preemptions if count is not None),
        token_buckets=token_buckets,
        device_bytes=max((float(peak) for peak in peaks if isinstance(peak, int)), default=None),
    )


def key_of(trial: Trial) -> GroupKey:
    """Return what of a trial decides which model describes it."""
    options = tuple(sorted((name, value) for name, value in trial.options.items() if name != BUCKET))
    converted = ("options", "input_shape", "environment_variables", "settings")
    shared = {name: getattr(trial, name) for name in GroupKey.__dataclass_fields__ if name not in converted}
    return GroupKey(
        **shared,
        input_shape=tuple(trial.input_shape),
        options=options,
        environment_variables=tuple(sorted(trial.environment_variables.items())),
        settings=tuple(sorted(_settings(trial).items())),
    )


def _settings(trial: Trial) -> dict[str, str]:
    """Return, by field, what has no field of its own in a key."""
    values = {name: str(getattr(trial, name)) for name in USUAL_SETTINGS} | {"optimizer": trial.optimizer.computes}
    return {name: value for name, value in values.items() if value != USUAL_SETTINGS[name]}


def deployment_of(trial: Trial) -> Deployment:
    """Return the size of a trial."""
    cluster = trial.cluster
    bucket = trial.options.get(BUCKET)
    rates = [host.bandwidth_bits_per_s for host in cluster.hosts if host.bandwidth_bits_per_s] if cluster else []
    return Deployment(
        workers=trial.workers,
        batch=trial.batch_per_worker,
        servers=trial.servers,
        placement=trial.server_placement,
        hosts=cluster.worker_hosts if cluster else max(trial.hosts, 1),
        server_hosts=len(cluster.hosts) - cluster.worker_hosts if cluster else 0,
        workers_per_host=cluster.workers_per_host if cluster else -(-trial.workers // max(trial.hosts, 1)),
        emulated=cluster is not None and cluster.kind == "emulated",
        bandwidth=min(rates) / _BITS if rates else None,
        delay_s=cluster.delay_s if cluster else 0.0,
        cpu_share=max(host.cpu_share for host in cluster.hosts[: cluster.worker_hosts]) if cluster else 1.0,
        bucket_mb=float(bucket) if isinstance(bucket, (int, float)) else None,
    )


def _links(launch: Launch) -> list[tuple[float, float]]:
    paths = (launch.cluster or {}).get("paths", [])
    return [(path["alpha_s"], path["bandwidth_bits_per_s"] / _BITS) for path in paths]


def _launch_phases(trial: Trial, launches: Sequence[AblationLaunch]) -> list[LaunchPhases]:
    synchronous = strategy_named(trial.strategy).synchronous
    found = []
    every = stage_times_of(launches)
    cuda = trial.device == "cuda"
    nested = nested_phases(every, synchronous=synchronous, workers=trial.workers, cuda=cuda) if every else None
    for launch, stage_times, phases in zip(launches, every, nested.launches if nested else [], strict=True):
        total = communication_s(launch, stage_times, synchronous=synchronous)
        uneven = imbalance([stage_times])
        found.append(
            LaunchPhases(
                phases={name: None if blocks is None else float(blocks.mean()) for name, blocks in phases.items()},
                communication_s=float(total[0].mean()) if total else None,
                input_s=float(stage_times.means("input").mean()) if "input" in stage_times.stages else None,
                persistent=uneven.persistent.value if uneven else None,
                transient=uneven.transient.value if uneven else None,
                pieces=_pieces(launch),
            )
        )
    return found


def _pieces(launch: AblationLaunch) -> tuple[tuple[float, float], ...]:
    """Return the pieces of a step: medians over the marked steps of all workers that show as many in each."""
    shares, sizes = [], []
    for worker in launch.workers:
        steps = len(worker.marked)
        count = len(worker.transfers) // steps if steps else 0
        if not count or len(worker.transfers) != count * steps or not {"forward", "backward"} <= set(worker.marks):
            continue
        marked = np.asarray(worker.marked, dtype=np.float64)
        begin, end = (marked[:, 1 + worker.marks.index(name)] for name in ("forward", "backward"))
        ready = np.array([piece[2] for piece in worker.transfers]).reshape(steps, count)
        length = np.maximum(end - begin, 1e-9)[:, None]
        shares.append(np.clip((ready - begin[:, None]) / length, 0.0, 1.0))
        sizes.append(np.array([piece[1] for piece in worker.transfers], dtype=np.float64).reshape(steps, count))
    if not shares or len({each.shape[1] for each in shares}) > 1:
        return ()
    size, share = (np.median(np.concatenate(each), axis=0) for each in (sizes, shares))
    return tuple((float(one), float(other)) for one, other in zip(size, np.maximum.accumulate(share), strict=True))


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.median(known)) if known else None
