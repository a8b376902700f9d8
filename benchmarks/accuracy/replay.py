"""Replays: steps played by the simulator from computing that took turns with them, in the same launch.

A forecast compares launches of different minutes, and a machine may be quicker in one than in another. A replay takes
the computing of the very launch that timed the step, from its stages that send nothing, and the link of two hosts; so
it shows the errors of the simulator apart from those of the machine. It forecasts nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from campaign import Folders
from quiet import all_quiet

from steptime.analysis.ablation.stages import StageTimes, stage_times_of
from steptime.analysis.message_times import through_ends
from steptime.catalog.choices import strategy_named
from steptime.catalog.workloads.table import build_workload
from steptime.fitting.observation import RAMP_S, TICK_S, crossed_token_buckets, preemptions_of
from steptime.model.collectives import SOCKET_RENDEZVOUS_BYTES, Link, Real
from steptime.model.compute import work_of
from steptime.model.interconnect import Interconnect, Switch
from steptime.model.measured_links import net_summary
from steptime.model.policies import StepGraph, step_graph
from steptime.model.worker_spread import WorkerSpread
from steptime.results.net_records import NetLaunch
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store
from steptime.simulate.configuration import Durations, WorkerGroup
from steptime.simulate.simulate import simulate
from steptime.study.trial import Trial
from steptime.worker.communication import CommunicationPlan, PolicyContext

SHORT, MIDDLE, LONG = 1 << 10, 1 << 16, 1 << 22
"""Messages of a link's benchmark, bytes: workers that share cores wait for the scheduler behind the short ones only."""
_QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""


@dataclass(frozen=True)
class ReplayedStep:
    """A step beside its replay; seconds."""

    framework: str
    strategy: str
    load: str
    megabits: float
    share: float
    hosts: int
    measured_s: float
    replayed_s: float
    launches: int
    quiet: bool

    @property
    def error(self) -> float:
        """Return (replayed - measured) / measured."""
        return self.replayed_s / self.measured_s - 1.0


def replayed_steps(folders: Folders) -> Iterator[ReplayedStep]:
    """Yield a replay for each number of hosts whose steps were broken down and whose link was measured."""
    for path in (folders.known, folders.held_out):
        if not (Store.exists(path) and Store.exists(folders.known)):
            continue
        store, links = Store.open(path), Store.open(folders.known).net()
        for trial in store.trials():
            launches = [each for each in store.records(ABLATION, trial.id) if each.status == "ok"]
            if trial.workers < 2 or not strategy_named(trial.strategy).synchronous:
                continue
            parts = [each for each in stage_times_of(launches) if each.alone]
            graph = _graph_of(trial)
            link = _link_of(links, trial, graph.plan, sockets=_sockets(store, trial))
            if not parts or link is None:
                continue
            wake_up_s = _wake_up_s(store, trial)
            yield ReplayedStep(
                framework=trial.framework,
                strategy=trial.strategy,
                load=folders.situation.load,
                megabits=folders.situation.megabits,
                share=folders.situation.share,
                hosts=trial.workers,
                measured_s=_mean([_step_of(each) for each in parts]),
                replayed_s=_mean([_replay(graph, trial, each, link, wake_up_s) for each in parts]),
                launches=len(parts),
                quiet=all_quiet(launches),
            )


def _graph_of(trial: Trial) -> StepGraph:
    return step_graph(
        work_of(build_workload(trial.workload, trial.input_shape, trial.classes)),
        trial.framework,
        trial.strategy,
        PolicyContext(
            workers=trial.workers, servers=trial.servers, options=trial.options, batch=trial.batch_per_worker
        ),
    )


def _sockets(store: Store, trial: Trial) -> bool:
    return any(crossed_token_buckets(each) for each in store.launches(trial.id))


def _wake_up_s(store: Store, trial: Trial) -> float:
    counts = [preemptions_of(each) for each in store.launches(trial.id)]
    return TICK_S if any(count is not None and count >= 1.0 for count in counts) else 0.0


