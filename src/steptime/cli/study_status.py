"""How far a study is: its latest run, the launches of each trial, and why trials stopped."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steptime.analysis.trial_progress import progress_of_trials
from steptime.cli.arguments import open_results
from steptime.cli.section_output import show_sections
from steptime.cli.streams import print_json, warn
from steptime.document.section import Cell, Column, Part, Section, SectionTable, Sentences, TableRow
from steptime.results.progress import RunProgress, RunState, last_line_age_s, last_sign_age_s, run_progress, run_state
from steptime.results.store import Store
from steptime.units import format_seconds, time_left

_MOST_NAMED = 4
"""Trials with the same reason; of more, only the number is said."""


_COLUMNS = {
    "tuning": "tier",
    "ok": "ok",
    "failed": "failed",
    "ablations_ok": "broken down",
    "ablations_failed": "failed",
    "trainings_ok": "trainings",
    "trainings_failed": "failed",
    "epochs": "epochs",
    "steps": "steps",
    "set_aside": "set aside",
}
"""Titles of what a table may show of a trial, by key."""


def show_status(folder: Path, form: str, html: Path | None) -> None:
    """Show what a study is doing; raises StoreError where the folder cannot be read or has no launch."""
    store = open_results(folder)
    run = run_progress(folder)
    state = run_state(folder, run) if run else "ended"
    progress = progress_of_trials(store)
    if form == "json":
        print_json([{**row, "run": _run_json(run, state, folder) if run else None} for row in progress])
    study = f"Study {store.study_json.get('name', folder.name)}"
    lines = _run_lines(run, state, folder) if run else [study]
    show_sections([_section(lines, progress, _columns(store, progress))], form, html, study)
    warn(store.problems)
    store.require_launches()


def _columns(store: Store, progress: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the titles of the columns that hold something in this study."""
    trials = store.trials()
    trained = any(trial.training for trial in trials)
    timed = not trained or any(not trial.training for trial in trials)
    shown = {
        "tuning": any(row["tuning"] == "tuned" for row in progress),
        "ok": timed,
        "steps": timed,
        "ablations_ok": any(row["ablations_ok"] for row in progress) or bool(store.study_json.get("breakdown")),
        "trainings_ok": trained,
        "epochs": trained,
    }
    return {
        key: title
        for key, title in _COLUMNS.items()
        if (shown[key] if key in shown else any(row[key] for row in progress))
    }


def _section(lines: Sequence[str], progress: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Section:
    """Return what a run does, the launches of each trial, and why trials stopped.

    Args:
        lines: of the run; the first is the title.
        progress: a row for each trial.
        columns: titles of what is shown of a row, by its key.
    """
    rows = [
        TableRow(
            row["trial"],
            [Cell(str(len(row[key]) if isinstance(row[key], list) else row[key])) for key in columns],
        )
        for row in progress
    ]
    shown = [Column(title, "text" if key == "tuning" else "number") for key, title in columns.items()]
    table: list[Part] = []
    if rows:
        table = [SectionTable(shown, rows, "trial", ("wide", "stacked", "split"), label="Launches")]
    else:
        table = [Sentences(["No trial is stored yet."])]
    return Section(lines[0], [Sentences(lines[1:]), *table, Sentences(_reasons_in_words(progress))])


def _reasons_in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why trials stopped or have no launch: a line for each reason, with the trials that it is of."""
    trials: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            trials.setdefault(row["reason"], []).append(row["trial"])
    return [f"{_trials_in_words(ids, len(rows))}: {reason}" for reason, ids in trials.items()]


def _trials_in_words(ids: Sequence[str], count: int) -> str:
    if len(ids) == 1:
        return ids[0]
    some = "all " if len(ids) == count else ""
    names = f" ({', '.join(ids)})" if len(ids) <= _MOST_NAMED else ""
    return f"{some}{len(ids)} trials{names}"


def _run_lines(found: RunProgress, state: RunState, folder: Path) -> list[str]:
    """Return what the latest run of a folder does or how it ended, how much is left, and how old its last line is."""
    try:
        since_s = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(found.at)).total_seconds())
    except (ValueError, TypeError):
        since_s = 0.0
    who = found.who
    doing = found.item or found.stage
    lines = {
        "ended": [f"not running: {found.ended}, {format_seconds(since_s)} ago ({who})"],
        "killed": [f"not running: {found.killed_in_words}"],
        "running": [f"running now: {doing}, for {format_seconds(since_s)} ({who})"],
        "silent": [f"no heartbeat for {format_seconds(last_sign_age_s(folder) or 0.0)} from {who}, at: {doing}"],
    }[state]
    if state == "silent":
        again = f"; scontrol requeue {found.job} does so in its job, if Slurm still has that" if found.job else ""
        lines.append(f"if {found.host} is dead or cut off: rerun steptime run to continue, on any host{again}")
    if found.stage and found.ended is None:
        total = "" if found.least is None else f" of {found.least}"
        total += f" to {found.most}" if found.most is not None and found.most != found.least else ""
        left = ""
        if found.most_s is not None and state == "running":
            ends = [None if each is None else max(0.0, each - since_s) for each in (found.least_s, found.most_s)]
            left = f", {time_left(*ends)}"
        lines.append(f"{found.stage}: {found.done}{total} done{left}")
    age = last_line_age_s(folder)
    if age is not None:
        lines.append(f"last line: {format_seconds(age)} ago")
    return lines


def _run_json(found: RunProgress, state: RunState, folder: Path) -> dict[str, Any]:
    """Return the same for programs; ``silent_s`` are the seconds since the run's last heartbeat."""
    who = {"host": found.host, "pid": found.pid, "job": found.job}
    doing = {"stage": found.stage, "item": found.item, "ended": found.ended}
    return {"state": state, **who, **doing, "silent_s": last_sign_age_s(folder)}
