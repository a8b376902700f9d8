"""The names that a study may use: those of the catalog, of built-in datasets, and of plug-ins."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.catalog.choices import LAUNCHERS, SYNTHETIC
from steptime.catalog.manifest import Manifest, broken_frameworks, load_manifests
from steptime.catalog.plugins import own_and_plugins
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.builtins import BUILTINS


@dataclass(frozen=True)
class KnownNames:
    """All names, by what they name."""

    frameworks: Mapping[str, Manifest]
    workloads: tuple[str, ...]
    datasets: tuple[str, ...]
    """The built-in ones; a study may also name a folder."""
    launchers: tuple[str, ...]
    broken_frameworks: Mapping[str, str] = field(default_factory=dict)
    """Why a framework that another distribution brings cannot be used, by its name."""

    @classmethod
    def installed(cls) -> "KnownNames":
        """Return the names of everything that is installed; raises PluginError when a name is given twice."""
        return cls(
            frameworks=load_manifests(),
            workloads=tuple(LIBRARY),
            datasets=tuple(BUILTINS),
            launchers=(*LAUNCHERS, *own_and_plugins("launcher", LAUNCHERS)),
            broken_frameworks=broken_frameworks(),
        )

    @property
    def strategies(self) -> list[str]:
        """What any framework knows."""
        return sorted({name for manifest in self.frameworks.values() for name in manifest.strategies})

    @property
    def loaders(self) -> list[str]:
        """What any framework knows, and ``synthetic``."""
        return sorted({SYNTHETIC.name} | {name for manifest in self.frameworks.values() for name in manifest.loaders})
