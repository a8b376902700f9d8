"""A cluster for tests with a real Grid Engine, as Debian packs it: nodes as those of ``cluster_bed``."""

import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster_bed import HEAD, ClusterBed

_ROOT = Path("/var/lib/gridengine")
_SHARE = Path("/usr/share/gridengine")
_SPOOL = "/var/spool/gridengine"
_START_S = 60.0
_PARALLEL = """\
pe_name            mpi
slots              100
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    1
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
qsort_args         NONE
accounting_summary FALSE
"""


class GridEngineBed(ClusterBed):
    """Nodes on which jobs run as root, a slot each, and the node ``head`` with the qmaster."""

    def up(self) -> None:
        """Make the network, start the daemons, and wait until every node has a place for a job."""
        self._write_settings()
        self._write_cell()
        self._make_network()
        set_up = f"{_SHARE}/scripts/init_cluster {_ROOT} default {_SPOOL}/spooldb root"
        self._start(HEAD, f"{self._folders()}; {set_up}; sge_qmaster")
        self._until(lambda: self.run("qconf", "-sh").returncode == 0, "the qmaster does not answer")
        self._configure()
        for name in self.nodes:
            self._start(name, self._daemons_of(name))
        self._until(self._ready, "the nodes take no jobs")

    def variables(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the environment of programs that use the bed."""
        cell = {"SGE_ROOT": str(_ROOT), "SGE_CELL": "default", "SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}
        return super().variables({**cell, **(more or {})})

    def submit(self, command: Sequence[str], slots: int) -> str:
        """Submit a command as a job of one slot on each of some nodes; return the job's number."""
        script = self.folder / "job.sh"
        script.write_text(f"{shlex.join(command)}\necho $? >{self.folder}/ended.$JOB_ID\n")
        options = ["-terse", "-V", "-S", "/bin/sh", "-cwd", "-j", "y", "-o", str(self.folder), "-pe", "mpi", str(slots)]
        done = self.run("qsub", *options, str(script))
        if done.returncode:
            message = f"qsub refuses the job: {done.stdout} {done.stderr}"
            raise RuntimeError(message)
        return done.stdout.strip()

    def has_ended(self, job: str) -> bool:
        """Whether a job has run to its end."""
        return (self.folder / f"ended.{job}").exists()

    def output(self, job: str) -> str:
        """Return what a job has written."""
        return (self.folder / f"job.sh.o{job}").read_text()

    def _ready(self) -> bool:
        """Whether the queue of each node takes jobs: its line then ends with the kind of the processor."""
        lines = [line.split() for line in self.run("qstat", "-f").stdout.splitlines() if line.startswith("all.q@")]
        return len(lines) == len(self.nodes) and all(len(line) == 5 and line[3] != "-NA-" for line in lines)

    def _daemons_of(self, name: str) -> str:
        sshd = f"/usr/sbin/sshd -f {self.folder}/ssh/sshd_config -E {self.folder}/log/sshd.{name}"
        return f"{self._folders()}; mkdir -p /run/sshd; {sshd}; sge_execd"

    def _folders(self) -> str:
        """Return the commands by which all nodes share a cell, and each has a spool."""
        made = " ".join(f"{_SPOOL}/{name}" for name in ("qmaster/job_scripts", "spooldb", "execd"))
        return f"mount --bind {self.folder}/cell {_ROOT}; mount -t tmpfs spool {_SPOOL}; mkdir -p {made}"

    def _write_cell(self) -> None:
        shutil.copytree(_ROOT, self.folder / "cell", symlinks=True)
        common = self.folder / "cell" / "default" / "common"
        common.mkdir(parents=True, exist_ok=True)
        lines = (_SHARE / "default-bootstrap").read_text().splitlines()
        lines = ["admin_user root" if line.startswith("admin_user") else line for line in lines]
        (common / "bootstrap").write_text("\n".join([*lines, ""]))
        (common / "act_qmaster").write_text(f"{HEAD}\n")

    def _configure(self) -> None:
        queue = {"qname": "all.q", "hostlist": " ".join(self.nodes), "pe_list": "mpi", "slots": "1"}
        for name, settings in {
            "pe": _PARALLEL,
            "global": self._changed("-sconf", {"min_uid": "0", "min_gid": "0"}),  # qconf takes it for the file's name
            "queue": self._changed("-sq", {**queue, "load_thresholds": "NONE"}),
        }.items():
            (self.folder / name).write_text(settings)
        self._set("-Ap", "pe")
        self._set("-Mconf", "global")
        self.run("qconf", "-as", HEAD)
        for host in self.nodes:
            self.run("qconf", "-ah", host)
        self._set("-Aq", "queue")

    def _set(self, option: str, name: str) -> None:
        done = self.run("qconf", option, str(self.folder / name))
        if done.returncode:
            message = f"qconf {option} refuses {name}: {done.stdout} {done.stderr}"
            raise RuntimeError(message)

    def _changed(self, shown: str, values: Mapping[str, str]) -> str:
        """Return settings as qconf prints them, with others in place of some."""
        lines = self.run("qconf", shown).stdout.splitlines()
        names = [(line.split() or [""])[0] for line in lines]
        changed = [
            f"{name} {values[name]}" if name in values else line for name, line in zip(names, lines, strict=True)
        ]
        return "\n".join([*changed, ""])

    def _until(self, condition: Callable[[], bool], message: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            if time.monotonic() > deadline:
                seen = f"{message} after {_START_S:g} s: {self.run('qstat', '-f').stdout}"
                raise RuntimeError(seen)
            time.sleep(0.1)
