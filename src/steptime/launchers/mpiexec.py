"""The mpiexec of an environment, and what its family asks for."""

import shutil
from pathlib import Path

from steptime.errors import LaunchError


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
