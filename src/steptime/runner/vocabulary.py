"""The names that a study may use, gathered from the packages that define them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from steptime.datasets.builtins import BUILTINS
from steptime.environments.kinds import KINDS
from steptime.frameworks.manifest import Manifest, broken_frameworks, load_manifests
from steptime.launchers.table import LAUNCHERS
from steptime.study.study import Study
from steptime.study.study_file import read_study
from steptime.study.unknown_names import FrameworkFacts, Vocabulary
from steptime.workloads.table import LIBRARY


def read(
    path_or_name: str | Path, overrides: Sequence[str] = (), text: str | None = None, paths_from: Path | None = None
) -> Study:
    """Read a study, as ``study.study_file.read_study`` does, with all names that this installation knows."""
    return read_study(path_or_name, overrides, full_vocabulary(load_manifests()), text, paths_from)


def full_vocabulary(manifests: Mapping[str, Manifest]) -> Vocabulary:
    """Return the names of everything that is installed."""
    names = vocabulary_of(manifests, workloads=LIBRARY, datasets=BUILTINS, launchers=LAUNCHERS, environment_kinds=KINDS)
    return replace(names, broken_frameworks=broken_frameworks())


def vocabulary_of(
    manifests: Mapping[str, Manifest],
    *,
    workloads: Iterable[str],
    datasets: Iterable[str],
    launchers: Iterable[str],
    environment_kinds: Iterable[str],
) -> Vocabulary:
    """Return the vocabulary that manifests and names make."""
    return Vocabulary(
        frameworks={name: _facts(manifest) for name, manifest in manifests.items()},
        workloads=tuple(workloads),
        datasets=tuple(datasets),
        launchers=tuple(launchers),
        environment_kinds=tuple(environment_kinds),
    )


def _facts(manifest: Manifest) -> FrameworkFacts:
    return FrameworkFacts(
        strategies=tuple(manifest.strategies),
        devices=tuple(manifest.devices),
        precisions=tuple(manifest.precisions),
        loaders=tuple(manifest.loaders),
        options={name: option.facts for name, option in manifest.options.items()},
    )
