"""The run of a user's own command with the hook of ``steptime.attach`` in its Python processes."""

import json
import os
import random
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.attach.folder import environment, write_hook
from steptime.attach.record_file import boot_id
from steptime.errors import LaunchError, StoreError, error_line
from steptime.execution.gpu_watch import GpuWatch
from steptime.foreign_writers import require_folder_for_launches
from steptime.interruption import Interrupted, shielded
from steptime.launchers.own_command import CommandEnd, run_command
from steptime.plain_file import PlainFolder, cannot_write, make_exclusively
from steptime.results.gpu_windows import RECORDS, WRITTEN
from steptime.results.machine import fingerprint
from steptime.results.noise import Snapshot, difference, flags, snapshot
from steptime.runner.attached_folder import make_results, member_file
from steptime.runner.job_member import JobMember, job_member
from steptime.runner.process_watch import ProcessWatch, processes_below, variables_of

if TYPE_CHECKING:
    from steptime.analysis.compared.sides import ComparedSide
    from steptime.execution.progress import Observer
    from steptime.results.store import Store

OUTPUT = "output.txt"
HOOK = "hook"
"""The folder with the hook, in a results folder; it is removed when the command has ended."""
Note = Callable[[Mapping[str, Any]], None]
_BEAT_S = 0.5
_FOLDER = "STEPTIME_ATTACH"
"""The variable that names the folder of the records to the processes of a command."""
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

    def run(self) -> CommandEnd:
        """Run the command to its end, measured; raises StoreError where it cannot be, LaunchError where not started.

        Raises Interrupted where a signal came meanwhile (``require_whole``).
        """
        prepared = self.prepare()
        ended = prepared.run(lambda _: None)
        prepared.require_whole()
        if prepared.problems:
            raise StoreError(prepared.problems[0])
        return ended

    def prepare(self) -> "PreparedCommand":
        """Make the results folder with the hook in it; the command is not started yet.

        Raises StoreError where the folder holds something or cannot be used.
        """
        folder = PlainFolder(self.folder)
        with ExitStack() as stack:
            if not self.folder.exists():
                make_exclusively(self.folder)
                stack.callback(shutil.rmtree, self.folder, ignore_errors=True)  # what is half made is of no use
            store = make_results(self.folder, shlex.join(self.words))
            locked = stack.enter_context(ExitStack())
            locked.enter_context(store.lock())
            store.set_machine(fingerprint(alone=True))
            folder.make(self.folder / RECORDS, mode=0o700)
            member = job_member(self.words)
            header = self._header() | (member.to_json() if member else {})
            words = self._elsewhere(folder) if self.ablate else self.words
            prepared = self._prepared(words, header, HOOK, lambda header: store.put("attached", header), locked)
            prepared.unbegun = stack.pop_all()
            return prepared

    def leave_hook(self) -> dict[str, str]:
        """Make the results folder, and return the variables that attach what somebody else starts with them.

        Raises StoreError where the folder holds something or cannot be used.
        """
        prepared = self.prepare()
        prepared.locked.close()
        prepared.note({**prepared.header, "by_environment": True})
        return {"PYTHONPATH": str(prepared.hook.resolve()), _FOLDER: prepared.variables[_FOLDER]}

    def join(self, member: JobMember) -> "PreparedCommand":
        """Make ready to write to the results folder of another member of the same job.

        Raises StoreError where that cannot be, and where a member of this name writes to it already.
        """
        require_folder_for_launches(self.folder)
        folder, place = PlainFolder(self.folder), member_file(self.folder, member)
        try:
            os.close(folder.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise cannot_write(place, error) from error

        def note(header: Mapping[str, Any]) -> None:
            folder.write(place, json.dumps(header).encode())

        header = self._header() | member.to_json()
        with ExitStack() as stack:
            stack.callback(folder.remove, place)
            prepared = self._prepared(self.words, header, f"{HOOK}-{place.stem}", note, ExitStack())
            stack.callback(folder.remove, prepared.hook)
            prepared.unbegun = stack.pop_all()
            return prepared

    def _prepared(
        self, words: Sequence[str], header: dict[str, Any], hook_name: str, note: Note, locked: ExitStack
    ) -> "PreparedCommand":
        place = self.folder / hook_name
        PlainFolder(self.folder).make(place, mode=0o700)
        hook = write_hook(place)
        variables = environment(hook, self.folder / RECORDS, lines=self.lines, flops=self.flops, ablate=self.ablate)
        if self.ablate:
            variables["PYTHONPATH"] += os.pathsep + str(Path.cwd())
        note(header)
        watch = ProcessWatch(_FOLDER, str(hook.resolve()))
        return PreparedCommand(self, words, variables, header, hook, note, watch, locked)

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
            "boot": boot_id() or "unknown",
            "begin_ns": monotonic,
            "wall_minus_monotonic_ns": time.time_ns() - monotonic,
        }


