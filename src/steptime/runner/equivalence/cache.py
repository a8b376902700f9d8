"""The kept results of checks: a check is repeated when anything that it depends on has changed."""

import hashlib
import json
from pathlib import Path

import steptime
from steptime.environments.kinds import ReadyEnvironment
from steptime.frameworks.manifest import Manifest
from steptime.measurements.records import EquivalenceResult
from steptime.study.trial import Trial
from steptime.workloads.layers import Workload

_PACKAGE = Path(steptime.__file__).parent


class CheckCache:
    """One small file per check; only passed checks are kept, so that a failure is always looked at afresh."""

    def __init__(self, folder: Path, reference: Manifest, package: Path = _PACKAGE) -> None:
        """Open the cache.

        Args:
            folder: of the files; made when the first is kept.
            reference: the manifest of the framework that all others are compared with.
            package: steptime's own folder, with the code of workers and libraries.
        """
        self._folder = folder
        self._package = package
        self._shared = _digest_files(package / "worker") + self._digest_framework(reference)

    def key(self, trial: Trial, workload: Workload, manifest: Manifest, ready: ReadyEnvironment, setting: str) -> str:
        """Return the name under which a check is kept.

        It covers the code of the worker half, of both frameworks and of the libraries that they share, the
        environment's packages, the workload, the configuration and ``setting``, which says how the check is done.
        """
        parts = [
            self._shared,
            self._digest_framework(manifest),
            json.dumps(ready.packages, sort_keys=True),
            ready.python_version,
            json.dumps(workload.to_json(), sort_keys=True),
            trial.model_dump_json(),
            setting,
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def get(self, key: str) -> EquivalenceResult | None:
        """Return the kept result; None when there is none or it cannot be read."""
        try:
            return EquivalenceResult.from_json(json.loads((self._folder / f"{key}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, result: EquivalenceResult) -> None:
        """Keep ``result`` if it passed."""
        if not result.passed:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{key}.partial"
        partial.write_text(json.dumps(result.to_json()))
        partial.rename(self._folder / f"{key}.json")

    def _digest_framework(self, manifest: Manifest) -> str:
        libraries = (self._package / "libraries" / name for name in manifest.libraries)
        return "".join(map(_digest_files, [manifest.folder, *libraries]))


def _digest_files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml"), *folder.rglob("*.txt")]):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
