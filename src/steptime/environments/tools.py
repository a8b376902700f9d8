"""The seam between the making of environments and the tools that can do it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from steptime.environments.spec import EnvironmentSpec


@dataclass(frozen=True)
class Command:
    """One step of the making."""

    stage: str
    """What it does, for people."""
    command: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its own."""


class Tool(Protocol):
    """What makes environments. A tool only says which commands do it; it runs none."""

    @property
    def kind(self) -> str:
        """Its key in ``table.KINDS``."""
        ...

    def commands(self, spec: EnvironmentSpec, python: Path, version: str, folder: Path) -> Iterator[Command]:
        """Yield the commands that make the environment of ``spec`` at ``folder``, in their order."""
        ...

    def conflicts(self, folder: Path) -> list[str | Path]:
        """Return the command that prints distributions whose requirements are not met."""
        ...
