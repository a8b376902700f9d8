"""What keeps the hook out of the Python processes that a command starts."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

_PYTHON = re.compile(r"python[\d.]*$")
_FIRST_LOOKS, _BEATS_BETWEEN = 20, 20
"""Looks at each beat first, and then at every so many."""
_WITH_VALUE = "cmWXQ"
"""Options of Python behind which others end, or that take a value."""

ISOLATED = (
    "no process was attached: {command} starts Python with {option}, which ignores PYTHONPATH, by which steptime comes "
    "in. Start it without {option}"
)
CLEANED = (
    "no process was attached: the environment was cleaned on the way to Python (env -i, srun --export=NONE, sudo or a "
    "container): let PYTHONPATH and the variables STEPTIME_ATTACH* through"
)
REPLACED = (
    "no process was attached: {where}PYTHONPATH is {value!r} where Python starts, without the folder of steptime that "
    "the command was given in it. Keep what is there: PYTHONPATH={value}:$PYTHONPATH"
)
EMPTIED = (
    "no process was attached: {where}PYTHONPATH is empty or not set where Python starts (env -u PYTHONPATH, unset), so "
    "that it lacks the folder of steptime that the command was given in it: let it through"
)
NO_LIBRARY = (
    "no process was attached: its Python processes imported no library of training that steptime knows, or ended "
    "before they trained; or their Python is older than 3.8"
)
NO_PYTHON = "no process was attached: no Python process was seen, here; was it too short, or on another host?"


_SETS_PATH = re.compile(r"^\s*(?:export\s+|env\s+)?PYTHONPATH=(?!.*PYTHONPATH)", re.MULTILINE)
_MOST_BYTES = 1 << 20
"""Of a script of the shell that is read."""


class PythonStart(NamedTuple):
    """How a Python process was started."""

    option: str | None
    """That isolates it."""
    has_variable: bool
    path: str | None
    """Its PYTHONPATH if that lacks the hook, else None."""


@dataclass
class ProcessWatch:
    """Looks now and then at what a command has started."""

    variable: str
    """That every process has in its environment unless somebody took it away."""
    hook: str
    """The folder that PYTHONPATH has."""
    _looks: int = 0
    _seen: dict[int, PythonStart] = field(default_factory=dict)
    """The Python processes."""

    def look(self, process: int) -> None:
        """Look at the processes below ``process`` and at itself."""
        self._looks += 1
        if self._looks > _FIRST_LOOKS and self._looks % _BEATS_BETWEEN:
            return
        for each in processes_below(process):
            words = _words(each)
            if words and _PYTHON.search(Path(words[0]).name):
                variables = variables_of(each)
                path = variables.get("PYTHONPATH", "")
                lacks = self.variable in variables and self.hook not in path.split(os.pathsep)
                option = isolating_option(words[1:])
                self._seen[each] = PythonStart(option, self.variable in variables, path if lacks else None)

    def replaced_path(self, words: Sequence[str]) -> str | None:
        """Return that PYTHONPATH was set anew, and where the command ``words`` does that; None if it was not seen."""
        path = next((each.path for each in self._seen.values() if each.path is not None), None)
        if path is None:
            return None
        return (REPLACED if path else EMPTIED).format(where=_where_set(words), value=path)

    def reason(self, words: Sequence[str]) -> str:
        """Return why nothing was attached, by the processes that were seen, else by the words of the command."""
        options = [each.option for each in self._seen.values() if each.option]
        options += [option for word, rest in _pythons(words) if (option := isolating_option(rest))]
        if options:
            return ISOLATED.format(command=Path(words[0]).name, option=options[0])
        if (replaced := self.replaced_path(words)) is not None:
            return replaced
        if (self._seen and not all(each.has_variable for each in self._seen.values())) or _cleans(words):
            return CLEANED
        return NO_LIBRARY if self._seen or any(_pythons(words)) else NO_PYTHON


def isolating_option(arguments: Sequence[str]) -> str | None:
    """Return the option of Python that makes it ignore PYTHONPATH: ``-I`` or ``-E``; None without any."""
    for word in arguments:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        for letter in word[1:]:
            if letter in "IE":
                return f"-{letter}"
            if letter in _WITH_VALUE:
                return None
    return None


def _pythons(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    for index, word in enumerate(words):
        if _PYTHON.search(Path(word).name):
            yield word, words[index + 1 :]


def _cleans(words: Sequence[str]) -> bool:
    emptied = any(Path(a).name == "env" and b in {"-i", "-", "--ignore-environment"} for a, b in pairwise(words))
    return emptied or any(word in {"--export=NONE", "--export=NIL"} for word in words)


def _where_set(words: Sequence[str]) -> str:
    """Return the line of a shell script among ``words`` that sets PYTHONPATH anew, for the begin of a sentence."""
    for word in words:
        path = Path(word)
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            text = path.read_bytes().decode(errors="replace")
            if (match := _SETS_PATH.search(text)) is not None:
                line = text.count("\n", 0, match.start() + len(match[0])) + 1
                return f"{path.name}, line {line}: "
    return ""


def variables_of(process: int) -> dict[str, str]:
    """Return the variables with which a process was started; none of another user's."""
    try:
        variables = psutil.Process(process).environ()
    except psutil.Error:
        return {}
    return {name: value.encode(errors="surrogateescape").decode(errors="replace") for name, value in variables.items()}


def processes_below(process: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    waiting = [process]
    while waiting:
        each = waiting.pop()
        yield each
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                waiting += map(int, task.read_text().split())
            except OSError:  # it has ended
                continue


def _words(process: int) -> list[str]:
    try:
        return psutil.Process(process).cmdline()
    except psutil.Error:
        return []
