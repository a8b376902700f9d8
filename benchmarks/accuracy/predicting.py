"""What steptime says of each step that was measured, and what simpler models say."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from calibrating import Calibration
from contestants import LOADS
from quiet import Recorded, quiet, quietest
from settings import Setting

from steptime.measurements.estimate import estimate
from steptime.measurements.interval import Interval
from steptime.model.collectives import Link
from steptime.model.imbalance import WorkerSpread
from steptime.model.interconnect import Interconnect
from steptime.model.policies import StepGraph
from steptime.simulate.configuration import Durations, WorkerGroup
from steptime.simulate.simulate import simulate

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


def _step(graph: StepGraph, workers: int, calibration: Calibration, interconnect: Interconnect) -> float:
    """Return the seconds of a step as steptime plays it."""
    durations = Durations(calibration.forward, calibration.backward, calibration.update)
    group = WorkerGroup(workers=workers, slowest=calibration.slowest, spread=WorkerSpread(transient=calibration.varies))
    return float(simulate(graph, durations, group, interconnect).step[0])


def cells(settings: Iterable[Setting]) -> Iterator[Cell]:
    """Yield one cell for each number of hosts whose steps were timed and whose computing was measured elsewhere."""
    for setting in settings:
        workers, base = setting.trial.workers, setting.base
        every = setting.steps.launches(setting.trial.id)
        launches = quietest(every)
        found = estimate(launches, setting.trial.strategy)
        if found is None or not {1, workers} <= base.keys():
            continue
        measured = Interval(found.median, found.low, found.high, found.level, len(launches))
        yield cell_of(setting, measured, predictions(setting, base[workers]), every, in_turns=False)


def cell_of(
    setting: Setting, measured: Interval, predicted_s: dict[str, float], every: Sequence[Recorded], *, in_turns: bool
) -> Cell:
    """Return the cell of a setting.

    Args:
        setting: where.
        measured: how long a step takes, over the launches that count.
        predicted_s: by each way.
        every: all launches, whether they count or not.
        in_turns: whether computing with as many workers was measured in them too.
    """
    known, workers = setting.base, setting.trial.workers
    return Cell(
        contestant=setting.contestant,
        load=setting.load,
        batch=LOADS[setting.load].batch,
        megabits=setting.megabits,
        hosts=workers,
        in_turns=in_turns,
        measured_s=measured.value,
        low_s=measured.low,
        high_s=measured.high,
        launches=measured.launches,
        noisy_launches=len(every) - measured.launches,
        quiet=all((quiet(every), setting.quiet_link, known[1].quiet, in_turns or known[workers].quiet)),
        predicted_s=predicted_s,
    )


def predictions(setting: Setting, own: Calibration) -> dict[str, float]:
    """Return the seconds of a step by each way, steptime's first, from the computing of as many workers."""
    graph, workers, between, one = setting.graph, setting.trial.workers, setting.between, setting.base[1]
    asked_for = setting.megabits * 1e6 / 8 * _PAYLOAD
    nominal = Interconnect(Link(asked_for, rendezvous=between.outer.rendezvous))
    bare = _step(graph, workers, Calibration(_NO_TIME, _NO_TIME, 0.0, 1.0), between)
    return {
        "steptime": _step(graph, workers, own, between),
        "from one worker": _step(graph, workers, one.times(-(-workers // _CORES)), between),
        "one, unscaled": _step(graph, workers, one, between),
        "nominal link": _step(graph, workers, own, nominal),
        "no overlap": own.whole + bare,
        "only exchange": bare,
    }
