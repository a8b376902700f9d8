"""What predictions of one framework, workload and bandwidth stand on, for every number of hosts that was measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from calibrating import Calibration, between_hosts, calibrations
from contestants import Contestant
from measuring import Place
from quiet import quiet, quietest

from steptime.measurements.store import Store
from steptime.model.interconnect import Interconnect
from steptime.model.layer_work import work_of
from steptime.model.policies import StepGraph, step_graph
from steptime.study.trial import Trial
from steptime.worker.communication import PolicyContext
from steptime.workloads.table import build_workload


@dataclass(frozen=True)
class Setting:
    """One number of hosts, with all that is known of it but how long its steps take."""

    contestant: str
    load: str
    megabits: float
    steps: Store
    """Where its launches are."""
    trial: Trial
    graph: StepGraph
    base: dict[int, Calibration]
    """Computing without sending, measured in other launches, by the number of workers."""
    between: Interconnect
    quiet_link: bool


def settings(place: Place, contestant: Contestant, load: str, megabits: float) -> Iterator[Setting]:
    """Yield the settings whose link was measured."""
    stores = place.stores(contestant, load, megabits)
    if stores is None:
        return
    steps, alone, net = stores
    base, links = calibrations(alone, contestant), net.net()
    for trial in steps.trials():
        graph = _graph_of(trial)
        between = between_hosts(quietest(links), contestant, graph.plan)
        if between is not None:
            yield Setting(
                contestant=contestant.name,
                load=load,
                megabits=megabits,
                steps=steps,
                trial=trial,
                graph=graph,
                base=base,
                between=between,
                quiet_link=bool(quiet(links)),
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
