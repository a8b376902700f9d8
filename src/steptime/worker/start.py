"""The first file that runs in a run folder: ``python start.py job.json``."""

import ctypes
import os
import signal
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from steptime.worker.main import run_process

    code = run_process(sys.argv[1])
    sys.stdout.flush()
    if code == 0 and "PMI_RANK" in os.environ:
        # MPICH takes leave of its mpiexec in an exit handler of the C library, later than MPI_Finalize. mpiexec takes
        # a process that skips it for a dead one and kills the others, without a failure in its own exit code.
        ctypes.PyDLL(None).exit(code)
    if code and "PMI_RANK" in os.environ:
        # A process that fails before it has joined MPI is no failure to MPICH's mpiexec as long as the others run, and
        # they wait for it. One that a signal ends is, at any moment.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    # Frameworks leave threads behind whose destructors abort at exit; the records are already on disk.
    os._exit(code)
