"""What an answer begins with: facts that make its numbers other than they seem."""

import signal
from collections.abc import Iterator, Sequence

from steptime.attached.attempts import Attempt
from steptime.attached.form import AttachedFinding, AttachedTraining
from steptime.attached.same_batches import same_batches
from steptime.attached.sampled_lines import at_line
from steptime.attached.separate_models import diverged_weights, separate_models
from steptime.attached.step_parts import KeptSteps, step_length
from steptime.attached.trainings import TrainingAttempts, arrangement
from steptime.results.attached_files import AttachedFiles, AttachedHeader
from steptime.results.attached_lines import FailureLine
from steptime.units import format_count, format_seconds

FIRST = ("failed", "separate_models", "diverged_weights", "same_batches", "trainings", "incomplete_record")
"""Kinds of findings, in the order in which an answer begins with them."""
_SECOND_HAND = {"ChildFailedError", "CalledProcessError", "ProcessExitedException"}
"""Exceptions of a process about the end of another one."""
_NAMED = 4
"""Trainings that a sentence names."""
_BY_SIGNAL = 128
"""What shells add to the number of a signal that ended a command."""


def first_findings(
    header: AttachedHeader, files: AttachedFiles, trainings: Sequence[TrainingAttempts], kept: Sequence[KeptSteps]
) -> Iterator[AttachedFinding]:
    """Yield what comes before all that takes time.

    Args:
        header: what the program that started the command knows.
        files: what its processes wrote.
        trainings: all of them.
        kept: of every attempt; the numbers are of the first.
    """
    if header.exit_code and header.ended_early is None:
        yield _finding("failed", _failure(header.exit_code, files.failures))
    if not kept:
        return
    attempt = kept[0].attempt
    if not header.imported and (separate := separate_models(attempt)) is not None:  # a file may lack who exchanges
        yield _finding("separate_models", separate)
    if (diverged := diverged_weights(attempt)) is not None:
        yield _finding("diverged_weights", diverged)
    if (same := same_batches(attempt)) is not None:
        yield _finding("same_batches", same)
    if len(trainings) > 1:
        yield _finding("trainings", _trainings(trainings, described_trainings(trainings, kept)))
    if header.imported:  # which may have every tenth step alone
        return
    last = any(training.attempts[-1] is attempt for training in trainings)
    for sentence in _incomplete(attempt, ended_well=header.exit_code == 0 and last):
        yield _finding("incomplete_record", sentence)


def described_trainings(trainings: Sequence[TrainingAttempts], kept: Sequence[KeptSteps]) -> list[AttachedTraining]:
    """Return several trainings in short, that of ``kept[0]`` as the one that is shown; none of a single one."""
    if len(trainings) < 2:  # noqa: PLR2004 - the only one is shown whole
        return []
    rows = []
    for training in trainings:
        own = [each for each in kept if any(each.attempt is one for one in training.attempts)]
        longest = max(own, key=lambda each: len(each.attempt.steps))
        rows.append(
            AttachedTraining(
                program=training.program,
                ranks=max(longest.attempt.world, len(longest.attempt.ranks)),
                steps=len(longest.attempt.steps),
                step_s=step_length(longest),
                restarts=len(training.attempts) - 1,
                shown=kept[0] in own,
            )
        )
    return rows


def _finding(kind: str, sentence: str) -> AttachedFinding:
    return AttachedFinding(kind=kind, sentence=sentence, lost_s=None)


def _failure(code: int, failures: Sequence[FailureLine]) -> str:
    how = f"the command failed with exit code {code}"
    if code > _BY_SIGNAL:
        number = code - _BY_SIGNAL
        name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
        how = f"{name} ended the command, or what it started (exit code {code})"
    if not failures:
        return f"{how}; what it wrote itself has the reason"
    first = next((each for each in failures if each.type not in _SECOND_HAND), failures[0])
    return f"{how}: {first.error}{at_line(first.place or None)}"


def _trainings(trainings: Sequence[TrainingAttempts], rows: Sequence[AttachedTraining]) -> str:
    named = [f"{row.program} ({_short(row)})" for row in rows[:_NAMED]]
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    shown = next((f"number {number}, {row.program}" for number, row in enumerate(rows, 1) if row.shown), "one")
    return (
        f"the command trained {len(rows)} times, {arrangement(trainings)}: {', '.join(named)}{more}; "
        f"the step and its parts are of {shown}"
    )


def _short(row: AttachedTraining) -> str:
    length = f" of {format_seconds(row.step_s.value)}" if row.step_s.value else ""
    ranks = f", {row.ranks} ranks" if row.ranks > 1 else ""
    return f"{format_count(row.steps, 'step')}{length}{ranks}"


def _incomplete(attempt: Attempt, *, ended_well: bool) -> Iterator[str]:
    for rank, process in attempt.processes.items():
        who = f"rank {rank}" if len(attempt.ranks) > 1 else "the process"
        missing, kept = process.missing_steps, len(process.steps)
        if missing:
            gone = f"{format_count(missing, 'step')} of {who} {'is' if missing == 1 else 'are'} not on record"
            yield f"{gone}, and {kept:,} {'is' if kept == 1 else 'are'}: means may be of other steps than most"
        if process.end is None and ended_well:
            last = process.steps[-1].number
            yield (
                f"the record of {who} has no end: it reaches step {last}, and what came later is not known (the "
                "process was killed or ended by os._exit, or the file is cut)"
            )
