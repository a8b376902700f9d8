"""The launches behind forecasts: small numbers of hosts and their link, and the larger numbers that are forecast."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import LOADS, Contestant

from steptime.results.store import Store

STEPTIME = str(Path(sys.executable).with_name("steptime"))
KNOWN = (1, 2)
"""Hosts that a forecast knows."""
SIZES = "1KiB,64KiB,1MiB,4MiB"
"""Messages of a link's benchmark."""
BREAKDOWN = {"launches": 1, "seconds": 6}
_LIMIT_S = 900.0
"""That one launch may last."""


@dataclass(frozen=True)
class Situation:
    """One workload on emulated hosts with links of one bandwidth."""

    load: str
    megabits: float
    share: float = 1.0
    """Of a core, that a host may use; with 1, hosts beyond the cores take turns."""

    @property
    def name(self) -> str:
        """``small_alexnet-100``; ``small_alexnet-100-25`` with a quarter of a core each."""
        slow = "" if self.share == 1.0 else f"-{100 * self.share:g}"
        return f"{self.load}-{self.megabits:g}{slow}"


@dataclass(frozen=True)
class Folders:
    """Where the measurements of one framework in one situation lie."""

    root: Path
    framework: str
    situation: Situation

    @property
    def whole(self) -> Path:
        """Everything of them."""
        return self.root / self.framework / self.situation.name

    @property
    def known(self) -> Path:
        """Results of one host and two, and of their link."""
        return self.whole / "known"

    @property
    def held_out(self) -> Path:
        """Results of more hosts, which nothing but the judgement reads."""
        return self.whole / "held-out"


@dataclass
class Campaign:
    """Runs what is missing, while there is time; results that are there stay."""

    root: Path
    launches: int = 2
    hosts: Sequence[int] = (3, 4)
    """That are forecast, then measured."""
    replays: bool = False
    """Whether the steps of these hosts are broken down too."""
    deadline: float | None = None
    """On ``time.monotonic``; no launch begins after it."""
    started: float = field(default_factory=time.monotonic)

    def measure(self, contestant: Contestant, situation: Situation) -> None:
        """Measure one framework: what a user would, and then what the forecast is about."""
        folders = Folders(self.root, contestant.framework, situation)
        strategies = list(contestant.strategies)
        known = self._study(contestant, situation, KNOWN) | {
            "strategies": ["single", *strategies],
            "exclude": [{"strategies": strategies, "workers": 1}],
            "breakdown": BREAKDOWN,
        }
        self._run(folders.known, known, "one host and two")
        for back_end in contestant.back_ends:
            self._net(folders, back_end)
        held = self._study(contestant, situation, self.hosts) | {"strategies": strategies}
        if self.replays:
            held["breakdown"] = BREAKDOWN
        self._run(folders.held_out, held, f"{', '.join(map(str, self.hosts))} hosts")

    def _study(self, contestant: Contestant, situation: Situation, workers: Sequence[int]) -> dict[str, object]:
        load, most = LOADS[situation.load], max(self.hosts)
        workload: dict[str, object] = {"name": load.workload, "batch_per_worker": load.batch}
        if load.side:
            workload["image"] = load.side
        if load.sequence:
            workload["sequence"] = load.sequence
        cluster: dict[str, object] = {"hosts": most, "bandwidth": f"{situation.megabits:g}Mbit/s"}
        if situation.share < 1.0:
            cluster["cpu_share"] = dict.fromkeys(range(most), situation.share)
        training = {"optimizer": {"name": load.optimizer, "learning_rate": 0.001}} if load.optimizer else {}
        return {
            **training,
            "name": "forecast",
            "workloads": [workload],
            "frameworks": [contestant.framework],
            "loaders": ["synthetic"],
            "workers": list(workers),
            "servers": 1,
            "device": "cpu",
            "launcher": "emulated",
            "time_limit": _LIMIT_S,
            "equivalence": {"enabled": False},
            "launches": {"min": self.launches, "max": self.launches},
            # DDP has its buckets from the second step on.
            "steps": {"warmup": 2, "min": 4, "max": 40},
            "seconds_per_launch": 3,
            "cluster": cluster,
        }

    def _run(self, results: Path, study: dict[str, object], what: str) -> None:
        path = results.with_suffix(".study.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(study))
        self._call([STEPTIME, "run", str(path), "-o", str(results)], f"{results.parent}: {what}")

    def _net(self, folders: Folders, back_end: str) -> None:
        net = Store.open(folders.known).net() if Store.exists(folders.known) else []
        if sum(each.setting.back_end == back_end and each.status == "ok" for each in net) >= self.launches:
            return
        command = [
            *(STEPTIME, "net", back_end, "--workers", "2", "--launcher", "emulated"),
            *("--bandwidth", f"{folders.situation.megabits:g}Mbit/s", "--sizes", SIZES, "--repeats", "20"),
            *("--launches", str(self.launches), "-o", str(folders.known)),
        ]
        self._call(command, f"{folders.whole}: link of {back_end}")

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
