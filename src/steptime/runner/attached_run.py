"""The run of a user's own command with the hook of ``steptime.attach`` in its Python processes.

Which Python processes a command starts, and what keeps the hook out of them.
"""

import os
import random
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from steptime.analysis.compared.sides import ComparedSide, attached_sides
from steptime.attach.folder import environment, write_hook
from steptime.attached.user_command import script_of
from steptime.errors import LaunchError, StoreError
from steptime.file_name import as_file_name
from steptime.foreign_writers import require_folder_for_launches
from steptime.launchers.own_command import CommandEnd, require_program, run_command
from steptime.plain_file import PlainFolder
from steptime.process_identity import ProcessIdentity
from steptime.results.attached_files import FAILED, RECORDS, read_latest
from steptime.results.machine import fingerprint
from steptime.results.noise import difference, flags, snapshot
from steptime.results.store import Store
from steptime.runner.host import usable_cores
from steptime.runner.progress import Observer

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
REPLACED = (
    "no process was attached: {where}PYTHONPATH is {value!r} where Python starts, without the folder of steptime that "
    "the command was given in it. Keep what is there: PYTHONPATH={value}:$PYTHONPATH"
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
        if self._looks > _OFTEN and self._looks % _SELDOM:
            return
        for each in _below(process):
            words = _words(each)
            if words and _PYTHON.search(Path(words[0]).name):
                variables = _environment(each)
                path = variables.get("PYTHONPATH", "")
                lacks = self.variable in variables and self.hook not in path.split(os.pathsep)
                option = isolating_option(words[1:])
                self._seen[each] = PythonStart(option, self.variable in variables, path if lacks else None)

    def replaced_path(self, words: Sequence[str]) -> str | None:
        """Return that PYTHONPATH was set anew, and where the command ``words`` does that; None if it was not seen."""
        path = next((each.path for each in self._seen.values() if each.path is not None), None)
        if path is None:
            return None
        return REPLACED.format(where=_where_set(words), value=path)

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


def _environment(process: int) -> dict[str, str]:
    """Return the variables with which a process was started; none of another user's."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(each.partition("=")[::2] for each in variables)


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


OUTPUT = "output.txt"
HOOK = "hook"
"""The folder with the hook, in a results folder; it is removed when the command has ended."""
_QUESTION = "Where does the time of {command} go?"
_TEXT = "# Made by 'steptime attach': no study, but the run of a command.\n"
_BEAT_S = 0.5
_THROWN_AWAY = "thrown-away"
"""The working directory of a throw-away run, in its results folder."""


@dataclass(frozen=True)
class AttachedCommand:
    """A command and the results folder of its run, which is made for it."""

    words: Sequence[str]
    folder: Path
    lines: bool | None
    """Whether the lines of the script are sampled; None if the hook decides."""
    flops: bool
    ablate: bool = False
    """Whether it is a throw-away run, which works in a folder of its own."""
    quiet: bool = False
    """Whether what it writes goes to a file of its results folder."""

    def run(self, beat: Callable[[], None]) -> CommandEnd:
        """Run the command to its end; ``beat`` is called twice a second meanwhile.

        Raises StoreError where the folder holds something or cannot be used, LaunchError where the command cannot be
        started.
        """
        require_program(self.words[0])
        require_folder_for_launches(self.folder)
        folder = PlainFolder(self.folder)
        command = shlex.join(self.words)
        store = Store.create(
            self.folder,
            study_text=_TEXT,
            study_json={"name": self.folder.name, "question": _QUESTION.format(command=command)},
        )
        with store.lock():
            store.set_machine(fingerprint(alone=True))
            folder.make(self.folder / RECORDS, mode=0o700)
            folder.make(self.folder / HOOK, mode=0o700)
            hook = write_hook(self.folder / HOOK)
            variables = environment(hook, self.folder / RECORDS, lines=self.lines, flops=self.flops, ablate=self.ablate)
            header = self._header()
            store.put("attached", header)
            watch = ProcessWatch("STEPTIME_ATTACH", str(hook.resolve()))

            def observe(process: int) -> None:
                watch.look(process)
                beat()

            before = snapshot()
            words: Sequence[str] = self.words
            if self.ablate:
                words = self._elsewhere(folder)
                variables["PYTHONPATH"] += os.pathsep + str(Path.cwd())
            with self._output(folder) as output:
                ended = run_command(words, {**os.environ, **variables}, observe, _BEAT_S, output)
            said: dict[str, Any] = {"end_ns": round(ended.ended_s * 1e9), "exit_code": ended.exit_code}
            noise = difference(before, snapshot(), self._processor_s(folder, header["boot"]))
            said |= {"noise": noise, "flags": flags(noise, workers=1, cores=len(usable_cores()), threads=1)}
            store.put("attached", {**header, **said, "not_attached": self._why_nothing(watch)})
            folder.remove(self.folder / HOOK)
        return ended

    @contextmanager
    def _output(self, folder: PlainFolder) -> Iterator[int | None]:
        """Yield the open file that takes the output; None if the command has the streams of this process."""
        if not self.quiet:
            yield None
            return
        output = folder.open(self.folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            yield output
        finally:
            os.close(output)

    def _elsewhere(self, folder: PlainFolder) -> list[str]:
        """Return the command as it works in a folder of its own, with the paths that it names from here."""
        work = self.folder / _THROWN_AWAY
        folder.make(work, mode=0o700)
        named = [str(Path(word).absolute()) if "=" not in word and Path(word).exists() else word for word in self.words]
        program = named[0] if "/" in self.words[0] else self.words[0]
        return ["env", "-C", str(work.absolute()), program, *named[1:]]

    def _header(self) -> dict[str, Any]:
        monotonic = time.monotonic_ns()
        return {
            "command": list(self.words),
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "boot": ProcessIdentity.own().boot,
            "begin_ns": monotonic,
            "wall_minus_monotonic_ns": time.time_ns() - monotonic,
        }

    def _processor_s(self, folder: PlainFolder, boot: str) -> float:
        """Return the processor seconds of the processes here that ended: a daemon may have started them, as srun does.

        Those do not descend from this process.
        """
        try:
            ended = [each.end for each in read_latest(folder, self.folder / RECORDS) if each.process.boot == boot]
        except (StoreError, OSError):  # the answer names what is wrong with the records
            return 0.0
        return sum(end.processor_ns for end in ended if end is not None) * 1e-9

    def _why_nothing(self, watch: ProcessWatch) -> str | None:
        """Return why no process wrote anything; None if some did."""
        written = [each for each in (self.folder / RECORDS).iterdir() if not each.name.startswith(FAILED)]
        if any(each.suffix == ".jsonl" for each in written):
            return None
        return watch.replaced_path(self.words) if written else watch.reason(self.words)


def free_folder(words: Sequence[str]) -> Path:
    """Return where the run of a command goes that names no folder: after its script, and a number if that is taken."""
    script = Path(script_of(words)[1]).name.removesuffix(".py")
    name = f"attach-{as_file_name(script, 'command')}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(path for each in names if not (path := Path("steptime-results") / each).exists())


def run_in_turns(
    commands: Sequence[Sequence[str]], folder: Path, runs: int, observer: Observer
) -> tuple[ComparedSide, ComparedSide]:
    """Run two commands in turns, which of them first by chance, and return the sides of a comparison that they make.

    Runs that ended are kept, so that a series goes on where it was stopped; what they write goes to ``output.txt`` in
    their folders.

    Args:
        commands: that of the baseline, and that of what is compared with it.
        folder: of all runs, in ``before`` and ``after``.
        runs: of each command.
        observer: is shown the runs.

    Raises LaunchError where a command fails, and StoreError where no run of a command trained a step.
    """
    names = ("before", "after")
    observer.stage("Running both scripts in turns", 2 * runs)
    for number in range(1, runs + 1):
        pair = list(zip(names, commands, strict=True))
        random.Random(number).shuffle(pair)  # noqa: S311 - an order, no secret
        for name, words in pair:
            place, what = folder / name / f"{number}", f"{name} {number} of {runs}"
            kept = Store.exists(place) and _ended_well(Store.open(place))
            observer.working_on(what)
            if not kept:
                PlainFolder(folder).remove(place)
                ended = AttachedCommand(words, place, lines=False, flops=False, quiet=True).run(lambda: None)
                if ended.code:
                    message = f"{shlex.join(words)} ended with exit code {ended.exit_code}; see {place / OUTPUT}"
                    raise LaunchError(message)
            observer.finished(what, kept=kept)
    stores = [[Store.open(folder / name / f"{number}") for number in range(1, runs + 1)] for name in names]
    return attached_sides(stores, names, [str(folder / name) for name in names])


def _ended_well(store: Store) -> bool:
    found = store.attached()
    return found is not None and found[0].exit_code == 0
