"""How long the work of earlier runs took on this machine: a plan divides its budget by what was seen here.

Kept in the cache, a file for each machine, as if the machine had been idle: a busy one makes all work longer. Where
nothing like the wanted work was done before, nothing is assumed, but for what libraries do in each new process.
"""

import contextlib
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from steptime.catalog.manifest import find_manifest
from steptime.environments.cache import cache_folder
from steptime.errors import PluginError, StoreError, WorkloadError
from steptime.execution.host import usable_cores
from steptime.plain_file import write_whole
from steptime.results.machine import machine_id
from steptime.study.trial import Trial

Work = Literal["check", "launch", "replay", "ablation", "loader", "training", "report"]
_KEPT = 5
"""KeptDurations of one kind of work: the machine, its load and the program change."""
_MOST_BYTES = 4_000_000
_MOST_S = 1e6


@dataclass
class KeptDurations:
    """Seconds that work took, by what it was; ``path`` keeps them for other runs, None for this one alone."""

    path: Path | None = None
    slowdown: Callable[[], float] = lambda: 1.0
    """How many times as long work takes now as on an idle machine."""
    _seen: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of_machine(cls) -> "KeptDurations":
        """Return what earlier runs kept of this machine; nothing where that cannot be read."""
        # Version 1 took what checks had that were ended for durations.
        path = cache_folder() / "durations" / f"{machine_id() or 'unnamed'}-2.json"
        return cls(path, slowdown_by_load, _read(path))

    def expected_s(self, work: Work, trial: Trial | None = None, *, at_best: bool = False) -> float | None:
        """Return how long some work takes: the same, or else its like of this framework and workload; None if unknown.

        Args:
            work: its kind.
            trial: whose work it is; None of work that does not depend on it.
            at_best: whether the quickest is expected; else the median.
        """
        typical = min if at_best else statistics.median_high
        idle_s = next((typical(self._seen[key]) for key in _keys(work, trial) if key in self._seen), None)
        return None if idle_s is None else idle_s * self.slowdown()

    def longest_s(self, work: Work) -> float | None:
        """Return how long some work, which depends on no trial, takes if as long as it ever did; None if unknown."""
        seen = self._seen.get(_keys(work, None)[0])
        return max(seen) * self.slowdown() if seen else None

    def note(self, work: Work, trial: Trial | None, seconds: float) -> None:
        """Take into account how long some work took; a folder that cannot be written does not stop the run."""
        idle_s = round(seconds / self.slowdown(), 3)
        for key in _keys(work, trial):
            self._seen[key] = [*self._seen.get(key, []), idle_s][-_KEPT:]

    def keep(self) -> None:
        """Keep what was noted for other runs."""
        if self.path is not None:
            with contextlib.suppress(OSError, StoreError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.path, json.dumps(self._seen, indent=0, sort_keys=True).encode())


_SEARCHED = "conv2d"
_SEARCH_S = 0.6
"""Of a fresh process for the quickest kernels of a convolution: 12.6 to 15.0 s for the 23 of ResNet-50 on an H100."""


def search_s(trial: Trial) -> float:
    """Return about how long each launch searches kernels before its second step; 0 where that is not known or nothing.

    cuDNN does for torch, once for each convolution that is unlike the others. Other frameworks choose by other rules,
    and of a user's own module the layers are not known.
    """
    if trial.device != "cuda":
        return 0.0
    manifest = find_manifest(trial.framework)
    if manifest is None or "torch" not in manifest.libraries:
        return 0.0
    try:
        layers = trial.build().layers
    except (WorkloadError, PluginError):
        return 0.0
    found = {(each.input_shapes, str(sorted(each.attributes.items()))) for each in layers if each.kind == _SEARCHED}
    return _SEARCH_S * len(found)


def slowdown_by_load() -> float:
    """Return how many processes share a core of this machine, by the load of the last minute; 1 where cores are left.

    A check or a launch of this run keeps the cores busy by itself, which the durations hold already.
    """
    return max(1.0, os.getloadavg()[0] / len(usable_cores()))


def _keys(work: Work, trial: Trial | None) -> list[str]:
    """Return the names of some work, from its own to that of its like."""
    if trial is None:
        return [work]
    shape = "x".join(map(str, trial.input_shape))
    alike = f"{work} {trial.framework} {trial.device} {trial.workload} {shape}"
    return [f"{alike} {trial.strategy} {trial.workers}x{trial.batch_per_worker} {trial.loader}", alike]


def _read(path: Path) -> dict[str, list[float]]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {name: values for name, values in kept.items() if _are_durations(values)}


def _are_durations(values: object) -> bool:
    return (
        isinstance(values, list)
        and bool(values)
        and all(type(each) in {int, float} and 0.0 <= each < _MOST_S for each in values)
    )
