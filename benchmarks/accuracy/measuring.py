"""What is measured: computing alone, links between two hosts, and steps on emulated hosts; what is there stays."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import LOADS, Contestant
from quiet import Recorded, quiet

from steptime.errors import StoreError
from steptime.measurements.store import Store

STEPTIME = str(Path(sys.executable).with_name("steptime"))
SHORT, MIDDLE, LONG = 1 << 10, 1 << 16, 1 << 22
"""Messages of a link's benchmark, bytes: workers that share cores wait for the scheduler behind the short ones only."""
_LIMIT_S = 1800.0
"""That one launch may last."""
_TURNS_S = 20.0
"""Of a launch that measures steps and computing in turns: some twenty turns of the steps that take part."""

Wanted = tuple[Sequence[int], int]
"""Numbers of workers, and how many launches of any kind each of them shall have."""


@dataclass(frozen=True)
class Place:
    """Where the measurements of one folder lie."""

    root: Path

    def alone(self, contestant: Contestant, load: str) -> Path:
        """Computing without links to speak of; strategies of a framework share it."""
        return self.root / contestant.framework / load / "alone"

    def steps(self, contestant: Contestant, load: str, rate: float) -> Path:
        """Steps at one bandwidth."""
        return self.root / contestant.framework / load / f"{contestant.strategy}-{rate:g}"

    def rates(self, contestant: Contestant, load: str) -> list[float]:
        """Return the bandwidths at which steps lie here, ascending."""
        found = (self.root / contestant.framework / load).glob(f"{contestant.strategy}-*")
        return sorted(float(each.name.removeprefix(f"{contestant.strategy}-")) for each in found)

    def net(self, contestant: Contestant, rate: float) -> Path:
        """The link of two hosts."""
        return self.root / contestant.framework / f"net-{rate:g}"

    def stores(self, contestant: Contestant, load: str, rate: float) -> tuple[Store, Store, Store] | None:
        """Return the results of steps, of computing alone and of the link; None where one of them is missing."""
        folders = (
            self.steps(contestant, load, rate) / "results",
            self.alone(contestant, load) / "results",
            self.net(contestant, rate),
        )
        try:
            steps, alone, net = map(Store.open, folders)
        except StoreError:
            return None
        return steps, alone, net


