"""Lines of a script, as samples show them: which one is at work in a part of a step, and how a sentence names it."""

import re
from collections.abc import Collection, Iterable, Mapping

from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import SampledLines

_LINE = re.compile(r"(?P<own>.*:\d+ \S+?)(, (?P<library>\S+): (?P<function>\S+))?", re.DOTALL)
"""A sampled line: of the script, and the function of a library that is at work in it."""
_CALLS = {"__call__", "__next__", "__iter__"}
"""Functions of libraries, of which a name shows nothing of what they do."""
_LEAST_TELLING = 0.1
"""Of the time of all samples of a place, that a line which shows more has at least."""


def most_seen_line(
    processes: Iterable[ProcessLines], places: Iterable[str], steps: Collection[int] | None = None
) -> str | None:
    """Return the line of the script in which most samples of some places were taken; None without any.

    It goes with the function of a library that most of these show: ``train.py:62 main, transformers: training_step``.
    A line that only shows that a library was called, as the head of a loop over its loader does, gives way to one of
    what that ran.

    Args:
        processes: whose samples they are.
        places: parts of steps.
        steps: of samples that are taken over a stretch of steps, those count that have one of these; all if None.
    """
    counts: dict[str, dict[str, int]] = {}
    wanted = set(places)
    for process in processes:
        for sampled in process.sampled:
            if steps is not None and not _has_one(sampled, steps):
                continue
            for place in wanted & sampled.places.keys():
                for line, samples in sampled.places[place].items():
                    known = _LINE.fullmatch(line)
                    of_line = counts.setdefault(known["own"] if known else line, {})
                    # Samples are taken ever more seldom.
                    of_line[line] = of_line.get(line, 0) + samples * sampled.every_ns
    if not counts:
        return None
    most = sum(sum(of_line.values()) for of_line in counts.values())
    telling = [each for each in counts.values() if not _is_call(each) and sum(each.values()) >= _LEAST_TELLING * most]
    functions = max(telling or counts.values(), key=lambda of_line: sum(of_line.values()))
    return max(functions, key=functions.__getitem__)


def _has_one(sampled: SampledLines, steps: Collection[int]) -> bool:
    if sampled.first is None or sampled.last is None:
        return True
    return any(sampled.first <= step <= sampled.last for step in steps)


def _is_call(of_line: Mapping[str, int]) -> bool:
    """Return whether samples of a line mostly show no more than that a library was called."""
    match = _LINE.fullmatch(max(of_line, key=of_line.__getitem__))
    return match is not None and match["function"] in _CALLS


def library_of(line: str | None) -> str:
    """Return the library whose function is at work in a line of the script; "" if it is the script's own."""
    match = _LINE.fullmatch(line or "")
    return (match["library"] or "") if match else ""


def whose_code(line: str | None) -> str:
    """Return whose code is at work in a line, for a sentence; without a line that is not known."""
    return f"work of {library}" if (library := library_of(line)) else "code of the script" if line else "code"


def without_folders(line: str) -> str:
    """Return a line of the script, ``/a/b/train.py:62 main``, without the folders of its file."""
    return line.rpartition("/")[2]


def at_line(line: str | None) -> str:
    """Return a line of the script in brackets, for the end of a sentence; nothing if no line is known."""
    return f" ({without_folders(line)})" if line else ""
