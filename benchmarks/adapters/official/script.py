"""A framework's own example or benchmark script, and how a race runs it unchanged.

The person who runs a race fetches the script; nothing of it stands in this repository. A description says how its
author's command line looks, which model, batch and optimizer it trains, and what it does otherwise than the adapter.

Two folders go in front of the modules that the script finds, by ``PYTHONPATH``:

- ``modules``, for every script: ``sitecustomize.py`` gives each worker its cores, and ``race_marks.py`` notes the ends
  of steps;
- a folder of the framework, where a script imports a package of models or data that is not installed: the package's
  name with the model of the plain loop, which is the adapter's, and batches that are made once.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from race import Cost, cost_of_workers

from steptime.catalog.options import OptionValue


@dataclass(frozen=True)
class ScriptRun:
    """One launch of an official script."""

    python: Path
    """The interpreter of the framework's environment; programs that packages bring are in its folder."""
    script: Path
    folder: Path
    """An empty folder, in which the script runs and may write."""
    workload: str
    batch: int
    """Samples per worker."""
    workers: int
    steps: int
    """Timed steps, behind ``warmup`` ones."""
    warmup: int
    port: int
    """A free port of this host."""

    def command(self, *arguments: object) -> list[str]:
        """Return the command that gives the script its arguments."""
        return [str(self.python), str(self.script), *map(str, arguments)]

    def program(self, name: str) -> str:
        """Return the path of a program that a package of the environment brought."""
        return str(self.python.parent / name)


def marked_cost(run: ScriptRun, _: str) -> Cost:
    """Return the cost by the marks that ``race_marks.py`` wrote, one file per worker; warm-up steps are left out."""
    workers = []
    for path in sorted(run.folder.glob("marks-*.json")):
        marks = json.loads(path.read_text())
        ends, cpu = (marks[key][run.warmup : run.warmup + run.steps] for key in ("ends_s", "cpu_s"))
        workers.append({"ends_s": ends, "cpu_s": cpu[-1] - cpu[0]})
    if len(workers) != run.workers or any(len(each["ends_s"]) < 2 for each in workers):
        steps = [len(each["ends_s"]) for each in workers]
        message = f"{run.script.name} left marks of {steps} timed steps, where {run.workers} workers were expected"
        raise SystemExit(message)
    return cost_of_workers(workers)


@dataclass(frozen=True)
class OfficialScript:
    """How a script is run, and what it trains."""

    framework: str
    url: str
    """Where its authors publish it."""
    commands: Callable[[ScriptRun], list[list[str]]]
    """The command lines, one for each process that a user of the script starts."""
    differences: tuple[str, ...]
    """What it does otherwise than the adapter, a sentence each."""
    workloads: tuple[str, ...]
    """The workloads that it can train, as ``race_plain.py`` names them."""
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the optimizer where they are not those of every trial; the adapter takes them over."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the adapter with the script's values, where they are not those of the tier."""
    strategies: Mapping[int, str] = field(default_factory=lambda: {1: "single", 2: "allreduce"})
    """The adapter's strategy, by the number of workers that the script can have."""
    modules: str = ""
    """The folder, next to this file, of the modules that the script finds in place of those not installed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the command."""
    cost: Callable[[ScriptRun, str], Cost] = marked_cost
    """Returns what a step cost, of the run and of what its processes printed."""
