"""The launchers by name: steptime's own, and those of plug-ins."""

from steptime.errors import UsageError, choices_message
from steptime.launchers.base import AbstractLauncher
from steptime.launchers.emulated import EmulatedLauncher
from steptime.launchers.inline import InlineLauncher
from steptime.launchers.local import LocalLauncher
from steptime.launchers.mpi import MpiLauncher
from steptime.launchers.ssh_and_slurm import SlurmLauncher, SshLauncher
from steptime.plugins import Registry

_OWN: dict[str, type[AbstractLauncher]] = {
    launcher.name: launcher
    for launcher in (EmulatedLauncher, InlineLauncher, LocalLauncher, MpiLauncher, SlurmLauncher, SshLauncher)
}
LAUNCHERS = Registry(
    "launcher",
    _OWN,
    lambda found: isinstance(found, type) and issubclass(found, AbstractLauncher),
    "a subclass of steptime.launchers.base.AbstractLauncher",
)


def launcher_named(name: str) -> AbstractLauncher:
    """Return the launcher ``name``.

    Raises UsageError with the choices for an unknown name, PluginError for a plug-in that cannot be used.
    """
    if name not in LAUNCHERS:
        raise UsageError(choices_message("launcher", name, LAUNCHERS))
    return LAUNCHERS[name]()
