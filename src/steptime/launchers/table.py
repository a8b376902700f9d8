"""All launchers, by name."""

from steptime.errors import UsageError, choices_message
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.emulated import EmulatedLauncher
from steptime.launchers.inline import InlineLauncher
from steptime.launchers.local import LocalLauncher
from steptime.launchers.mpi import MpiLauncher

LAUNCHERS: dict[str, type[AbstractLauncher]] = {
    launcher.name: launcher for launcher in (EmulatedLauncher, InlineLauncher, LocalLauncher, MpiLauncher)
}


def launcher_named(name: str) -> AbstractLauncher:
    """Return the launcher ``name``; raises UsageError with the choices for an unknown one."""
    if name not in LAUNCHERS:
        raise UsageError(choices_message("launcher", name, LAUNCHERS))
    return LAUNCHERS[name]()
