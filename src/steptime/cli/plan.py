"""The plan of a run as a section or JSON, for ``steptime run --dry-run``."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from steptime.analysis.flags import Varied, varied_names, varied_options
from steptime.cli.section_output import show_sections
from steptime.cli.streams import print_json
from steptime.document.number_format import UNKNOWN
from steptime.document.section import Column, Part, Section, SectionTable, Sentences, TableRow, Verbatim, cells
from steptime.expansion.expansion import skipped_in_words
from steptime.runner.budget import proposed
from steptime.runner.plan import StudyPlan, missing_in_words
from steptime.runner.run_kinds import RUN_KINDS, TRAININGS, without_breakdown
from steptime.study.environment_variables import passed, stripped
from steptime.study.study import further_settings
from steptime.study.trial import Trial
from steptime.units import format_count, format_seconds


def print_plan(plan: StudyPlan, form: str, html: Path | None) -> None:
    """Print what a run would do."""
    if form == "json":
        print_json(_as_json(plan))
    show_sections([_section(plan)], form, html, f"Plan of {plan.study.name}")


def _section(plan: StudyPlan) -> Section:
    """Return about how long all takes, the trials of each group, their conditions, and the commands of one of them."""
    trials = plan.expansion.trials
    missing = {trial.id: plan.missing_requirement(trial) for trial in trials}
    parts: list[Part] = [Section("Time", [Sentences([*_times(plan), f"results go to {plan.folder}"])])]
    parts += [
        Section(group, [_trial_table(plan, [trial for trial in trials if trial.group == group])])
        for group in dict.fromkeys(trial.group for trial in trials)
    ]
    conditions = [*missing_in_words(trials, missing), *_conditions(plan)]
    parts += [Section("Conditions", [Sentences(conditions)])] if conditions else []
    if trials:
        shown = next((trial for trial in reversed(trials) if not missing[trial.id]), trials[-1])
        title = f"Exact commands of {shown.id}, one per process, in its run folder"
        parts.append(Section(title, [Verbatim("\n".join(plan.commands(shown, shared=True)), only=None)]))
    return Section(f"{plan.study.name}: {_launches_in_words(plan)}", parts)


def _trial_table(plan: StudyPlan, trials: Sequence[Trial]) -> SectionTable:
    """Return trials of a group with what the study varies; a terminal shows a line for each."""
    varied = varied_options(plan.expansion.trials)
    helpers = len({trial.loader_processes for trial in plan.expansion.trials}) > 1
    columns: dict[str, Callable[[Trial], str]] = {
        "implementation": lambda trial: plan.manifests[trial.framework].strategies[trial.strategy].implementation,
        "tier": partial(_tier, plan=plan),
        "training": _training,
        "trial": lambda trial: trial.id,
    }
    shown = {title: value for title, value in columns.items() if any(value(trial) for trial in trials)}
    rows = []
    for trial in trials:
        name = _name(trial, varied, helpers=helpers)
        implementation = columns["implementation"](trial)
        texts = [f"{name} ({implementation})" if implementation else name, _tier(trial, plan), _training(trial)]
        values = [value(trial) or UNKNOWN for value in shown.values()]
        rows.append(TableRow(name, cells(*values), sentence=", ".join(filter(None, texts))))
    return SectionTable([Column(title, "text") for title in shown], rows, label="Planned trials")


def _times(plan: StudyPlan) -> Iterator[str]:
    """Say about how long the launches take, what the budget leaves out of them, and what that rests on."""
    wanted, budget_s = plan.wanted_s, plan.budget_s
    guesses = []
    if plan.timed:
        guesses.append("longer where a step takes a tenth of a second or more")
    trainings, training_s = plan.launches(TRAININGS)
    if trainings:
        per_training = format_seconds(training_s / trainings)
        guesses.append(f"a guess of {per_training} for each of {trainings} trainings, until the first has ended")
    uncounted = "not counting environments, datasets and checks"
    yield f"about {format_seconds(wanted)} of launches, {uncounted}; {'; '.join(guesses)}"
    if budget_s is not None:
        ends = "which may end them"
        if wanted > budget_s:
            ends = f"which ends them ({proposed(2.0 * wanted)} leaves as much again for checks)"
        yield f"a run has {format_seconds(budget_s)} for checks, launches and report, {ends}; rerun to continue"
    for launch, seconds in plan.searches().items():
        yield (
            f"of each launch of {launch} about {format_seconds(seconds)} in which cuDNN searches the quickest kernels, "
            "which checks and replays leave out"
        )
    for kind in RUN_KINDS:
        launches, seconds = plan.launches(kind)
        if launches and not kind.is_result:
            if_affordable = " if the budget allows them" if budget_s is not None else ""
            yield f"among them {launches} launches that {kind.purpose}, about {format_seconds(seconds)}{if_affordable}"


def _name(trial: Trial, varied: Varied, *, helpers: bool) -> str:
    """Return framework and strategy with its servers, the options that vary, and, where asked, the loader's helpers."""
    names = varied_names(trial, varied)
    parts = [
        trial.framework,
        trial.strategy,
        *(f"{name}={value}" for name, value in further_settings(partial(getattr, trial)).items()),
        *(f"{name}={value}" for name, value in trial.options.items() if name in names),
        *(f"{name}={value}" for name, value in trial.environment_variables.items() if name in names),
    ]
    if helpers and trial.dataset is not None:
        parts.append(f"loader_processes={trial.loader_processes}")
    if trial.servers:
        parts.append(f"servers={trial.servers}")
    if trial.server_placement == "colocated":
        parts.append("colocated")
    return " ".join(parts)