def _replay(graph: StepGraph, trial: Trial, parts: StageTimes, link: Interconnect, wake_up_s: float) -> float:
    """Return the seconds of a step as the simulator plays it, from the stages that send nothing."""

    def median(name: str) -> float:
        return float(np.median(np.concatenate(parts.stages[name], axis=1), axis=1).mean())

    forward, backward = median("forward"), median("backward")
    # Where servers update, workers do not, and there is no stage of it.
    update = 0.0 if graph.plan.updated_by == "servers" else max(0.0, median("local") - backward)
    computing = parts.compute()
    middle = np.median(computing, axis=1)
    varies = np.diff(np.quantile(computing, [0.25, 0.75], axis=1), axis=0)[0] / _QUARTILES / middle
    group = WorkerGroup(
        workers=trial.workers,
        slowest=float(np.median(computing.max(axis=0)) / np.median(computing.mean(axis=0))),
        spread=WorkerSpread(transient=float(np.mean(varies))),
        wake_up_s=wake_up_s,
    )
    return float(simulate(graph, Durations(forward, backward - forward, update), group, link).step[0])


def _step_of(parts: StageTimes) -> float:
    """Return the mean over workers of their median steps."""
    return float(np.median(np.concatenate(parts.stages["step"], axis=1), axis=1).mean())


def _mean(seconds: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(seconds))))


def _link_of(
    launches: Sequence[NetLaunch], trial: Trial, plan: CommunicationPlan, *, sockets: bool
) -> Interconnect | None:
    """Return the link of two hosts: lines through the times of its messages; None without the shortest and longest.

    Messages from the middle size on have the line above it: behind shorter ones, workers that share cores sleep until
    the scheduler's next look, which says nothing of the link.
    """
    operation = "push_pull" if strategy_named(trial.strategy).servers else "allreduce"
    rows = [row for row in net_summary(launches).rows if (row.operation, row.framework) == (operation, trial.framework)]
    seconds = {size.bytes: size.time_s.value for row in rows for size in row.sizes}
    short, middle, long = (seconds.get(size) for size in (SHORT, MIDDLE, LONG))
    if short is None or long is None:
        return None
    steps, volume = rows[0].steps, rows[0].volume
    per_byte = (long - short) / (LONG - SHORT)

    def link(per_byte_s: float, start_s: float) -> Link:
        return Link(
            rate=volume / per_byte_s if per_byte_s > 0 else np.inf,
            latency=start_s / steps,
            rendezvous=SOCKET_RENDEZVOUS_BYTES if sockets else np.inf,
            ramp_s=RAMP_S if sockets else 0.0,
            sends_ahead=sockets,
        )

    algorithm = plan.algorithm or "ring"
    if operation == "push_pull":
        # A worker that has its answer pushes its next message beside the others' answers, so that messages directly
        # behind each other seem quicker than the link: no more than plain sockets found is believed.
        return Interconnect(link(max(per_byte, _per_byte(launches, volume)), short), algorithm)
    if plan.fusion is not None:
        # A message waits for a look, for all to know of it, and for its exchange: the last two are told apart by
        # nothing here, and take as long as each other.
        return Interconnect(link(per_byte, max(short - plan.fusion.cycle_s, 0.0) / 2.0), algorithm)
    if middle is None:
        return Interconnect(link(per_byte, short), algorithm)
    above = through_ends(np.array([MIDDLE, LONG]), np.array([middle, long]))
    switch = Switch(MIDDLE, link(above.per_byte_s, above.start_s), algorithm)
    return Interconnect(link(per_byte, short), algorithm, switches=(switch,))


def _per_byte(launches: Sequence[NetLaunch], volume: Real) -> float:
    """Return seconds per byte of a message by what plain sockets between the same hosts reached."""
    paths = [path for launch in launches if launch.cluster for path in launch.cluster["paths"]]
    rates = [path["bandwidth_bits_per_s"] / 8 for path in paths]
    return float(volume / np.median(rates)) if rates else 0.0
