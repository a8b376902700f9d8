"""The first file that runs in a run folder: ``python start.py job.json``."""

import ctypes
import glob
import json
import os
import signal
import sys
import sysconfig
from typing import List

LEFT_OUT = "STEPTIME_LIBRARY_PATH_LEFT_OUT"
"""A variable of a worker's own: the folders that it does without."""


def hiding_folders(library_path: str, packages: str) -> List[str]:
    """Return the folders of a library path that hide libraries of NVIDIA's wheels: they hold others of the same names.

    The system's loader looks through ``LD_LIBRARY_PATH`` first, so that a framework would be run with another cuDNN
    than the one that was installed with it.

    Args:
        library_path: the value of ``LD_LIBRARY_PATH``.
        packages: the folder of an environment's packages.
    """
    own = {os.path.basename(path) for path in glob.glob(os.path.join(packages, "nvidia", "*", "lib", "*.so*"))}
    folders = [folder for folder in library_path.split(os.pathsep) if folder]
    return [folder for folder in folders if os.path.isdir(folder) and not own.isdisjoint(os.listdir(folder))]


def keep_own_libraries(job_path: str) -> None:
    """Begin this process anew where the library path would give a job for CUDA devices libraries of others."""
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    if not library_path or LEFT_OUT in os.environ:
        return
    with open(job_path) as file:
        if json.load(file).get("device") != "cuda":
            return
    hiding = hiding_folders(library_path, sysconfig.get_paths()["purelib"])
    if hiding:
        kept = [folder for folder in library_path.split(os.pathsep) if folder not in hiding]
        os.environ.update({"LD_LIBRARY_PATH": os.pathsep.join(kept), LEFT_OUT: os.pathsep.join(hiding)})
        os.execv(sys.executable, [sys.executable] + sys.argv)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    keep_own_libraries(sys.argv[1])
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from steptime.worker.main import run_process

    code = run_process(sys.argv[1])
    sys.stdout.flush()
    if code == 0 and "PMI_RANK" in os.environ:
        # MPICH takes leave of its mpiexec in an exit handler of the C library, later than MPI_Finalize. mpiexec takes
        # a process that skips it for a dead one and kills the others, without a failure in its own exit code.
        ctypes.PyDLL(None).exit(code)
    if code and "PMI_RANK" in os.environ:
        # A process that fails before it has joined MPI is not a failure to MPICH's mpiexec as long as the others run,
        # and they wait for it. One that a signal ends is, at any moment.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    # Frameworks leave threads behind whose destructors abort at exit; the records are already on disk.
    os._exit(code)
