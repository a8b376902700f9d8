"""Where a study runs while faults happen to it: on this machine, on nodes reached by ssh, or in a job of Slurm.

The nodes are those of the tests' bed (tests/launchers/cluster_bed.py): namespaces with a real sshd and a real Slurm.
"""

import abc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from remnants import Found, living_processes, write_plugin

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "launchers"))

from cluster_bed import HEAD, ClusterBed

_MARK = "STEPTIMES_FAULTS"
"""A variable that all processes of a run on this machine inherit; launches drop those that begin with STEPTIME_."""
_STUDY = """\
version: 1
name: hit
frameworks: [reference, served]
strategies: [allreduce, ps_sync]
workloads: [{name: lenet5, batch_per_worker: 2}]
loaders: [synthetic]
workers: 2
servers: 1
server_placement: colocated
launches: {min: 2, max: 4}
target: 0.5
seconds_per_launch: 0.2
steps: {warmup: 2, min: 2, max: 50}
time_limit: 60
equivalence: {enabled: false}
"""
TRIALS, LEAST, MOST = 2, 2, 4
_OF_THE_BED = ("sh", "sleep", "sshd:", "/usr/sbin/sshd", "slurmd", "slurmctld", "slurmstepd:", "nsenter")
"""The beginnings of command lines of the nodes' own processes."""


