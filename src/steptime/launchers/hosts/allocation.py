"""The hosts that a scheduler gave to the job in which steptime runs, with slots where the job has them.

Each scheduler leaves them in variables of the job's environment, or in a file that one names. Slurm and
Grid Engine were tried; the others are read as their manuals describe them.
"""

import contextlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.catalog.found_site import Reach
from steptime.errors import FileError, LaunchError
from steptime.study.host_lists import expanded_hosts
from steptime.study.hostfile import MOST_BYTES, read_hostfile, slot_count
from steptime.user_file import read_user_text

HERE_ALONE = "launcher=local runs on this host alone"
KUBEFLOW_HOSTFILE = Path("/etc/mpi/hostfile")
"""Of the launcher of an MPIJob, or of a TrainJob with an MPI runtime."""
_LIMIT_S = 60.0
_FILES = {
    "PBS_NODEFILE": None,  # PBS, Torque: a host on each line, once for each of its slots
    "LSB_DJOB_HOSTFILE": None,  # LSF likewise
    "COBALT_NODEFILE": None,
    "OAR_NODEFILE": None,
    "LOADL_HOSTFILE": None,  # LoadLeveler
    "PE_HOSTFILE": 1,  # Grid Engine: host, slots, queue and processors on each line
}
"""Variables with the path of a file that begins each line with a host, and in which word a line has the slots."""
_HOSTFILES = (
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "I_MPI_HYDRA_HOST_FILE",
    "HYDRA_HOST_FILE",
)
"""Variables with the path of an MPI's hostfile, as an MPIJob sets them."""
_TASKS = re.compile(r"([0-9]{1,5})(?:\(x([0-9]{1,4})\))?")


def _slots_in_list(written: str) -> dict[str, int]:
    return dict(Counter(written.split()))


def _slots_in_pairs(written: str) -> dict[str, int]:
    """Return what LSF writes where a list would be long: a host, its slots, and so on."""
    words = written.split()
    try:
        counts = [slot_count(count) for count in words[1::2]]
        pairs = list(zip(words[::2], counts, strict=True))
    except ValueError as error:
        message = f"$LSB_MCPU_HOSTS is {written!r}; it should name hosts, each followed by its number of slots"
        raise LaunchError(message) from error
    return {host: sum(count for name, count in pairs if name == host) for host in dict.fromkeys(words[::2])}


_LISTS = {"LSB_MCPU_HOSTS": _slots_in_pairs, "LSB_HOSTS": _slots_in_list, "LOADL_PROCESSOR_LIST": _slots_in_list}
"""Variables that list hosts: with their slots, or once for each slot."""
LOOKED_FOR = ("SLURM_JOB_ID", *_FILES, *_LISTS, "FLUX_JOB_ID", "FLUX_URI", *_HOSTFILES)


@dataclass(frozen=True)
class AllocatedHosts:
    """The hosts of a job."""

    slots: Mapping[str, int]
    """Of each host by its name, in order; 1 where the job does not ask for a number."""
    source: str
    """What names them: ``Slurm job 7``, ``$PBS_NODEFILE``, …"""
    reach: Reach
    """How programs are started on them: by Slurm's srun where one step reaches all, and otherwise by ssh."""


def find_allocation(environment: Mapping[str, str], kubeflow: Path = KUBEFLOW_HOSTFILE) -> AllocatedHosts | None:
    """Return the hosts of the job around this process; None outside of a job.

    Raises LaunchError where what a scheduler has left cannot be read.
    """
    if "SLURM_JOB_ID" in environment:
        return slurm_allocation(environment)
    for name, place in _FILES.items():
        if path := environment.get(name):
            return _by_ssh(_slots_by_line(name, Path(path), place), name)
    for name, slots_in in _LISTS.items():
        if written := environment.get(name):
            return _by_ssh(slots_in(written), name)
    if "FLUX_JOB_ID" in environment or "FLUX_URI" in environment:  # a batch job has the second alone
        return _flux_allocation(environment)
    hostfiles = {f"${name}": Path(environment[name]) for name in _HOSTFILES if environment.get(name)}
    if not hostfiles and kubeflow.is_file():
        hostfiles = {str(kubeflow): kubeflow}
    for source, hostfile in hostfiles.items():
        with _readable(source):
            return AllocatedHosts(read_hostfile(hostfile), source, "ssh")
    return None


