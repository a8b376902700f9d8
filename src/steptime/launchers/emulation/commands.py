"""The commands of a launch whose processes run on several hosts; pure, so that a plan can be printed."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from steptime.catalog.cluster import Cluster
from steptime.launchers.emulation.network import INTERFACE, address, host_name
from steptime.launchers.mpiexec import find_mpiexec, is_open_mpi, open_mpi_flags
from steptime.launchers.namespaces import ENTRY
from steptime.launchers.process_env import cores_in_words, pins, server_pins, shared_variables
from steptime.launchers.request import Process, Request

PLAN = "hosts.json"
"""In the run folder: what a process must know to become a host's."""
AGENT = "on-host.sh"
"""In the run folder: what an mpiexec calls instead of ssh."""


def enter_command(plan: str, host: int, program: Sequence[str], *, leading: bool = False) -> tuple[str, ...]:
    """Return the command that runs ``program`` on a host; ``leading`` where it must reach other hosts from there."""
    return (sys.executable, "-I", "-S", ENTRY, plan, f"{'+' * leading}{host}", *program)


def agent_script(folder: Path) -> str:
    """Return the program that an mpiexec calls as ``on-host.sh [OPTION …] HOST COMMAND …`` to reach a host."""
    begin = shlex.join((sys.executable, "-I", "-S", ENTRY, str(folder / PLAN)))
    return f"""#!/bin/sh
# Reaches an emulated host, as ssh would a real one.
while [ "${{1#-}}" != "$1" ]; do shift; done
host="${{1#h}}"; shift
exec {begin} "$host" /bin/sh -c "$*"
"""


def processes(request: Request, cluster: Cluster, marker: str, ports: Sequence[int]) -> list[Process]:
    """Return the processes in the order of their start; raises LaunchError where an mpiexec is needed and missing."""
    shared = {**shared_variables(request, marker, address(0), ports), **_addresses(request, cluster, ports)}
    if request.mpi:
        return [_mpiexec(request, cluster, shared)]
    roles = [("scheduler", 0)] if request.scheduler else []
    roles += [("server", rank) for rank in range(request.servers)]
    roles += [("worker", rank) for rank in range(request.workers)]
    found = []
    for role, rank in roles:
        host = cluster.host_of(role, rank)
        count = {"worker": request.workers, "server": request.servers}.get(role, 1)
        variables = {
            **shared,
            **cores_on(request, cluster, host),
            "STEPTIME_ROLE": role,
            "STEPTIME_RANK": str(rank),
            "STEPTIME_LOCAL_RANK": str(cluster.ranks_on(host, role, count).index(rank)),
        }
        argv = enter_command(PLAN, host, request.command)
        found.append(Process(f"{role}-{rank}", argv, variables))
    return found


def _addresses(request: Request, cluster: Cluster, ports: Sequence[int]) -> dict[str, str]:
    ranks = [("worker", rank) for rank in range(request.workers)]
    ranks += [("server", rank) for rank in range(request.servers)]
    places = [
        f"{address(cluster.host_of(role, rank))}:{port}" for (role, rank), port in zip(ranks, ports[1:], strict=False)
    ]
    return {
        "STEPTIME_INTERFACE": INTERFACE,
        "STEPTIME_WORKER_ADDRESSES": ",".join(places[: request.workers]),
        "STEPTIME_SERVER_ADDRESSES": ",".join(places[request.workers :]),
    }


def cores_on(request: Request, cluster: Cluster, host: int) -> dict[str, str]:
    """Return the variables that tell the processes of one host their cores, in the order of their local ranks."""
    workers, servers = pins(request), server_pins(request)
    return {
        "STEPTIME_CPUS": cores_in_words(workers[rank] for rank in cluster.ranks_on(host, "worker", len(workers))),
        "STEPTIME_SERVER_CPUS": cores_in_words(
            servers[rank] for rank in cluster.ranks_on(host, "server", len(servers))
        ),
    }


def _mpiexec(request: Request, cluster: Cluster, shared: dict[str, str]) -> Process:
    """One mpiexec on the first host, which starts the workers of all hosts."""
    mpiexec = find_mpiexec(request.interpreter, request.container)
    hosts = range(cluster.worker_hosts)
    counts = [len(cluster.ranks_on(host, "worker", request.workers)) for host in hosts]
    slots = ",".join(f"{host_name(host)}:{count}" for host, count in zip(hosts, counts, strict=True))
    agent = str(request.folder.absolute() / AGENT)
    program = request.command
    if is_open_mpi(mpiexec):
        argv = [str(mpiexec), *open_mpi_flags(mpiexec), "-H", slots, "-n", str(request.workers), *program]
        shared = {**shared, **_open_mpi_settings(agent)}
    else:
        argv = [str(mpiexec), "-launcher", "ssh", "-launcher-exec", agent, "-iface", INTERFACE]
        argv += ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", INTERFACE, "-hosts", slots]
        for host, count in zip(hosts, counts, strict=True):
            # MPICH gives all workers the variables of its mpiexec; what differs by host only a part of its own can say.
            argv += [*([":"] if host else []), "-n", str(count)]
            for name, value in cores_on(request, cluster, host).items():
                argv += ["-env", name, value]
            argv += program
    return Process("mpiexec", enter_command(PLAN, 0, argv, leading=True), {**shared, "STEPTIME_ROLE": "worker"})


def _open_mpi_settings(agent: str) -> dict[str, str]:
    """The variables for Open MPI 4 and 5, which have the same names in neither, and harm the other in none."""
    common = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": INTERFACE, "mpi_yield_when_idle": "1"}
    old = {"plm_rsh_agent": agent, "oob_tcp_if_include": INTERFACE}
    new = {"plm_ssh_agent": agent, "prte_if_include": INTERFACE}
    return {
        **{f"OMPI_MCA_{name}": value for name, value in {**common, **old}.items()},
        **{f"PRTE_MCA_{name}": value for name, value in new.items()},
    }
