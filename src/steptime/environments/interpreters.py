"""The kinds that make nothing: an interpreter of the user's own, and steptime's."""

import platform
import sys
from functools import cache
from pathlib import Path

from steptime.environments.fingerprint import packages
from steptime.environments.spec import EnvironmentSpec, Making, ReadyEnvironment
from steptime.environments.subprocesses import ask, fingerprint_of
from steptime.errors import EnvironmentFailure

_OLDEST = (3, 6)
_VERIFY_LIMIT_S = 600.0


class Existing:
    """An interpreter in which the user has installed the framework; it is verified and never changed."""

    def find_ready(self, spec: EnvironmentSpec, cache: Path) -> ReadyEnvironment | None:  # noqa: ARG002 - it has none
        """Return the interpreter if it works; verified once per process."""
        try:
            return self._verified(spec)
        except EnvironmentFailure:
            return None

    def create(self, spec: EnvironmentSpec, making: Making) -> ReadyEnvironment:
        """Return the interpreter; raises EnvironmentFailure, with what it said, when it does not work."""
        making.progress("verifying")
        return self._verified(spec)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:  # noqa: ARG002 - it has none
        """Return nothing: it lies outside the cache."""
        return []

    def _verified(self, spec: EnvironmentSpec) -> ReadyEnvironment:
        if spec.interpreter is None:
            message = f"the environment of {spec.name} is an existing one, but no interpreter is given for it"
            raise EnvironmentFailure(message)
        version, found = _look_at(spec.name, spec.interpreter, spec.verify)
        return ReadyEnvironment(spec.name, "existing", spec.interpreter, version, found)


class Core:
    """steptime's own interpreter, for what needs nothing installed."""

    def find_ready(self, spec: EnvironmentSpec, cache: Path) -> ReadyEnvironment:  # noqa: ARG002 - it has none
        """Return this process's interpreter."""
        return ReadyEnvironment(spec.name, "core", Path(sys.executable), platform.python_version(), _own_packages())

    def create(self, spec: EnvironmentSpec, making: Making) -> ReadyEnvironment:
        """Return this process's interpreter; raises EnvironmentFailure when the code that verifies fails."""
        if spec.verify:
            making.progress("verifying")
            _look_at(spec.name, Path(sys.executable), spec.verify)
        return self.find_ready(spec, making.cache)

    def addresses(self, spec: EnvironmentSpec, cache: Path) -> list[Path]:  # noqa: ARG002 - it has none
        """Return nothing: it lies outside the cache."""
        return []


@cache
def _own_packages() -> dict[str, str]:
    return packages()


@cache
def _look_at(name: str, interpreter: Path, verify: str) -> tuple[str, dict[str, str]]:
    """Return the version and the packages of a working interpreter."""
    said = fingerprint_of(interpreter)
    version = str(said["python"])
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        message = f"{interpreter} is Python {version}; {name} needs 3.6 or newer"
        raise EnvironmentFailure(message)
    if verify:
        code, answer = ask([interpreter, "-I", "-c", verify], _VERIFY_LIMIT_S)
        if code:
            lines = "".join(f"\n  | {line}" for line in answer.splitlines()[-12:])
            message = f"{name} does not work in {interpreter} (exit code {code}):{lines}\ntried: {verify.strip()}"
            raise EnvironmentFailure(message)
    return version, said["packages"]
