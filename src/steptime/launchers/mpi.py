"""The launcher ``mpi``: workers started by ``mpiexec``, as MPI-based frameworks need."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from steptime.launchers.base import LOCALHOST, AbstractLauncher
from steptime.launchers.hosts.launch import planned_on_hosts, run_on_hosts
from steptime.launchers.isolation import entry_of, isolation_on_this_host
from steptime.launchers.mpiexec import find_mpiexec, is_open_mpi, missing_mpiexec, open_mpi_flags
from steptime.launchers.process_env import shared_variables
from steptime.launchers.request import Isolation, LaunchOutcome, Process, Request

_INTERFACE = "lo"
_MPICH_FLAGS = ("-iface", _INTERFACE)
_OPEN_MPI_SETTINGS = {
    "OMPI_MCA_btl_tcp_if_include": _INTERFACE,
    "OMPI_MCA_oob_tcp_if_include": _INTERFACE,
    "PRTE_MCA_prte_if_include": _INTERFACE,
}
"""For Open MPI 4 and 5; they keep its sockets from interfaces that others can reach."""


class MpiLauncher(AbstractLauncher):
    """Starts one ``mpiexec`` that starts the workers; the environment's own is preferred to the system's.

    A launcher and a library of different MPI families do not work together, and the environment's library came
    with the environment's launcher. On the hosts of a site, the mpiexec runs on the first, and has agents of ssh or
    Slurm start its processes on the others.
    """

    name = "mpi"
    summary = "workers started by the mpiexec of the framework's environment, or else the system's"

    def isolation(self, wanted: Isolation) -> str | None:
        return isolation_on_this_host(wanted)

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        if request.site is not None:
            return planned_on_hosts(replace(request, mpi=True), self.name, marker, ports)
        shared = shared_variables(request, marker, LOCALHOST, ports)
        mpiexec = find_mpiexec(request.interpreter, request.container)
        tether = "steptime/worker/tether.py"  # mpiexec knows nothing of its parent; the tether ties it
        argv = (
            sys.executable if request.container else str(request.interpreter),
            tether,
            str(mpiexec),
            *(open_mpi_flags(mpiexec) if is_open_mpi(mpiexec) else _MPICH_FLAGS),
            "-n",
            str(request.workers),
            *request.command,
        )
        variables = {**shared, **_OPEN_MPI_SETTINGS, "STEPTIME_ROLE": "worker"}
        return [Process("mpiexec", argv, variables, entry_of(request))]

    def missing_requirement(self, request: Request) -> str | None:
        reason = missing_mpiexec(request)
        return reason if reason is None or request.mpi else f"{reason}; launcher=auto starts these workers without one"

    def run(self, request: Request) -> LaunchOutcome:
        if request.site is not None:
            return run_on_hosts(replace(request, mpi=True), self.name)
        return super().run(request)
