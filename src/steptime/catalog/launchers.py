"""steptime's own launchers, by name, and the keys of a study that mean something to each; their code is elsewhere."""

from collections.abc import Mapping

AUTO = "auto"
"""What fits, of launchers as of the other things that a study names: here, what its hosts and strategies need."""
EMULATED = "emulated"
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    EMULATED: ("cluster",),
    "inline": (),
    "local": (),
    "mpi": ("hosts", "slurm"),
    "slurm": ("hosts", "slurm"),
    "ssh": ("hosts",),
}


def launchers_with(key: str) -> list[str]:
    """Return ``auto`` and the launchers to which a ``key`` of a study means something."""
    return [AUTO, *(name for name, keys in LAUNCHERS.items() if key in keys)]
