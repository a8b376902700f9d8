"""Forecasts of steps on more hosts, as ``steptime predict`` prints them, beside what was measured."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import STEPTIME, Folders, Situation
from quiet import LIMITS, all_quiet

from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.statistics.estimate import estimate
from steptime.study.trial import Trial


@dataclass(frozen=True)
class ForecastCell:
    """One step that was forecast and then measured; seconds."""

    framework: str
    strategy: str
    load: str
    megabits: float
    share: float
    """Of a core, that each host may use."""
    hosts: int
    measured_s: float
    low_s: float
    high_s: float
    launches: int
    foreign_cores: float
    """Of other programs, in the worst launch that the cell stands on, known ones and held-out ones."""
    steal_share: float
    """Likewise, what the machine's host gave to others."""
    quiet: bool
    """Whether every launch that the cell stands on was quiet."""
    predicted_s: float | None
    """None if the forecast was refused."""
    predicted_low_s: float | None
    predicted_high_s: float | None
    refused: str | None
    repeated_s: float
    """The step of two hosts, which the simplest model repeats."""
    link: str
    """How the link is known: by its back end (``net``), by plain sockets, or not."""
    extrapolation: float | None
    """Share of the interval's variance that is the model's own error."""
    waiting_share: float | None
    """Of the predicted step, that is communication and waiting."""

    @property
    def error(self) -> float | None:
        """Return (predicted - measured) / measured."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1.0

    @property
    def inside(self) -> bool | None:
        """Say whether the measured step lies in the forecast's interval of 90 %."""
        if self.predicted_low_s is None or self.predicted_high_s is None:
            return None
        return self.predicted_low_s <= self.measured_s <= self.predicted_high_s


def situations_of(root: Path, framework: str) -> Iterator[Situation]:
    """Yield the situations that were measured of a framework."""
    for folder in sorted((root / framework).glob("*-*")):
        load, megabits, *share = folder.name.split("-")
        yield Situation(load, float(megabits), float(share[0]) / 100 if share else 1.0)


def forecast_cells(folders: Folders) -> list[ForecastCell]:
    """Return a cell for each step that was held out and measured; none where a forecast has nothing to stand on."""
    if not (Store.exists(folders.known) and Store.exists(folders.held_out)):
        return []
    known, held = Store.open(folders.known), Store.open(folders.held_out)
    steps = [(trial, held.launches(trial.id)) for trial in held.trials()]
    steps = [(trial, launches) for trial, launches in steps if any(each.status == "ok" for each in launches)]
    if not steps:
        return []
    profile = folders.whole / "known.profile.json"
    made = _called("fit", str(folders.known), "-o", str(profile), "--json")
    if made is None:
        return []
    asked = ",".join(map(str, sorted({trial.workers for trial, _ in steps})))
    found = _called("predict", str(profile), "--workers", asked, "--json")
    predictions = {} if found is None else {(one["strategy"], one["workers"]): one for one in found["predictions"]}
    cells = []
    for trial, launches in steps:
        prediction = predictions.get((trial.strategy, trial.workers))
        cell = _cell(folders, trial, launches, known, profile, prediction)
        if cell is not None:
            cells.append(cell)
    return cells


def _cell(  # noqa: PLR0913, PLR0917 - what was held out, and what it is compared with
    folders: Folders,
    trial: Trial,
    launches: list[Launch],
    known: Store,
    profile: Path,
    prediction: dict[str, Any] | None,
) -> ForecastCell | None:
    found = estimate(launches, trial.strategy)
    two = next((one for one in known.trials() if one.strategy == trial.strategy and one.workers > 1), None)
    before = estimate(known.launches(two.id), trial.strategy) if two else None
    if found is None or before is None:
        return None
    step = prediction["step_time_s"] if prediction else {"value": None, "low": None, "high": None}
    refused = prediction["refused"] if prediction else "no model of this strategy"
    stands_on = [*launches, *(each for one in known.trials() for each in known.launches(one.id))]
    ended = [each for each in stands_on if each.status == "ok"]
    worst = {name: max((each.noise.get(name) or 0.0) for each in ended) for name in LIMITS}
    phases = (prediction or {}).get("phases") or {}
    waits = [phases[name]["value_s"] for name in ("comm_exposed", "sync_wait") if phases.get(name)]
    return ForecastCell(
        framework=trial.framework,
        strategy=trial.strategy,
        load=folders.situation.load,
        megabits=folders.situation.megabits,
        share=folders.situation.share,
        hosts=trial.workers,
        measured_s=found.mean,
        low_s=found.low,
        high_s=found.high,
        launches=len(launches),
        foreign_cores=worst["foreign_cpu_cores"],
        steal_share=worst["steal_share"],
        quiet=all_quiet(ended),
        predicted_s=step["value"],
        predicted_low_s=step["low"],
        predicted_high_s=step["high"],
        refused=refused,
        repeated_s=before.mean,
        link=_link_of(profile, trial.strategy),
        extrapolation=((prediction or {}).get("interval_shares") or {}).get("extrapolation"),
        waiting_share=sum(waits) / step["value"] if waits and step["value"] else None,
    )


def _link_of(profile: Path, strategy: str) -> str:
    groups = json.loads(profile.read_text())["groups"]
    sources = [
        each["link"]["source"]
        for group in groups
        for each in group["measured"]
        if each["strategy"] == strategy and each["link"]
    ]
    return sources[0] if sources else "none"


def _called(*arguments: str) -> dict[str, Any] | None:
    """Return what a command of steptime prints as JSON; None if it fails, which it says."""
    done = subprocess.run([STEPTIME, *arguments], check=False, capture_output=True, text=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(f"steptime {arguments[0]}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return found
