"""The mpiexec of an environment, and what its family asks for."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.errors import LaunchError

if TYPE_CHECKING:  # a host agent imports this file, where nothing but the standard library is installed
    from steptime.catalog.found_site import FoundHost
    from steptime.launchers.request import Request

OPEN_MPI_FLAGS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
"""Open MPI refuses root and more workers than cores unless told otherwise."""


def find_mpiexec(interpreter: Path, container: Sequence[str] = (), host: "FoundHost | None" = None) -> Path:
    """Return the mpiexec next to ``interpreter``, or else the system's; raises LaunchError where there is neither.

    That of a container cannot start others on its host: the system's starts each worker in a container of its own.
    What is next to an interpreter lies at the same path on all hosts; the system's is that of ``host`` where this was
    probed, and otherwise this host's.
    """
    probed = host is not None and host.is_probed
    system = host.mpiexec if host is not None and probed else shutil.which("mpiexec")
    searched, there = (f"PATH of {host.name}", " there") if host is not None and probed else ("PATH", "")
    own = interpreter.parent / "mpiexec"
    path = str(own) if own.exists() and not container else system
    if path is None and container:
        message = (
            f"no mpiexec on {searched}, by which each worker is started in {shlex.join(container)}; install one of the "
            "family that the container's MPI is of (Debian's packages are mpich and openmpi-bin)"
        )
        raise LaunchError(message)
    if path is None:
        message = (
            f"no mpiexec beside {interpreter} or on {searched}; install Debian's package mpich{there}, or, into an "
            "environment of your own, the wheel 'mpich'"
        )
        raise LaunchError(message)
    return Path(path)


def missing_mpiexec(request: "Request") -> str | None:
    """Say in a sentence why no mpiexec can start the workers of a launch; None if one can.

    None also before the first host of its site, on which the mpiexec runs, was asked whether it has one.
    """
    host = request.site.hosts[0] if request.site else None
    if host is not None and not host.is_probed:
        return None
    try:
        find_mpiexec(request.interpreter, request.container, host)
    except LaunchError as error:
        return str(error)
    return None


def open_mpi_flags(path: Path) -> tuple[str, ...]:
    """Return what an mpiexec must be told where it is Open MPI's; MPICH knows none of it."""
    return OPEN_MPI_FLAGS if is_open_mpi(path) else ()


def is_open_mpi(mpiexec: Path) -> bool:
    """Whether an mpiexec is Open MPI's, and not one of MPICH's family."""
    path = mpiexec.resolve()
    return (
        path.name in ("orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi") or (path.parent / "ompi_info").exists()
    )