def _training(trial: Trial) -> str:
    """Say by what a trial is trained; nothing of one whose steps are timed."""
    if trial.training is None:
        return ""
    found = trial.training
    parts = [trial.optimizer.name, found.rate_schedule.in_words, f"{found.epochs} epochs"]
    parts += [f"{found.scaling_rule} scaling"] if found.scaling_rule != "none" else []
    parts += [f"warm-up {found.warmup_epochs}"] if found.warmup_epochs else []
    return ", ".join(parts)


def _tier(trial: Trial, plan: StudyPlan) -> str:
    """Return in which tier a trial is and what that changes; nothing where the study has the documented tier only."""
    if plan.study.tuning == ["documented"] and trial.tuning == "documented":
        return ""
    if trial.tuning == "documented":
        unchanged = "tuned" in plan.expansion.tiers[trial.id]
        return "documented=tuned (tuned changes nothing)" if unchanged else "documented"
    return "tuned: " + ", ".join(f"{name}={trial.options[name]}" for name in trial.documented_options)


def _conditions(plan: StudyPlan) -> Iterator[str]:
    """Say what is left out, who can reach the launches, and which programs of others run."""
    for line in skipped_in_words(plan.expansion.skipped):
        yield f"skipped: {line}"
    yield from plan.expansion.without_effect
    yield from without_breakdown(plan.study, plan.expansion.trials)
    for name, contents in plan.contents.items():
        yield contents.in_words(name)
    for launcher, isolation in plan.isolation().items():
        kept = f"private ({isolation})" if isolation else "open to other users of this machine; see 'steptime doctor'"
        yield f"sockets of the launcher {launcher}: {kept}"
    yield from plan.devices_in_words()
    yield from plan.variables_in_words()
    for program in plan.foreign_programs():
        yield f"runs {program}"


def _launches(plan: StudyPlan) -> dict[str, float]:
    """Return the number of launches of each kind, and the guess of their seconds."""
    found: dict[str, float] = {}
    for kind in RUN_KINDS:
        found[f"{kind.name}_launches"], found[f"{kind.name}_estimated_s"] = plan.launches(kind)
    return found


def _as_json(plan: StudyPlan) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "folder": str(plan.folder),
        "estimated_s": plan.estimate_s,
        **_launches(plan),
        "budget_s": plan.budget_s,
        "kernel_search_s": plan.searches(),
        "datasets": {name: contents.as_json() for name, contents in plan.contents.items()},
        "isolation": plan.isolation(),
        "foreign_programs": plan.foreign_programs(),
        "variables_of_shell": {"stripped": stripped(os.environ), "passed": passed(os.environ)},
        "trials": [
            {
                **trial.model_dump(mode="json"),
                "tiers": plan.expansion.tiers[trial.id],
                "commands": plan.commands(trial),
                "missing_requirement": plan.missing_requirement(trial),
            }
            for trial in plan.expansion.trials
        ],
        "skipped": [{"combination": skip.combination, "reason": skip.reason} for skip in plan.expansion.skipped],
        "without_effect": plan.expansion.without_effect,
    }


def _launches_in_words(plan: StudyPlan) -> str:
    """Say how many trials are timed and trained, and how often."""
    train, timed = plan.study.training, len(plan.timed)
    least = format_count(plan.study.launches.min, "launch", "launches")
    parts = [f"{format_count(timed, 'trial')}, {least} or more each"] if timed or train is None else []
    if train is not None:
        each = f"a training of {train.epochs} epochs at most for each of {train.seeds} seeds"
        parts.append(f"{format_count(len(plan.expansion.trials) - timed, 'trial')}, {each}")
    return "; ".join(parts)
