"""The Slurm job of a study: one batch script, in which steptime runs on the first node and starts a step per launch."""

import hashlib
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.errors import LaunchError, UsageError
from steptime.foreign_writers import require_folder_for_launches
from steptime.plain_file import write_whole
from steptime.runner.plan import StudyPlan
from steptime.study.hosts import SlurmChoice
from steptime.study.study_file import folder_of_paths
from steptime.units import parse_duration

_LIMIT_S = 120.0


STUDY_HERE = "/dev/fd/3"
"""Where a script opens the text of the study that it holds."""
_SIGNAL_BEFORE_S = 300
"""So long before its end, give or take a minute, the job is to ask again how much time it has."""


def script_of(folder: Path) -> Path:
    """Return the batch script of the study whose results are in ``folder``, as a path that holds from everywhere."""
    return folder.absolute().with_name(f"{folder.name}.job.sh")


@dataclass(frozen=True)
class SlurmJob:
    """What is submitted."""

    plan: StudyPlan
    study: str
    """The study as the user named it; the job has its text as it is now, whatever becomes of the file."""
    overrides: Sequence[str]
    setup: Sequence[str] = ()
    """Lines of shell before the run, such as ``module load cuda``; of the user's own command line, never of a study."""
    options: Sequence[str] = ()
    """Further options of sbatch, likewise."""
    requeues: int = 10
    """How often the job may be queued again when it runs out of time."""

    @property
    def script_path(self) -> Path:
        """Next to the results folder, which holds nothing but results."""
        return script_of(self.plan.folder)

    @property
    def log_pattern(self) -> Path:
        """Where the output goes; sbatch puts the number of the job in, for which a folder must not be taken."""
        folder = Path(str(self.plan.folder.absolute()).replace("%", "%%"))
        return folder.with_name(f"{folder.name}.job-%j.log")

    def log(self, number: str) -> Path:
        """Return the file of the output of a job."""
        folder = self.plan.folder.absolute()
        return folder.with_name(f"{folder.name}.job-{number}.log")

    @property
    def script(self) -> str:
        """The batch script.

        ``exec`` makes steptime the batch process itself: when that dies, Slurm ends every step. A job that is requeued
        goes on where it was, since a run on the same folder resumes. ``trap`` keeps the early signal, which may come at
        once after a requeue, from ending the shell.

        The script holds the text of the study, so that a job which starts hours later, or is queued again, runs what
        was submitted, and all paths, so that it means the same from whatever folder it is submitted again.

        Raises UsageError where an option or a path has a line break, behind which Slurm would read something else.
        """
        command = [sys.executable, "-P", "-m", "steptime", "run", STUDY_HERE, *self.overrides, "launcher=slurm"]
        command += [f"name={self.plan.study.name}", "--paths-from", str(folder_of_paths(self.study).absolute())]
        command += ["-o", str(self.plan.folder.absolute()), "--requeue", str(self.requeues)]
        directives = [f"#SBATCH {_directive(option)}" for option in (*self._own_options(), *self.options)]
        lines = ["#!/bin/bash", *directives, "trap '' USR1", *self.setup]
        return "\n".join([*lines, *lines_with_study(command, self.plan.study_text), ""])

    @property
    def _names_memory(self) -> bool:
        """Whether the user's own options say how much memory the job gets."""
        return any(re.match(r"--mem(-per-(cpu|gpu))?([=\s]|$)", option) for option in self.options)

    def _own_options(self) -> list[str]:
        chosen = self.plan.study.slurm or SlurmChoice()
        found = [
            f"--job-name=steptime-{self.plan.study.name}",
            f"--nodes={chosen.nodes}",
            "--exclusive",
            *([] if self._names_memory else ["--mem=0"]),  # a whole node has no more memory than was asked for
            "--requeue",
            "--open-mode=append",
            f"--signal=B:USR1@{_SIGNAL_BEFORE_S}",
            *(["--no-kill"] if self._keeps_spare_nodes else []),
            f"--output={self.log_pattern}",
            f"--chdir={Path.cwd()}",
        ]
        if chosen.time is not None:
            seconds = round(parse_duration(chosen.time))
            found.append(f"--time={seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}")
        gpus = chosen.gpus_per_node or (self.plan.site and self.plan.site.gpus_per_host) or None
        named = {"partition": chosen.partition, "account": chosen.account, "gpus-per-node": gpus}
        return found + [f"--{name}={value}" for name, value in named.items() if value is not None]

    @property
    def _keeps_spare_nodes(self) -> bool:
        """Whether Slurm is to keep the job where a node dies, so that the study goes on with the spare ones.

        Slurm (22.05) then keeps the job also where the first node dies, on which steptime runs, and does not queue it
        again: without a time limit the other nodes would be held for ever, by no job.
        """
        return self.plan.spare_hosts > 0 and (self.plan.study.slurm or SlurmChoice()).time is not None

    @property
    def warnings(self) -> list[str]:
        """What the user should know of the job before it is submitted, a sentence each."""
        spare = self.plan.spare_hosts
        if not spare:
            return []
        told = f"no trial needs {spare} of the job's nodes"
        if self._keeps_spare_nodes:
            told += (
                ": where one dies, the study goes on with the others (--no-kill). Where the first node dies, Slurm "
                "keeps the others with nothing on them until the time limit; steptime status shows it then, and "
                "scontrol requeue JOB starts the job again"
            )
        else:
            told += (
                ", but slurm.time is not set: where a node dies, Slurm ends the job and queues it again, instead of "
                "letting the study go on with the others. Set slurm.time for that"
            )
        return [told]

    def submit(self) -> str:
        """Write the script and give it to sbatch; return the number of the job.

        The file is the user's, to submit again. sbatch gets the script itself and not the name of the file, under
        which somebody else who may write into the folder could put another one meanwhile.

        Raises LaunchError where there is no Slurm, or where it refuses; StoreError where the file cannot be written, or
        where another user could change what the job starts.
        """
        require_folder_for_launches(self.plan.folder)
        script = self.script
        write_whole(self.script_path, script.encode())
        try:
            done = subprocess.run(
                ["sbatch", "--parsable"],  # noqa: S607 - Slurm is where the site put it
                input=script,
                check=False,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            message = f"sbatch could not be run: {error}; submit from a login node, or see the script with --dry-run"
            raise LaunchError(message) from error
        if done.returncode:
            message = f"sbatch refused {self.script_path}: {' '.join(done.stderr.split())}"
            raise LaunchError(message)
        return done.stdout.strip().partition(";")[0]


def lines_with_study(command: Sequence[str], text: str) -> list[str]:
    """Return the last lines of a script of bash: it becomes a command, which reads a study as ``STUDY_HERE``."""
    text = text.removesuffix("\n")
    end = f"END_OF_STUDY_{hashlib.sha256(text.encode()).hexdigest()[:16]}"  # no line of the text can be its digest
    return [f"exec {shlex.join(command)} {STUDY_HERE.rpartition('/')[2]}<<'{end}'", text, end]


def _directive(option: str) -> str:
    """Return an option as a line ``#SBATCH`` must have it: its name as it is, its value as one word.

    Raises UsageError for an option with a line break.
    """
    if not option.isprintable():
        message = f"{option!r} cannot be an option of sbatch: it holds a line break or another control character"
        raise UsageError([message])
    name, *valued = re.split(r"( +|=)", option, maxsplit=1)
    return "".join([name, valued[0], shlex.quote(valued[1])]) if valued else name
