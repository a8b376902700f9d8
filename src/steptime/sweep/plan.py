"""What a sweep runs: one command with placeholders, a value for each of them, and the order of the runs.

Repeats are rounds: every setting is run once in each, in an order by chance, so that what drifts hits all alike.
"""

import random
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from steptime.attached.user_command import script_of
from steptime.errors import StoreError, UsageError
from steptime.file_name import as_file_name
from steptime.results.folder import RESULTS

STORED = "sweep"
"""The object of a results folder that describes the sweep in it."""
WORKERS = "workers"
"""The placeholder of the number of processes that train together."""
RUNS = "runs"
"""The folder with a folder for each setting, in that of the sweep."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST_WORKERS = 1_000_000


@dataclass(frozen=True)
class SweepSetting:
    """One value of each placeholder."""

    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return ``workers=2,batch=16``."""
        return ",".join(f"{key}={value}" for key, value in self.values.items())

    @property
    def workers(self) -> int:
        """The number of processes."""
        return int(self.values[WORKERS])

    @property
    def others(self) -> str:
        """Return ``batch=16``; empty where only the number of workers changes."""
        return ",".join(f"{key}={value}" for key, value in self.values.items() if key != WORKERS)

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the command with its placeholders replaced."""
        return [_PLACEHOLDER.sub(lambda place: self.values.get(place[1], place[0]), word) for word in command]


@dataclass(frozen=True)
class PlannedRun:
    """One run of one setting."""

    setting: SweepSetting
    number: int
    """Of the repeat, from 1."""
    folder: Path


@dataclass(frozen=True)
class SweepPlan:
    """What makes one sweep another one, and how often each setting is run."""

    command: Sequence[str]
    """With placeholders."""
    axes: Mapping[str, Sequence[str]]
    """Values by placeholder, that of the workers first."""
    repeats: int = field(default=3, compare=False)

    @property
    def settings(self) -> list[SweepSetting]:
        """Every combination of values."""
        return [
            SweepSetting(dict(zip(self.axes, values, strict=True)))
            for values in product(*map(tuple, self.axes.values()))
        ]

    @property
    def with_another_round(self) -> "SweepPlan":
        """The same plan with each setting run once more."""
        return replace(self, repeats=self.repeats + 1)

    def folder_of(self, folder: Path, setting: SweepSetting) -> Path:
        """Return where the runs of a setting are."""
        return folder / RUNS / as_file_name(setting.name, "setting")

    def runs(self, folder: Path) -> list[PlannedRun]:
        """Return all runs in their order."""
        ordered = []
        order = random.Random(0)  # noqa: S311 - no secret
        for number in range(1, self.repeats + 1):
            settings = self.settings
            order.shuffle(settings)
            ordered += [
                PlannedRun(setting, number, self.folder_of(folder, setting) / f"{number}") for setting in settings
            ]
        return ordered

    def to_json(self) -> dict[str, Any]:
        """Return what a sweep's folder keeps of it."""
        axes = {name: list(values) for name, values in self.axes.items()}
        return {"command": list(self.command), "axes": axes, "repeats": self.repeats}


def plan_of(kept: Mapping[str, Any], folder: Path) -> SweepPlan:
    """Return the plan that a folder keeps; raises StoreError where it holds none that can be read."""
    try:
        axes = {str(name): [str(value) for value in values] for name, values in kept["axes"].items()}
        return read_plan([str(word) for word in kept["command"]], axes, int(kept["repeats"]))
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        message = f"{folder / 'sweep.json'} is damaged ({error}); choose another folder with -o"
        raise StoreError(message) from error


def read_plan(command: Sequence[str], axes: Mapping[str, Sequence[str]], repeats: int) -> SweepPlan:
    """Return the plan of a command; raises UsageError with everything that is wrong with it."""
    mistakes = [*_mistakes_of_command(command, axes), *_mistakes_of_values(axes)]
    if repeats < 1:
        mistakes.append(f"--repeats {repeats} is less than one run")
    if mistakes:
        raise UsageError(mistakes)
    return SweepPlan(list(command), {name: list(values) for name, values in axes.items()}, repeats)


def _mistakes_of_command(command: Sequence[str], axes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if not command:
        yield "give a command: steptime sweep --counts 1,2,4 -- torchrun ... train.py"
        return
    used = {name for word in command for name in _PLACEHOLDER.findall(word)}
    if WORKERS not in used:
        yield (
            f"the command {shlex.join(command)} has no {{{WORKERS}}}; write it where the number of processes belongs: "
            f"torchrun --nproc-per-node {{{WORKERS}}} train.py"
        )
    for name in axes:
        if name != WORKERS and name not in used:
            yield f"--set {name} has no place in the command; write {{{name}}} there, or leave it out"


def _mistakes_of_values(axes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, values in axes.items():
        option = "--counts" if name == WORKERS else f"--set {name}"
        if not values:
            yield f"{option} has no value; write for example {'1,2,4' if name == WORKERS else f'{name}=16,32'}"
        if twice := sorted({value for value in values if list(values).count(value) > 1}):
            yield f"{option}: {', '.join(twice)} is there more than once; keep one"
    for value in axes.get(WORKERS, ()):
        if not (value.isdecimal() and 1 <= int(value) <= _MOST_WORKERS):
            yield f"--counts: {value!r} is not a number of workers; write for example 1,2,4"


def require_same(kept: SweepPlan, plan: SweepPlan, folder: Path) -> None:
    """Raise StoreError, with the difference, where a folder holds another sweep."""
    differences = []
    if list(kept.command) != list(plan.command):
        differences.append(f"its command is {shlex.join(kept.command)}, and not {shlex.join(plan.command)}")
    for name in dict.fromkeys([*kept.axes, *plan.axes]):
        before, now = (",".join(each.axes.get(name, ())) or "nothing" for each in (kept, plan))
        option = "--counts" if name == WORKERS else f"--set {name}="
        if before != now:
            differences.append(f"{option} is {before}, and not {now}")
    if differences:
        message = (
            f"{folder} holds another sweep: {'; '.join(differences)}; repeat those to continue, or choose another "
            "folder with -o"
        )
        raise StoreError(message)


def named_sweep(command: Sequence[str], output: Path | None) -> Path:
    """Return the folder that a user named, else one after the script of the command."""
    if output is not None:
        return output
    script = Path(script_of(command)[1]).name.removesuffix(".py") if command else "command"
    return RESULTS / f"sweep-{as_file_name(script, 'command')}"