@dataclass
class PreparedCommand:
    """A command whose results folder is made and locked."""

    command: AttachedCommand
    words: Sequence[str]
    variables: Mapping[str, str]
    header: dict[str, Any]
    hook: Path
    """The folder with the hook."""
    note: Note
    """Keeps the header."""
    watch: ProcessWatch
    locked: ExitStack
    unbegun: ExitStack = field(default_factory=ExitStack)
    """Undoes what was made for a command that is not started."""
    ended: CommandEnd | None = None
    problems: list[str] = field(default_factory=list)
    """What is not on record though the command was run, and why."""

    @property
    def folder(self) -> Path:
        return self.command.folder

    def run(self, beat: Callable[[int], None]) -> CommandEnd:
        """Run the command to its end; ``beat`` is called with its process twice a second meanwhile, until it fails.

        Whatever fails besides the command is one of ``problems``. Raises LaunchError where it cannot be started, and
        Interrupted for a signal that came before it was, or after its end, when ``ended`` has it.
        """
        folder, before = PlainFolder(self.folder), None
        gpus = GpuWatch(folder, self.folder / RECORDS, self.header["boot"], self._has_started)
        watched: list[Callable[[int], None]] = [self.watch.look, gpus.look, beat]

        def observe(process: int) -> None:
            for look in list(watched):
                try:
                    look(process)
                except Exception as error:  # noqa: BLE001 - the command goes on
                    watched.remove(look)
                    self._failed("the command was not watched to its end", error)

        try:
            before = snapshot()
        except Exception as error:  # noqa: BLE001 - the command is run all the same
            self._failed("what else the machine did is not on record", error)
        with self.locked, shielded():
            try:
                with self._output(folder) as output:
                    ended = run_command(self.words, {**os.environ, **self.variables}, observe, _BEAT_S, output)
            except (Interrupted, LaunchError):
                self.unbegun.close()
                raise
            self.ended = ended
            gpus.end()
            self.problems += [gpus.problem] if gpus.problem else []
            try:
                self._note_end(ended, before)
            except Exception as error:  # noqa: BLE001 - the end is that of the command
                self._failed("the end of the command is not on record", error)
            with suppress(Exception):
                folder.remove(self.hook)
        return ended

    def require_whole(self) -> None:
        """Raise Interrupted where a signal came during the run, which is not kept as one that ended well.

        A script that saves at a signal ends with exit code 0 and fewer steps.
        """
        if self.ended is not None and self.ended.signal is not None:
            if self.ended.code == 0 or "ended_early" in self.header:
                PlainFolder(self.folder.parent).remove(self.folder)
            raise Interrupted(self.ended.signal)

    def discard(self) -> None:
        """Undo what was made for a command that is not started."""
        if self.ended is None:
            with shielded():
                self.unbegun.close()

    def _has_started(self, command: int, process: int) -> bool:
        """Return whether the command started a process, or had a daemon start it, as Slurm's does."""
        has_variable = variables_of(process).get(_FOLDER) == self.variables[_FOLDER]
        return has_variable or process in processes_below(command)

    def _failed(self, what: str, error: Exception) -> None:
        self.problems.append(f"{what}: {error_line(error)}")

    def _note_end(self, ended: CommandEnd, before: Snapshot | None) -> None:
        said: dict[str, Any] = {"end_ns": round(ended.ended_s * 1e9), "exit_code": ended.exit_code}
        if before is not None:
            noise = difference(before, snapshot(), self._processor_s(PlainFolder(self.folder), self.header["boot"]))
            said |= {"noise": noise, "flags": flags(noise, workers=1, cores=len(os.sched_getaffinity(0)), threads=1)}
        self.note({**self.header, **said, "not_attached": self._why_nothing()})

    @contextmanager
    def _output(self, folder: PlainFolder) -> Iterator[int | None]:
        """Yield the open file that takes the output; None if the command has the streams of this process."""
        if not self.command.quiet:
            yield None
            return
        output = folder.open(self.folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            yield output
        finally:
            os.close(output)

    def _processor_s(self, folder: PlainFolder, boot: str) -> float:
        """Return the processor seconds of the processes here that ended: a daemon may have started them, as srun does.

        Those do not descend from this process.
        """
        from steptime.results.attached_files import read_latest  # noqa: PLC0415 - a command is begun without it

        try:
            ended = [each.end for each in read_latest(folder, self.folder / RECORDS) if each.process.boot == boot]
        except (StoreError, OSError):  # the answer names what is wrong with the records
            return 0.0
        return sum(end.processor_ns for end in ended if end is not None) * 1e-9

    def _why_nothing(self) -> str | None:
        """Return why no process wrote anything; None if some did."""
        from steptime.results.attached_files import FAILED  # noqa: PLC0415 - likewise

        words = self.command.words
        written = [each for each in (self.folder / RECORDS).iterdir() if not each.name.startswith((FAILED, WRITTEN))]
        if any(each.suffix == ".jsonl" for each in written):
            return None
        return self.watch.replaced_path(words) if written else self.watch.reason(words)


def run_in_turns(
    commands: Sequence[Sequence[str]], folder: Path, runs: int, observer: "Observer"
) -> "tuple[ComparedSide, ComparedSide]":
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
    from steptime.results.store import Store  # noqa: PLC0415 - likewise

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
                ended = AttachedCommand(words, place, lines=False, flops=False, quiet=True).run()
                if ended.code:
                    message = f"{shlex.join(words)} ended with exit code {ended.exit_code}; see {place / OUTPUT}"
                    raise LaunchError(message)
            observer.finished(what, kept=kept)
    stores = [[Store.open(folder / name / f"{number}") for number in range(1, runs + 1)] for name in names]
    from steptime.analysis.compared.sides import attached_sides  # noqa: PLC0415 - scipy is slow, and one command waits

    return attached_sides(stores, names, [str(folder / name) for name in names])


def _ended_well(store: "Store") -> bool:
    found = store.attached()
    return found is not None and found[0].exit_code == 0
