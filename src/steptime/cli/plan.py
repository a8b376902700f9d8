"""From what the user typed to a plan, and a plan in words."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.errors import StudyError
from steptime.frameworks.manifest import Manifest, load_manifests
from steptime.measurements.flags import in_words, varied_options
from steptime.runner.devices import cuda_device_names
from steptime.runner.dry_run import exact_commands
from steptime.runner.expansion import Expansion, expand, skipped_in_words
from steptime.runner.observer import Observer
from steptime.runner.preparation import dataset_facts
from steptime.runner.study_run import Run
from steptime.runner.timed_runs import START_S
from steptime.runner.vocabulary import read
from steptime.study.study import Study
from steptime.study.study_file import study_files
from steptime.study.trial import Trial
from steptime.units import format_seconds, parse_duration


@dataclass(frozen=True)
class Plan:
    """A study, what it expands into, and where its results go."""

    study: Study
    study_text: str
    expansion: Expansion
    manifests: dict[str, Manifest]
    folder: Path
    budget_s: float | None
    command: str
    """What to type to resume."""

    def to_run(self, observer: Observer) -> Run:
        """Return the run that does it."""
        return Run(self.study, self.study_text, self.expansion, self.manifests, self.folder, self.budget_s, observer)

    @property
    def estimate_s(self) -> float:
        """About how long the launches will take, without environments, datasets and checks."""
        per_launch = START_S + self.study.seconds_per_launch
        wanted = len(self.expansion.trials) * self.study.launches.min * per_launch + self.ablation_s
        return wanted if self.budget_s is None else min(wanted, self.budget_s)

    @property
    def ablation_launches(self) -> int:
        """How many launches will take steps apart, over all trials."""
        return len(self.expansion.trials) * self.study.breakdown.launches if self.study.breakdown else 0

    @property
    def ablation_s(self) -> float:
        """About how long these will take, if the budget has room for all of them."""
        return self.ablation_launches * (START_S + self.study.breakdown.seconds) if self.study.breakdown else 0.0


def plan_study(name: str, overrides: Sequence[str], output: Path | None, budget: str | None) -> Plan:
    """Read and expand a study.

    Raises StudyError with all mistakes of the study and its overrides, DatasetError for an unusable folder.
    """
    all_overrides = [*overrides, f"budget={budget}"] if budget else list(overrides)
    study = read(name, all_overrides)
    manifests = load_manifests()
    expansion = expand(study, manifests, dataset_facts(study), len(cuda_device_names()))
    if not expansion.trials:
        reasons = skipped_in_words(expansion.skipped) or ["every combination is excluded"]
        message = [f"{name}: no combination of its axes can be run on this machine", *reasons]
        raise StudyError(message)
    command = ["steptime", "run", name, *overrides]
    command += ["-o", str(output)] if output else []
    command += ["--budget", budget] if budget else []
    return Plan(
        study=study,
        study_text=study_files().get(name, Path(name)).read_text(encoding="utf-8"),
        expansion=expansion,
        manifests=manifests,
        folder=output or Path("steptime-results") / study.name,
        budget_s=parse_duration(study.budget) if study.budget is not None else None,
        command=shlex.join(command),
    )


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what a run would do."""
    trials = plan.expansion.trials
    commands = {trial.id: exact_commands(trial, plan.manifests, plan.study, plan.folder) for trial in trials}
    if as_json:
        from steptime.cli.tables import print_json

        print_json(_as_json(plan, commands))
        return
    from rich.console import Console

    varied = varied_options(trials)
    console = Console(highlight=False)
    console.print(f"[bold]{plan.study.name}[/]: {len(trials)} trials, {plan.study.launches.min} launches or more each")
    for group in dict.fromkeys(trial.group for trial in trials):
        console.print(f"\n{group}", markup=False)
        for trial in trials:
            if trial.group == group:
                console.print(f"  {in_words(trial, varied)}", markup=False)
    for line in skipped_in_words(plan.expansion.skipped):
        console.print(f"skipped: {line}", markup=False)
    if trials:
        console.print(f"\nExact commands of {trials[-1].id}, one per process, in its run folder:", markup=False)
        for command in commands[trials[-1].id]:
            console.print(f"  {command}", markup=False, soft_wrap=True)
    budget = "" if plan.budget_s is None else f", at most the budget of {format_seconds(plan.budget_s)}"
    console.print(
        f"\nabout {format_seconds(plan.estimate_s)} of launches{budget}, besides environments, datasets and checks; "
        "longer where a step takes a tenth of a second or more"
    )
    if plan.ablation_launches:
        console.print(
            f"among them {plan.ablation_launches} launches that take steps apart, about "
            f"{format_seconds(plan.ablation_s)}{' if the budget has room for them' if budget else ''}"
        )
    console.print(f"results go to {plan.folder}", markup=False)


def _as_json(plan: Plan, commands: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "folder": str(plan.folder),
        "estimated_s": plan.estimate_s,
        "ablation_launches": plan.ablation_launches,
        "ablation_estimated_s": plan.ablation_s,
        "budget_s": plan.budget_s,
        "trials": [_trial_as_json(trial, commands[trial.id]) for trial in plan.expansion.trials],
        "skipped": [{"combination": skip.combination, "reason": skip.reason} for skip in plan.expansion.skipped],
    }


def _trial_as_json(trial: Trial, commands: list[str]) -> dict[str, Any]:
    return {**trial.model_dump(mode="json"), "commands": commands}
