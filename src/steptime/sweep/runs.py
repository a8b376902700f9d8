"""The runs of a sweep: those that ended well are kept, and others are run while the budget lets them."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from steptime.errors import StoreError
from steptime.execution.progress import Observer
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader
from steptime.results.store import Store
from steptime.runner.attached_run import OUTPUT, AttachedCommand
from steptime.sweep.early_end import EarlyEnd
from steptime.sweep.plan import STORED, PlannedRun, SweepPlan, plan_of, require_same

_TEXT = "# Made by 'steptime sweep': no study, but the runs of a command.\n"


@dataclass
class SweepRuns:
    """What became of the runs."""

    done: int = 0
    """That ended well, now or before."""
    failed: dict[str, str] = field(default_factory=dict)
    """By setting, how its first run that failed ended."""
    whole: dict[str, str] = field(default_factory=dict)
    """By setting, why a run was not ended early."""
    left: list[PlannedRun] = field(default_factory=list)
    """That the budget left out."""


def sweep_store(plan: SweepPlan, folder: Path) -> Store:
    """Make the results folder of a sweep, or open the one that holds the same sweep.

    Raises StoreError where it holds anything else, with the difference.
    """
    if not Store.exists(folder):
        question = f"How far does {shlex.join(plan.command)} scale?"
        study = {"name": folder.absolute().name, "question": question}
        store = Store.create(folder, study_text=_TEXT, study_json=study)
    else:
        store = Store.open(folder)
        kept = store.get(STORED)
        if kept is None:
            message = f"{folder} holds results that are not those of a sweep; choose another folder with -o"
            raise StoreError(message)
        require_same(plan_of(kept, folder), plan, folder)
    return store


def run_sweep(  # noqa: PLR0913 - what to run, where, within what, and who watches
    plan: SweepPlan,
    store: Store,
    budget_s: float | None,
    observer: Observer,
    *,
    clock: Callable[[], float] = time.monotonic,
    most_steps: int | None = None,
) -> SweepRuns:
    """Run what is missing of a sweep, one run after the other; the folder must be locked.

    Args:
        plan: of the sweep.
        store: its results folder.
        budget_s: seconds that runs of this call may take. The mean of earlier runs of a setting, or else the longest
            run so far, decides whether another fits.
        observer: is shown the runs.
        clock: seconds that never go back.
        most_steps: after which a run is ended early, where that can harm nothing.

    Raises Interrupted, once the run that was interrupted has ended, and LaunchError where a command cannot be started.
    """
    planned, began = plan.runs(store.path), clock()
    lasted: dict[str, list[float]] = {}
    outcome = SweepRuns()
    observer.stage("Running the command", len(planned))
    for run in planned:
        name = run.setting.name
        seconds = _seconds_of(run.folder)
        if seconds is not None:
            lasted.setdefault(name, []).append(seconds)
    for run in planned:
        name = run.setting.name
        what = f"{name}, {run.number} of {plan.repeats}"
        if ended_well(run.folder):
            outcome.done += 1
            observer.finished(what, kept=True)
        elif name not in outcome.failed:
            if budget_s is not None and clock() - began + _estimate_s(lasted, name) > budget_s:
                outcome.left.append(run)
                continue
            observer.working_on(what)
            start = clock()
            problem, whole_because = _run(run, plan.command, store.path, most_steps)
            if whole_because is not None:
                outcome.whole.setdefault(name, whole_because)
            if problem is None:
                outcome.done += 1
                lasted.setdefault(name, []).append(clock() - start)
            else:
                outcome.failed[name] = problem
            observer.finished(what, ok=problem is None)
    return outcome


def _run(
    run: PlannedRun, command: Sequence[str], folder: Path, most_steps: int | None
) -> tuple[str | None, str | None]:
    """Run the command once; return how it failed, or None, and why it was not ended early."""
    PlainFolder(folder).make(run.folder.parent, mode=0o700)
    PlainFolder(folder).remove(run.folder)
    words = run.setting.words(command)
    attached = AttachedCommand(words, run.folder, lines=False, flops=False, quiet=True)
    whole_because = None
    if most_steps is None:
        ended = attached.run()
    else:
        prepared = attached.prepare()
        early = EarlyEnd(prepared, most_steps)
        ended = prepared.run(early.beat)
        prepared.require_whole()
        whole_because = next(iter(prepared.problems), None) or early.reason()
    if ended.code and not ended_well(run.folder):
        problem = f"{shlex.join(words)} ended with exit code {ended.exit_code}; see {run.folder / OUTPUT}"
        return problem, None
    return None, whole_because


def ended_well(folder: Path) -> bool:
    """Whether a folder holds a run whose command ended without a failure."""
    return _seconds_of(folder) is not None


def _seconds_of(folder: Path) -> float | None:
    """Return the seconds of a run that ended well; None of any other."""
    if not Store.exists(folder):
        return None
    kept = Store.open(folder).get("attached")
    header = None if kept is None else AttachedHeader.model_validate(kept)
    if header is None or (header.exit_code != 0 and header.ended_early is None) or header.end_ns is None:
        return None
    return (header.end_ns - header.begin_ns) * 1e-9


def _estimate_s(lasted: dict[str, list[float]], name: str) -> float:
    """Return how long the next run of a setting is expected to take; nothing before any was run."""
    if name in lasted:
        return mean(lasted[name])
    return max((seconds for several in lasted.values() for seconds in several), default=0.0)