@dataclass
class Measuring:
    """Runs what is missing, while there is time."""

    place: Place
    hosts: Sequence[int]
    launches: int | None
    """Of each cell; None for what each workload needs."""
    servers: int
    rounds: int = 3
    """Times that a measurement is begun at most, for launches on a machine that was not quiet."""
    deadline: float | None = None
    """On ``time.monotonic``; what is under way then is ended at the next launch."""
    started: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds by contestant."""

    def everything(self, contestant: Contestant, names: Sequence[str], rates: Sequence[float]) -> None:
        """Measure all of one contestant: links first, then workload by workload, and buckets last."""
        began = time.monotonic()
        for rate in rates:
            self._net(contestant, rate)
        for name in names:
            launches = self.launches or LOADS[name].launches
            self._alone(contestant, name)
            for rate in rates:
                self._steps(contestant, name, rate, launches)
                self._apart(contestant, name, rate, launches)
            if contestant.has_buckets and LOADS[name].launches == 1:
                # For the buckets: where the link alone decides, taking steps apart is slow, and two hosts show enough.
                self._time(contestant, name, max(rates), ([min(self.hosts)], launches), apart=1)
        self.spent[contestant.name] = time.monotonic() - began

    def _alone(self, contestant: Contestant, name: str) -> None:
        folder = self.place.alone(contestant, name)
        for wanted in self._lacking(folder, [1, *self.hosts], 1, Store.ablations):
            self._stage_times(contestant, name, wanted)

    def _stage_times(self, contestant: Contestant, name: str, wanted: Wanted) -> None:
        workers, launches = wanted
        study = self._study(contestant, name, workers) | {
            "strategies": ["single", "ps_sync" if contestant.is_served else contestant.strategy],
            "exclude": [{"strategies": "ps_sync", "workers": 1}] if contestant.is_served else [],
            "launches": {"min": 1, "max": 1},
            "steps": {"warmup": 3, "min": 3, "max": 20},
            "seconds_per_launch": 1,
            "breakdown": {"launches": launches, "seconds": 5},
            "cluster": {"hosts": max(self.hosts)},
        }
        self._run(self.place.alone(contestant, name), study, f"{contestant.name} {name}: computing alone")

    def _steps(self, contestant: Contestant, name: str, rate: float, launches: int) -> None:
        folder = self.place.steps(contestant, name, rate)
        for wanted in self._lacking(folder, self.hosts, launches, Store.launches):
            self._time(contestant, name, rate, wanted)

    def _apart(self, contestant: Contestant, name: str, rate: float, launches: int) -> None:
        """Measure steps and computing in turns, where computing has a part in the step and workers are in step."""
        if LOADS[name].launches == 1 or contestant.strategy == "ps_async":
            return
        folder = self.place.steps(contestant, name, rate)
        for workers, most in self._lacking(folder, self.hosts, launches, Store.ablations):
            self._time(contestant, name, rate, (workers, launches), apart=most)

    def _time(self, contestant: Contestant, name: str, rate: float, wanted: Wanted, *, apart: int = 0) -> None:
        """Time steps on emulated hosts, or take apart those that were timed, in so many launches."""
        workers, launches = wanted
        study = self._study(contestant, name, workers) | {
            "strategies": [contestant.strategy],
            "launches": {"min": launches, "max": launches},
            # DDP has its buckets from the second step on.
            "steps": {"warmup": 2, "min": _fewest(contestant, name), "max": 60},
            "seconds_per_launch": 4,
            "breakdown": {"launches": apart, "seconds": _TURNS_S} if apart else False,
            "cluster": {"hosts": max(self.hosts), "bandwidth": f"{rate:g}Mbit/s"},
        }
        what = "steps and computing in turns" if apart else "steps"
        self._run(self.place.steps(contestant, name, rate), study, f"{contestant.name} {name}: {what}, {rate:g} Mbit/s")

    def _lacking(
        self, folder: Path, workers: Sequence[int], enough: int, launches_of: Callable[[Store, str], Sequence[Recorded]]
    ) -> Iterator[Wanted]:
        """Yield what lacks quiet launches, as often as it may be measured."""
        for _ in range(self.rounds):
            found = _launches(folder / "results", launches_of)
            lacks = {count: enough - len(quiet(found.get(count, []))) for count in workers}
            short = [count for count in workers if lacks[count] > 0]
            if not short:
                return
            yield short, max(len(found.get(count, [])) + lacks[count] for count in short)

    def _study(self, contestant: Contestant, name: str, workers: Sequence[int]) -> dict[str, object]:
        load = LOADS[name]
        workload: dict[str, object] = {"name": load.workload, "batch_per_worker": load.batch}
        if load.side:
            workload["image"] = load.side
        return {
            "name": "accuracy",
            "workloads": [workload],
            "frameworks": [contestant.framework],
            "loaders": ["synthetic"],
            "workers": list(workers),
            "servers": self.servers,
            "device": "cpu",
            "launcher": "emulated",
            "time_limit": _LIMIT_S,
            "equivalence": {"enabled": False},
        }

    def _run(self, folder: Path, study: dict[str, object], what: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.json").write_text(json.dumps(study))
        self._call([STEPTIME, "run", str(folder / "study.json"), "-o", str(folder / "results")], what)

    def _net(self, contestant: Contestant, rate: float) -> None:
        folder = self.place.net(contestant, rate)
        for _ in range(self.rounds):
            have = Store.open(folder).net() if Store.exists(folder) else []
            if quiet(have):
                return
            self._link(contestant, rate, folder, len(have) + 2)

    def _link(self, contestant: Contestant, rate: float, folder: Path, launches: int) -> None:
        command = [
            *(STEPTIME, "net", contestant.back_end, "--workers", "2", "--launcher", "emulated"),
            *("--bandwidth", f"{rate:g}Mbit/s", "--operations", contestant.operation),
            *("--launches", str(launches)),
            *("--sizes", f"{SHORT}B,{MIDDLE}B,{LONG}B", "-o", str(folder)),
        ]
        self._call(command, f"{contestant.name}: link of {rate:g} Mbit/s")

    def _call(self, command: list[str], what: str) -> None:
        """Run a command to its end; one that fails says why, and what it kept is used."""
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                return
            command = [*command, "--budget", f"{max(left, 1.0):.0f}s"]
        began = time.monotonic()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        now = time.monotonic()
        print(f"[{now - self.started:6.0f} s] {what} ({now - began:.0f} s)", file=sys.stderr, flush=True)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            print(f"  exit code {done.returncode}: {' '.join(said)}", file=sys.stderr, flush=True)


def _fewest(contestant: Contestant, name: str) -> int:
    """Steps of a launch at least: those of workers that do not wait differ more, where not the link alone decides."""
    if contestant.strategy != "ps_async":
        return 4
    return 10 if LOADS[name].launches > 1 else 6


def _launches(folder: Path, launches_of: Callable[[Store, str], Sequence[Recorded]]) -> dict[int, Sequence[Recorded]]:
    """Return the launches in a results folder by their number of workers; none where there is no folder yet."""
    if not Store.exists(folder):
        return {}
    store = Store.open(folder)
    return {trial.workers: launches_of(store, trial.id) for trial in store.trials()}
