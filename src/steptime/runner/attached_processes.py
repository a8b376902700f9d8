"""Which Python processes a command starts, and what keeps the hook out of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

_PYTHON = re.compile(r"python[\d.]*$")
_OFTEN, _SELDOM = 20, 20
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
NO_LIBRARY = (
    "no process was attached: its Python processes imported no library of training that steptime knows, or ended "
    "before they trained; or their Python is older than 3.8"
)
NO_PYTHON = "no process was attached: no Python process was seen, here; was it too short, or on another host?"


@dataclass
class ProcessWatch:
    """Looks now and then at what a command has started."""

    variable: str
    """That every process has in its environment unless somebody took it away."""
    _looks: int = 0
    _seen: dict[int, tuple[str | None, bool]] = field(default_factory=dict)
    """Of each Python process: the option that isolates it, and whether the variable is there."""

    def look(self, process: int) -> None:
        """Look at the processes below ``process`` and at itself."""
        self._looks += 1
        if self._looks > _OFTEN and self._looks % _SELDOM:
            return
        for each in _below(process):
            words = _words(each)
            if words and _PYTHON.search(Path(words[0]).name):
                self._seen[each] = (isolating_option(words[1:]), self._has_variable(each))

    def _has_variable(self, process: int) -> bool:
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:  # of another user: what it has is not known
            return False
        return any(each.startswith(f"{self.variable}=".encode()) for each in variables)

    def reason(self, words: Sequence[str]) -> str:
        """Return why nothing was attached, by the processes that were seen, else by the words of the command."""
        options = [option for option, _ in self._seen.values() if option]
        options += [option for word, rest in _pythons(words) if (option := isolating_option(rest))]
        if options:
            return ISOLATED.format(command=Path(words[0]).name, option=options[0])
        if (self._seen and not all(there for _, there in self._seen.values())) or _cleans(words):
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


def _below(process: int) -> Iterator[int]:
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
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
