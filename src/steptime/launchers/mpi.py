"""The launcher ``mpi``: workers started by ``mpiexec``, as MPI-based frameworks need."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from steptime.errors import LaunchError
from steptime.launchers.base import LOCALHOST, AbstractLauncher
from steptime.launchers.isolation import entry_of, isolation_on_this_host
from steptime.launchers.process_env import shared_variables
from steptime.launchers.request import Isolation, Process, Request

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
    with the environment's launcher.
    """

    name = "mpi"
    summary = "workers started by the mpiexec of the framework's environment, or else the system's"

    def isolation(self, wanted: Isolation) -> str | None:
        return isolation_on_this_host(wanted)

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        shared = shared_variables(request, marker, LOCALHOST, ports)
        interpreter = str(request.interpreter)
        mpiexec = find_mpiexec(request.interpreter)
        tether = "steptime/worker/tether.py"  # mpiexec knows nothing of its parent; the tether ties it
        argv = (
            interpreter,
            tether,
            str(mpiexec),
            *(open_mpi_flags(mpiexec) if is_open_mpi(mpiexec) else _MPICH_FLAGS),
            "-n",
            str(request.workers),
            interpreter,
            "start.py",
            "job.json",
        )
        variables = {**shared, **_OPEN_MPI_SETTINGS, "STEPTIME_ROLE": "worker"}
        return [Process("mpiexec", argv, variables, entry_of(request))]


def find_mpiexec(interpreter: Path) -> Path:
    """Return the mpiexec next to ``interpreter``, or else the system's; raises LaunchError where there is neither."""
    own = interpreter.parent / "mpiexec"
    path = str(own) if own.exists() else shutil.which("mpiexec")
    if path is None:
        message = (
            f"no mpiexec beside {interpreter} or on PATH; install the wheel 'mpich' into the environment, "
            "or Debian's package mpich"
        )
        raise LaunchError(message)
    return Path(path)


def open_mpi_flags(path: Path) -> tuple[str, ...]:
    """Open MPI refuses root and more workers than cores unless told otherwise; MPICH knows neither flag."""
    return ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none") if is_open_mpi(path) else ()


def is_open_mpi(mpiexec: Path) -> bool:
    """Whether an mpiexec is Open MPI's, and not one of MPICH's family."""
    path = mpiexec.resolve()
    return (
        path.name in ("orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi") or (path.parent / "ompi_info").exists()
    )