class Run(abc.ABC):
    """One command that measures the study, from its start to its end."""

    @abc.abstractmethod
    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""

    @abc.abstractmethod
    def said(self) -> str:
        """Return what it printed so far."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End it, whatever it does."""

    def wait(self, limit_s: float) -> int | None:
        """Return the exit code; None if it still runs after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return code


class _Process(Run):
    def __init__(self, argv: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self._log = folder / f"run-{time.monotonic_ns()}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Site(abc.ABC):
    """A kind of site, with one folder of results after the other."""

    name: str
    nodes: Sequence[str] = ()
    settings: str
    """The lines of the study that differ."""

    def __init__(self, folder: Path) -> None:
        """Run studies below ``folder``."""
        self._root = folder
        self._number = 0
        plugin = folder / "plugin"
        if not plugin.exists():
            write_plugin(plugin, "served")
            shutil.copytree(Path(__file__).with_name("served"), plugin / "served")
        own = {_MARK: str(folder), "STEPTIME_CACHE": str(folder / "cache"), "PYTHONPATH": str(plugin)}
        self.environment = {**os.environ, **own, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        self.next_folder()

    def next_folder(self) -> None:
        """Leave the results that there are, and begin others."""
        if self._number:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._number += 1
        self.folder = self._root / f"{self.name}-{self._number}"
        self.folder.mkdir()
        (self.folder / "study.yaml").write_text(_STUDY + self.settings)

    @property
    def results(self) -> Path:
        """The results folder."""
        return self.folder / "results"

    @property
    def command(self) -> list[str]:
        """What a user types."""
        return [sys.executable, "-P", "-m", "steptime", "run", "study.yaml", "-o", str(self.results)]

    @abc.abstractmethod
    def start(self, node: str | None = None) -> Run:
        """Start the command, on another node than usual where one is given."""

    @abc.abstractmethod
    def processes(self, node: str | None = None) -> list[Found]:
        """Return what the runs have started and still runs, everywhere or on a node."""

    def in_roles(self, role: str, node: str | None = None) -> list[Found]:
        """Return the processes of a role, see ``role_of``; a process that one of them has just forked is none."""
        found = [each for each in self.processes(node) if role_of(each) == role]
        pids = {each.pid for each in found}
        return [each for each in found if each.parent not in pids]

    def shell(self, script: str, node: str | None = None) -> None:  # noqa: ARG002 - there is one
        """Run lines of a shell on a node, or on this machine."""
        subprocess.run(["sh", "-c", script], check=False, capture_output=True)  # noqa: S607

    def mend(self) -> bool:
        """See that the next command finds what the site is made of; return whether that took more than undoing."""
        return False

    def down(self) -> None:
        """End what is left."""
        for each in self.processes():
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)


class OneMachine(Site):
    """Launches on this machine, without a cluster."""

    name = "machine"
    settings = "launcher: local\n"

    def start(self, node: str | None = None) -> Run:  # noqa: ARG002 - there is one
        return _Process(self.command, self.folder, self.environment)

    def processes(self, node: str | None = None) -> list[Found]:  # noqa: ARG002
        return [each for each in living_processes() if each.variables.get(_MARK) == str(self._root)]


class SshNodes(Site):
    """A study that runs on a login node and reaches two nodes by ssh."""

    name = "ssh"
    nodes = ("n0", "n1")
    settings = "hosts: [n0, n1]\nlauncher: ssh\n"

    def __init__(self, folder: Path, bed: ClusterBed) -> None:
        """Run studies on the nodes of ``bed``, all of which see ``folder``."""
        super().__init__(folder)
        self.bed = bed

    def start(self, node: str | None = None) -> Run:
        argv = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(self.folder), *self.command]
        return _Process(self.bed.command(node or HEAD, argv), self.folder, self.bed.variables(self.environment))

    def processes(self, node: str | None = None) -> list[Found]:
        names = [node] if node else [HEAD, *self.nodes]
        wanted = {name: self.bed.namespace(name) for name in names}
        return [
            each
            for each in living_processes()
            if each.pid_namespace in wanted.values() and each.arguments and not _of_the_bed(each)
        ]

    def shell(self, script: str, node: str | None = None) -> None:
        self.bed.run("sh", "-c", script, node=node or HEAD)


class _Job(Run):
    def __init__(self, bed: ClusterBed, number: str, log: Path) -> None:
        self._bed = bed
        self.number = number
        self._log = log

    def poll(self) -> int | None:
        shown = self._bed.run("scontrol", "show", "job", self.number).stdout
        fields = dict(field.split("=", 1) for field in shown.split() if "=" in field)
        state = fields.get("JobState", "COMPLETED" if "Invalid job id" in shown else "UNKNOWN")
        if state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "UNKNOWN"):
            if fields.get("Restarts", "0") != "0" and state == "PENDING":  # Slurm waits two minutes by itself
                self._bed.run("scontrol", "update", f"jobid={self.number}", "starttime=now")
            return None
        code, _, number = fields.get("ExitCode", "0:0").partition(":")
        return -int(number) if int(number) else int(code) or (0 if state == "COMPLETED" else 1)

    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        self._bed.run("scancel", self.number)
        deadline = time.monotonic() + 60.0
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.3)


class SlurmNodes(SshNodes):
    """A study that runs as one job of Slurm on two nodes, submitted by ``steptime submit``."""

    name = "slurm"
    settings = "slurm: {nodes: 2}\nlauncher: slurm\n"

    def start(self, node: str | None = None) -> Run:
        if node is not None:  # as a second command of the same user, within the job's nodes
            return super().start(node)
        submit = [sys.executable, "-P", "-m", "steptime", "submit", str(self.folder / "study.yaml")]
        said = self.bed.run(*submit, "-o", str(self.results), environment=self.environment)
        number = said.stdout.partition("submitted as job ")[2].partition(";")[0]
        if not number:
            message = f"no job was submitted: {said.stdout[-500:]}{said.stderr[-500:]}"
            raise RuntimeError(message)
        return _Job(self.bed, number, self.results.with_name(f"{self.results.name}.job-{number}.log"))

    def mend(self) -> bool:
        """Start Slurm anew, without the jobs that it remembers, where it gives nobody both nodes.

        Slurm itself does not always come back from a fault: it drains a node for a ``Duplicate jobid``, or gives the
        card of a node to nobody any more. That is not what is counted here.
        """
        if self._gives_nodes():
            return False
        for node in (*self.nodes, HEAD):
            for pid in self.bed.daemon_pids(node, "slurmctld" if node == HEAD else "slurmd"):
                os.kill(pid, signal.SIGKILL)
        time.sleep(1.0)
        for path in (self.bed.folder / "state").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for node in (HEAD, *self.nodes):
            self.bed.start_slurm(node)
        deadline = time.monotonic() + 60.0
        while not self._gives_nodes():
            if time.monotonic() > deadline:
                message = "Slurm does not come back"
                raise RuntimeError(message)
        return True

    def _gives_nodes(self) -> bool:
        return self.bed.run("srun", "-N2", "-t1", "--immediate=15", "true").returncode == 0


def _of_the_bed(found: Found) -> bool:
    first = found.arguments[0].split()[0] if found.arguments[0].split() else ""
    line = " ".join(found.arguments)
    return (first in _OF_THE_BED and "steptime" not in line) or "slurmscriptd" in line


def role_of(found: Found) -> str | None:
    """Return what a process is for: ``worker``, ``server``, ``host agent``, ``line``, ``controller``, or None."""
    arguments = found.arguments
    if len(arguments) > 1 and arguments[1] == "start.py":
        return found.variables.get("STEPTIME_ROLE")
    if arguments and arguments[0] in ("ssh", "srun"):
        return "line"
    if any(each.endswith("host_agent.py") for each in arguments):
        return "host agent"
    if "steptime" in arguments and "run" in arguments and "-m" in arguments:
        return "controller"
    return None
