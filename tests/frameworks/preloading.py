"""Workers of tests that start with their framework imported: most of a short launch's time is the import.

Every strategy of every framework is also started as usual by the contract suite, with timed steps.
"""

from pathlib import Path

from steptime.catalog.manifest import load_manifests
from steptime.launchers.fork_servers import Preloading
from steptime.launchers.request import Request


class _Kept(Preloading):
    """Lasts from one test to the next."""

    def close(self) -> None:
        """Do nothing: it ends with this process."""


PRELOADING = _Kept()


def preloaded_interpreter(framework: str, interpreter: Path, threads: int = 1) -> Path:
    """Return a program that runs a script of a process, whose STEPTIME_ROLE is set, with the framework imported.

    Args:
        framework: by its name.
        interpreter: the Python of the framework's environment, which is returned where it cannot be preloaded.
        threads: of a worker; the import gets the environment of one that has as many.
    """
    return PRELOADING.request(Request(Path(), interpreter, 1, threads=threads), load_manifests()[framework]).interpreter
