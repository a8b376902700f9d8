"""The commands that reach the hosts of a launch, and what each host is to run; pure, so that a plan can be printed."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.found_site import FoundHost, Reach
from steptime.launchers.mpiexec import OPEN_MPI_FLAGS, find_mpiexec, is_open_mpi
from steptime.launchers.process_env import cores_in_words, foreign_variables, pins, server_pins, shared_variables
from steptime.launchers.request import Process, Request

HOST_AGENT = str(Path(__file__).with_name("host_agent.py"))
RAY_LINE = (sys.executable, "-P", "-m", "steptime.launchers.hosts.ray_line")
_LOOPBACK, _LOOPBACK_ADDRESS = "lo", "127.0.0.1"
_OPTIONS_OF_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-T", "-a", "-x")
"""Nobody answers questions; a far process gets neither the agent nor the screen of the user."""
_OPTIONS_OF_SRUN = (
    "--ntasks-per-node=1",
    "--overlap",  # the batch script holds the cores, and so may another step
    "--overcommit",
    "--mem=0",
    "--mpi=none",
    "--cpu-bind=none",  # every process is pinned by itself
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--export=ALL",  # a site's SLURM_EXPORT_ENV=NONE would leave the host agent without its variables
    "--quiet",
)
"""Without ``--unbuffered``, by which Slurm cuts lines anywhere, and mixes those of several hosts."""
_SRUN_NEEDS = (
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JWT",
    "SLURM_SACK_JWKS",
    "SLURM_SACK_KEY",
    "SLURM_SACK_SOCKET",
    "SLURM_WORKING_CLUSTER",
)
"""Where the daemons are, and which job it is."""
_TRANSPORTS = ("OMPI_MCA_btl", "OMPI_MCA_pml", "UCX_")
Start = dict[str, Any]
"""``name``, ``argv`` and ``environment`` of one process that a host agent starts."""


def reach_commands(hosts: Sequence[FoundHost], reach: Reach) -> dict[str, list[str]]:
    """Return the command of each line by the line's name: one ssh per host, or one srun or driver of Ray for all."""
    program = [sys.executable, "-I", "-S", HOST_AGENT]
    if reach == "slurm":
        names = ",".join(host.name for host in hosts)
        count = str(len(hosts))
        return {"srun": ["srun", f"--nodelist={names}", "-N", count, "-n", count, *_OPTIONS_OF_SRUN, *program]}
    if reach == "ray":
        return {"ray": [*RAY_LINE, "each", hosts[0].ray_address, ",".join(host.name for host in hosts), *program]}
    return {
        f"host-{host.name}": ["ssh", *_OPTIONS_OF_SSH, "--", host.name, f"exec {shlex.join([*program, str(index)])}"]
        for index, host in enumerate(hosts)
    }


