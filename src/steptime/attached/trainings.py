"""The trainings of one command: several, one after the other or side by side, or one that was started anew."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from steptime.attached.attempts import Attempt
from steptime.results.attached_files import ProcessLines


@dataclass
class TrainingAttempts:
    """The attempts at one training, the earliest first; those behind the first are restarts."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def program(self) -> str:
        """The script with its arguments, as its processes have them."""
        words = next(iter(self.attempts[0].processes.values())).process.program
        return " ".join([PurePath(words[0]).name, *words[1:]]) if words and words[0] else "a program"

    @property
    def processes(self) -> list[ProcessLines]:
        """Of all attempts."""
        return [process for attempt in self.attempts for process in attempt.processes.values()]


def trainings_of(attempts: Sequence[Attempt]) -> list[TrainingAttempts]:
    """Return the trainings that attempts belong to, in the order of their first one.

    An attempt is a restart where its launcher counts it as a further one and started an earlier one as well, or where
    a process has begun anew under its number (``exec``). All else is a training of its own.
    """
    found: list[TrainingAttempts] = []
    for attempt in attempts:
        earlier = [each for each in found if _goes_on(each.attempts[-1], attempt)]
        if earlier:
            earlier[-1].attempts.append(attempt)
        else:
            found.append(TrainingAttempts([attempt]))
    return found


def _goes_on(before: Attempt, attempt: Attempt) -> bool:
    own, former = list(attempt.processes.values()), list(before.processes.values())
    if _begun(own) < _begun(former) or _side_by_side(former, own):
        return False
    if {(each.process.boot, each.process.pid) for each in own} & {(e.process.boot, e.process.pid) for e in former}:
        return True
    parents, earlier = _parents(own), _parents(former)
    of_one_launcher = not parents or not earlier or bool(parents & earlier)
    return attempt.number > before.number and of_one_launcher


def _begun(processes: Sequence[ProcessLines]) -> int:
    return min(each.process.begin_ns for each in processes)


def _parents(processes: Sequence[ProcessLines]) -> set[tuple[str | None, int]]:
    return {(each.process.boot, each.process.parent) for each in processes if each.process.parent is not None}


def _side_by_side(some: Sequence[ProcessLines], others: Sequence[ProcessLines]) -> bool:
    return any(
        one.span_ns[0] < other.span_ns[1] and other.span_ns[0] < one.span_ns[1]
        for one in some
        for other in others
        if one.process.boot == other.process.boot
    )


def arrangement(trainings: Sequence[TrainingAttempts]) -> str:
    """Return how several trainings lie in time, for a sentence."""
    pairs = [
        _side_by_side(one.processes, other.processes)
        for index, one in enumerate(trainings)
        for other in trainings[index + 1 :]
    ]
    return "side by side" if all(pairs) else "partly side by side" if any(pairs) else "one after the other"
