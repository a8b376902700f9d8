"""What steptime says of each step that was measured, and what simpler models say."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from calibrating import Calibration, calibrations, interconnect_of
from contestants import Contestant, Load
from measuring import Place
from quiet import quiet, quietest

from steptime.measurements.estimate import estimate
from steptime.perfmodels.communication.carriage import Interconnect
from steptime.perfmodels.communication.link import Link
from steptime.simulator.play import Crew, Durations, play
from steptime.simulator.spread import Spread
from steptime.stepgraph.graph import StepGraph, step_graph
from steptime.stepgraph.plan import Circumstances
from steptime.stepgraph.work import work_of
from steptime.study.trial import Trial
from steptime.workloads.table import build_workload

_CORES = 2
_PAYLOAD = 0.956
"""Of what a link is shaped to, what Ethernet, IP and TCP leave."""
_NO_TIME = 1e-9


@dataclass(frozen=True)
class Cell:
    """One point: what was measured, and what was predicted by each way."""

    contestant: str
    load: str
    batch: int
    megabits: float
    hosts: int
    in_turns: bool
    """Whether its computing was measured in the same launches, in turns with its steps, or in other launches."""
    measured_s: float
    low_s: float
    high_s: float
    launches: int
    noisy_launches: int
    """That were set aside, since they had not the processors to themselves."""
    quiet: bool
    """Whether enough of everything that the cell stands on was measured on a quiet machine; else all launches count."""
    predicted_s: dict[str, float]

    def error(self, way: str) -> float:
        """Return (predicted - measured) / measured."""
        return self.predicted_s[way] / self.measured_s - 1.0

    def row(self) -> dict[str, object]:
        """Return one flat row."""
        fields = asdict(self)
        ways = fields.pop("predicted_s")
        return {**fields, **{f"{name} (s)": seconds for name, seconds in ways.items()}}


def graph_of(trial: Trial) -> StepGraph:
    """Return what is exchanged after what in a step of a trial."""
    return step_graph(
        work_of(build_workload(trial.workload, trial.input_shape, trial.classes)),
        trial.framework,
        trial.strategy,
        Circumstances(
            workers=trial.workers, servers=trial.servers, options=trial.options, batch=trial.batch_per_worker
        ),
    )


def step(graph: StepGraph, workers: int, calibration: Calibration, interconnect: Interconnect) -> float:
    """Return the seconds of a step as steptime plays it."""
    durations = Durations(calibration.forward, calibration.backward, calibration.update)
    crew = Crew(workers=workers, slowest=calibration.slowest, spread=Spread(transient=calibration.varies))
    return float(play(graph, durations, crew, interconnect).step[0])


def cells(place: Place, contestant: Contestant, name: str, load: Load, megabits: float) -> Iterator[Cell]:
    """Yield one cell for each number of hosts of which all was measured that it needs."""
    stores = place.stores(contestant, name, megabits)
    if stores is None:
        return
    steps, alone, net = stores
    base, links = calibrations(alone, contestant), net.net()
    for trial in steps.trials():
        every = steps.launches(trial.id)
        launches = quietest(every)
        found = estimate(launches, trial.strategy)
        graph = graph_of(trial)
        between = interconnect_of(quietest(links), contestant, graph.plan)
        if found is None or between is None or not {1, trial.workers} <= base.keys():
            continue
        yield Cell(
            contestant=contestant.name,
            load=name,
            batch=load.batch,
            megabits=megabits,
            hosts=trial.workers,
            in_turns=False,
            measured_s=found.median,
            low_s=found.low,
            high_s=found.high,
            launches=len(launches),
            noisy_launches=len(every) - len(launches),
            quiet=all((quiet(every), quiet(links), base[1].quiet, base[trial.workers].quiet)),
            predicted_s=predictions(graph, trial.workers, base, between, as_asked(megabits)),
        )


def as_asked(megabits: float) -> Interconnect:
    """Return the link that was asked for, had it no latency."""
    return Interconnect(Link(megabits * 1e6 / 8 * _PAYLOAD))


def predictions(
    graph: StepGraph, workers: int, base: dict[int, Calibration], between: Interconnect, nominal: Interconnect
) -> dict[str, float]:
    """Return the seconds of a step by each way, steptime's first."""
    own, one = base[workers], base[1]
    bare = step(graph, workers, Calibration(_NO_TIME, _NO_TIME, 0.0, 1.0), between)
    return {
        "steptime": step(graph, workers, own, between),
        "from one worker": step(graph, workers, one.times(-(-workers // _CORES)), between),
        "one, unscaled": step(graph, workers, one, between),
        "nominal link": step(graph, workers, own, nominal),
        "no overlap": own.whole + bare,
        "only exchange": bare,
    }