def slurm_allocation(environment: Mapping[str, str]) -> AllocatedHosts:
    """Return the nodes of the Slurm job around this process; a container of it may lack Slurm's programs.

    A heterogeneous job has several groups of nodes. A step of srun reaches one of them, so they are reached by ssh.

    Raises LaunchError where the job's variables do not name its nodes.
    """
    source = f"Slurm job {environment['SLURM_JOB_ID']}"
    groups = environment.get("SLURM_HET_SIZE", "1")
    if not groups.isdecimal() or int(groups) <= 1:
        return AllocatedHosts(_slurm_slots(environment, source, ""), source, "slurm")
    slots: dict[str, int] = {}
    for group in range(int(groups)):
        for host, count in _slurm_slots(environment, source, f"_HET_GROUP_{group}").items():
            slots[host] = slots.get(host, 0) + count
    return AllocatedHosts(slots, f"the {groups} groups of {source}", "ssh")


def _slurm_slots(environment: Mapping[str, str], source: str, suffix: str) -> dict[str, int]:
    name = f"SLURM_JOB_NODELIST{suffix}"
    written = environment.get(name) or environment.get(f"SLURM_NODELIST{suffix}")
    if not written:
        message = f"{source}: {name}, its nodes, is not set; {HERE_ALONE}"
        raise LaunchError(message)
    hosts = _slurm_nodes(name, written)
    # Without a number that the user asked for, Slurm counts a task for each core.
    asked = (f"SLURM_NTASKS{suffix}", f"SLURM_NTASKS_PER_NODE{suffix}")
    tasks = environment.get(f"SLURM_TASKS_PER_NODE{suffix}") if any(key in environment for key in asked) else None
    matches = [_TASKS.fullmatch(part) for part in (tasks or f"1(x{len(hosts)})").split(",")]  # as 4(x2),3
    counts = [int(match[1]) for match in matches if match for _ in range(int(match[2] or 1))]
    if None in matches or len(counts) != len(hosts) or 0 in counts:
        message = f"{source}: SLURM_TASKS_PER_NODE{suffix} is {tasks!r}, and {name} names {len(hosts)} nodes"
        raise LaunchError(message)
    return dict(zip(hosts, counts, strict=True))


def _slurm_nodes(name: str, written: str) -> list[str]:
    if shutil.which("scontrol") is not None:
        with contextlib.suppress(LaunchError):  # it may lack slurm.conf
            return _output(["scontrol", "show", "hostnames", written]).split()
    try:
        return expanded_hosts(written)
    except ValueError as error:
        message = f"{name}: {error}; scontrol, which reads it, is not on PATH or failed; {HERE_ALONE}"
        raise LaunchError(message) from error


def _flux_allocation(environment: Mapping[str, str]) -> AllocatedHosts:
    job = environment.get("FLUX_JOB_ID")
    hosts = list(dict.fromkeys(_output(["flux", "hostlist", "--expand", "local"]).split()))
    tasks = environment.get("FLUX_JOB_SIZE", "")
    even = hosts and tasks.isdecimal() and int(tasks) % len(hosts) == 0
    slots = dict.fromkeys(hosts, max(1, int(tasks) // len(hosts)) if even else 1)
    return AllocatedHosts(slots, f"Flux job {job}" if job else "the Flux instance", "ssh")


def _by_ssh(slots: Mapping[str, int], variable: str) -> AllocatedHosts:
    return AllocatedHosts(slots, f"${variable}", "ssh")


def _slots_by_line(name: str, path: Path, place: int | None) -> dict[str, int]:
    with _readable(f"${name}"):
        text = read_user_text(path, MOST_BYTES)
    slots: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = line.split()
        if not row:
            continue
        try:
            count = 1 if place is None or len(row) <= place else slot_count(row[place])
        except ValueError as error:
            message = f"${name} names {path}, line {number}: {error}; {HERE_ALONE}"
            raise LaunchError(message) from error
        slots[row[0]] = slots.get(row[0], 0) + count  # Grid Engine names a host once for each of its queues
    if not slots:
        message = f"${name} names a file without hosts ({path}); {HERE_ALONE}"
        raise LaunchError(message)
    return slots


@contextlib.contextmanager
def _readable(source: str) -> Iterator[None]:
    """Name what led to a file that cannot be read."""
    try:
        yield
    except FileError as error:
        message = f"{source} cannot be read: {error}; {HERE_ALONE}"
        raise LaunchError(message) from error


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{' '.join(command)} did not name the hosts of the allocation: {error}; {HERE_ALONE}"
        raise LaunchError(message) from error
