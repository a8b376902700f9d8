"""The run of a user's own command with the hook of ``steptime.attach`` in its Python processes."""

import os
import random
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from steptime.attach.folder import environment, write_hook
from steptime.errors import LaunchError
from steptime.file_name import as_file_name
from steptime.foreign_writers import require_folder_for_launches
from steptime.launchers.own_command import CommandEnd, require_program, run_command
from steptime.measurements.attached.process_files import RECORDS, read_latest
from steptime.measurements.compared.attached_runs import attached_sides
from steptime.measurements.compared.sides import ComparedSide
from steptime.measurements.machine import fingerprint
from steptime.measurements.noise import difference, flags, snapshot
from steptime.measurements.store import Store
from steptime.plain_file import PlainFolder
from steptime.process_identity import ProcessIdentity
from steptime.runner.attached_processes import ProcessWatch
from steptime.runner.host import usable_cores
from steptime.runner.progress import Observer

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
            watch = ProcessWatch("STEPTIME_ATTACH")

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
        ended = (each.end for each in read_latest(folder, self.folder / RECORDS) if each.process.boot == boot)
        return sum(end.processor_ns for end in ended if end is not None) * 1e-9

    def _why_nothing(self, watch: ProcessWatch) -> str | None:
        """Return why no process wrote anything; None if some did."""
        return None if any((self.folder / RECORDS).iterdir()) else watch.reason(self.words)


def free_folder(words: Sequence[str]) -> Path:
    """Return where the run of a command goes that names no folder: after its script, and a number if that is taken."""
    script = next((word for word in words if word.endswith(".py")), words[0])
    name = f"attach-{as_file_name(Path(script).stem, 'command')}"
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
