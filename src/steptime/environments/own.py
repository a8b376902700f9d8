"""Environments of steptime's own: found in the cache by their content, made by whichever tool."""

from pathlib import Path

from steptime.environments.building import Build
from steptime.environments.cache import address
from steptime.environments.locking import only_maker
from steptime.environments.marker import read_marker, ready_at
from steptime.environments.pythons import choose_python
from steptime.environments.spec import EnvironmentSpec, Making, ReadyEnvironment
from steptime.environments.tools import Tool
from steptime.errors import EnvironmentFailure


class Own:
    """A kind of environment that lies in the cache."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def find_ready(self, spec: EnvironmentSpec, cache: Path) -> ReadyEnvironment | None:
        """Return the environment of ``spec`` for the first of its Pythons that has one; starts no process."""
        return next(filter(None, (ready_at(folder, spec) for folder in self.addresses(spec, cache))), None)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:
        """Return the folders where an environment of ``spec`` may lie."""
        return [address(spec, version, cache) for version in spec.pythons]

    def create(self, spec: EnvironmentSpec, making: Making) -> ReadyEnvironment:
        """Return the environment of ``spec``, made if need be.

        Raises EnvironmentFailure when it cannot be made; nothing of it is left then but its log.
        """
        if ready := self.find_ready(spec, making.cache):
            return ready
        python, version = choose_python(spec.name, spec.pythons)
        folder = address(spec, version, making.cache)
        build = Build(self._tool, spec, making, folder)
        try:
            with only_maker(folder, lambda: making.progress("waiting for another process"), making.cancelled):
                # Somebody else may have made it while this process waited for the lock.
                if ready_at(folder, spec) is None:
                    marker = read_marker(folder)
                    if marker is None:
                        build.make(python, version)
                    else:
                        build.verify_again(marker)
        except OSError as error:
            raise EnvironmentFailure(_unwritable(spec, folder, error)) from error
        ready = ready_at(folder, spec)
        if ready is None:
            message = f"the environment of {spec.name} was made but is gone from {folder}; is something cleaning it up?"
            raise EnvironmentFailure(message)
        return ready


def _unwritable(spec: EnvironmentSpec, folder: Path, error: OSError) -> str:
    return (
        f"the environment of {spec.name} cannot be made at {folder}: {error.strerror or error} "
        f"({error.filename or folder}); free space there, or set STEPTIME_CACHE to a folder that you may write to"
    )