def variables_of_line(argv: Sequence[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the ssh or srun of a line.

    srun takes options from variables that the job's own shell may have (SLURM_GPUS_PER_TASK, SLURM_DISTRIBUTION,
    SLURM_UNBUFFEREDIO and more): they would hide GPUs, place host agents elsewhere or cut lines.
    """
    if argv[0] != "srun":
        return dict(inherited)
    foreign = ("SLURM_", "SRUN_")
    return {name: value for name, value in inherited.items() if name in _SRUN_NEEDS or not name.startswith(foreign)}


def single_command(host: FoundHost, reach: Reach, argv: Sequence[str], *, reads: bool = False) -> list[str]:
    """Return the command that runs one program on one host; ``reads``: whether the program reads its standard input."""
    if reach == "slurm":
        silent = [] if reads else ["--input=none"]
        return ["srun", f"--nodelist={host.name}", "-N", "1", "-n", "1", *_OPTIONS_OF_SRUN, *silent, *argv]
    if reach == "ray":
        return [*RAY_LINE, "one", host.ray_address, host.name, *argv]
    return ["ssh", *_OPTIONS_OF_SSH, *([] if reads else ["-n"]), "--", host.name, f"exec {shlex.join(argv)}"]


def cluster_of(request: Request) -> Cluster:
    """Return who runs on which host; by default every worker, and every server of its own, has a host."""
    own_servers = 0 if request.colocated_servers else request.servers
    return request.cluster or cluster_for(workers=request.workers, own_servers=own_servers, kind="found")


def address_of(hosts: Sequence[FoundHost], index: int) -> tuple[str, str]:
    """Return the interface and the address of a host in a launch: loopback where the launch has one host only."""
    if len(hosts) == 1:
        return _LOOPBACK, _LOOPBACK_ADDRESS
    return hosts[index].interface, hosts[index].address


def roles_on(request: Request, cluster: Cluster, host: int) -> list[tuple[str, int, int]]:
    """Return role, rank and local rank of every process on a host, in the order of their start."""
    counts = {"scheduler": int(request.scheduler), "server": request.servers, "worker": request.workers}
    return [
        (role, rank, local)
        for role, count in counts.items()
        for local, rank in enumerate(cluster.ranks_on(host, role, count))
    ]


def ports_needed(request: Request, cluster: Cluster, host: int) -> int:
    """Return how many ports a host needs: one for the rendezvous on the first, one per worker and server."""
    return sum(role != "scheduler" for role, _, _ in roles_on(request, cluster, host)) + (host == 0)


def starts(
    request: Request, hosts: Sequence[FoundHost], marker: str, ports: Sequence[Sequence[int]]
) -> list[list[Start]]:
    """Return what each host starts.

    Args:
        request: the launch.
        hosts: its hosts, as many as its cluster has.
        marker: a text that no other launch has.
        ports: free ports of each host, see ``ports_needed``.
    """
    cluster = cluster_of(request)
    shared = _shared(request, hosts, cluster, marker, ports)
    if request.mpi:
        return [[_mpiexec(request, hosts, cluster, shared)], *([] for _ in hosts[1:])]
    argv = list(request.command)
    return [
        [
            {
                "name": f"{role}-{rank}",
                "argv": argv,
                "environment": {
                    **shared,
                    **variables_on(request, hosts, cluster, host),
                    "STEPTIME_ROLE": role,
                    "STEPTIME_RANK": str(rank),
                    "STEPTIME_LOCAL_RANK": str(local),
                },
            }
            for role, rank, local in roles_on(request, cluster, host)
        ]
        for host in range(len(hosts))
    ]


def _shared(
    request: Request, hosts: Sequence[FoundHost], cluster: Cluster, marker: str, ports: Sequence[Sequence[int]]
) -> dict[str, str]:
    """Return the variables that all processes of the launch have in common."""
    left = [list(each) for each in ports]
    root = f"{address_of(hosts, 0)[1]}:{left[0].pop(0)}"

    def addresses(role: str, count: int) -> str:
        each = [cluster.host_of(role, rank) for rank in range(count)]
        return ",".join(f"{address_of(hosts, host)[1]}:{left[host].pop(0)}" for host in each)

    total = 1 + request.workers + request.servers
    return {
        **shared_variables(request, marker, "", range(total)),
        "STEPTIME_ROOT_ADDRESS": root,
        "STEPTIME_WORKER_ADDRESSES": addresses("worker", request.workers),
        "STEPTIME_SERVER_ADDRESSES": addresses("server", request.servers),
    }


def variables_on(request: Request, hosts: Sequence[FoundHost], cluster: Cluster, host: int) -> dict[str, str]:
    """Return the variables that differ by host: its interface, and the cores of its processes by local rank."""
    workers, servers = cores_on(request, hosts, cluster, host)
    return {
        "STEPTIME_INTERFACE": address_of(hosts, host)[0],
        "STEPTIME_CPUS": cores_in_words(workers),
        "STEPTIME_SERVER_CPUS": cores_in_words(servers),
    }


def cores_on(
    request: Request, hosts: Sequence[FoundHost], cluster: Cluster, host: int
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the cores of each worker and of each server on a host, out of those that the host itself has."""
    if not request.cores:
        return [], []
    counts = [
        len(cluster.ranks_on(host, role, count))
        for role, count in (("worker", request.workers), ("server", request.servers))
    ]
    here = request.on_one_host(counts[0], counts[1], hosts[host].cores, hosts[host].gpu_cores)
    return pins(here), server_pins(here)


def _mpiexec(request: Request, hosts: Sequence[FoundHost], cluster: Cluster, shared: dict[str, str]) -> Start:
    """One mpiexec on the first host, which starts the workers of all hosts; agents replace ssh (``{agent}``)."""
    first = hosts[0]
    mpiexec = find_mpiexec(request.interpreter, request.container, first)
    is_open = first.is_open_mpi if str(mpiexec) == first.mpiexec else is_open_mpi(mpiexec)
    worker_hosts = range(cluster.worker_hosts)
    counts = [len(cluster.ranks_on(host, "worker", request.workers)) for host in worker_hosts]
    slots = ",".join(f"{address_of(hosts, host)[1]}:{count}" for host, count in zip(worker_hosts, counts, strict=True))
    interface = address_of(hosts, 0)[0]
    program = request.command
    environment = {**shared, **variables_on(request, hosts, cluster, 0), "STEPTIME_ROLE": "worker"}
    if is_open:
        argv = [str(mpiexec), *OPEN_MPI_FLAGS, "-H", slots, "-n", str(request.workers), *program]
        settings = open_mpi_settings(interface, only_interface=_names_interface(request))
        return {"name": "mpiexec", "argv": argv, "environment": {**settings, **environment}}
    argv = [str(mpiexec), "-launcher", "ssh", "-launcher-exec", "{agent}", "-iface", interface]
    # UCX would also try interfaces that do not lead to the other hosts; memory that workers share is no such device.
    devices = interface if _names_interface(request) else f"{interface}{{rdma}}"
    argv += ["-genv", "UCX_NET_DEVICES", devices, "-hosts", slots]
    if _share_kernel(hosts) and "UCX_TLS" not in request.environment_variables:
        argv += ["-genv", "UCX_TLS", "tcp,self"]
    for host, count in zip(worker_hosts, counts, strict=True):
        # MPICH gives all workers the variables of its mpiexec; what differs by host only a part of its own can say.
        argv += [*([":"] if host else []), "-n", str(count)]
        for name, value in variables_on(request, hosts, cluster, host).items():
            argv += ["-env", name, value]
        argv += program
    return {"name": "mpiexec", "argv": argv, "environment": environment}


def _names_interface(request: Request) -> bool:
    """Whether the study names the interface of launches, and so that they use no other network."""
    return request.site is not None and request.site.interface is not None


def _share_kernel(hosts: Sequence[FoundHost]) -> bool:
    """Whether hosts are containers or namespaces of one machine, or may be, since it was not looked at.

    UCX knows a host by the boot of its kernel, takes such hosts for one, and fails to share memory between them.
    """
    return len({host.boot for host in hosts}) < len(hosts)


def open_mpi_settings(interface: str, *, only_interface: bool) -> dict[str, str]:
    """The variables for Open MPI 4 and 5, which have the same names in neither, and harm the other in none.

    Sockets use ``interface``. Workers of one host share memory, and hosts use RDMA where Open MPI finds it, unless
    ``only_interface``.
    """
    common = {"btl_tcp_if_include": interface, "mpi_yield_when_idle": "1"}
    if only_interface:
        common |= {"pml": "ob1", "btl": "^openib,uct,ofi,usnic"}
    old = {"plm": "rsh", "plm_rsh_agent": "{agent}", "plm_rsh_no_tree_spawn": "1", "oob_tcp_if_include": interface}
    new = {"plm_ssh_agent": "{agent}", "plm_ssh_no_tree_spawn": "1", "prte_if_include": interface}
    return {
        **{f"OMPI_MCA_{name}": value for name, value in {**common, **old}.items()},
        **{f"PRTE_MCA_{name}": value for name, value in new.items()},
    }


def with_transports(start: Start) -> list[str]:
    """Return the command of an mpiexec as a launch's record keeps it: with the network settings of its environment."""
    said = {name: value for name, value in start["environment"].items() if name.startswith(_TRANSPORTS)}
    return ["env", *(f"{name}={value}" for name, value in sorted(said.items())), *start["argv"]]


def plan_message(request: Request, hosts: Sequence[FoundHost], silence_s: float) -> dict[str, Any]:
    """Return the first message to all host agents."""
    return {
        "hosts": [host.name for host in hosts],
        "folder": str(request.folder.absolute()),
        "silence_s": silence_s,
        "stripped": foreign_variables(),
    }


def processes(
    request: Request, hosts: Sequence[FoundHost], reach: Reach, marker: str, ports: Sequence[int]
) -> list[Process]:
    """Return the processes that reach the hosts, with the variables that the launch's processes have in common.

    The ports are examples: each host chooses free ones when the launch begins.
    """
    cluster = cluster_of(request)
    given = [list(ports[: ports_needed(request, cluster, host)]) for host in range(len(hosts))]
    shared = _shared(request, hosts, cluster, marker, given)
    role = {**variables_on(request, hosts, cluster, 0), "STEPTIME_ROLE": "worker"}
    return [Process(name, tuple(argv), {**shared, **role}) for name, argv in reach_commands(hosts, reach).items()]
