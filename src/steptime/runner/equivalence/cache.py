"""The kept results of checks: a check is repeated when anything that it depends on has changed."""

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import steptime
from steptime.catalog.manifest import Manifest
from steptime.catalog.workloads.layers import Workload
from steptime.environments.kinds import ReadyEnvironment
from steptime.measurements.machine import fingerprint
from steptime.measurements.records import EquivalenceResult, read_equivalence
from steptime.study.trial import Trial

_PACKAGE = Path(steptime.__file__).parent
_OF_MACHINE = ("cpu", "architecture", "gpus", "gpu_driver")
"""Facts of a machine on which the result of a check depends."""
_PARTIAL = ".partial"
_ABANDONED_S = 60.0
"""Since a partial file was written: whoever wrote it is gone, since it is written in one piece and renamed."""


class CheckCache:
    """One small file per check; only passed checks are kept, so that a failure is always looked at afresh."""

    def __init__(
        self, folder: Path, reference: Manifest, package: Path = _PACKAGE, machine: Mapping[str, Any] | None = None
    ) -> None:
        """Open the cache.

        Args:
            folder: of the files; made when the first is kept.
            reference: the manifest of the framework that all others are compared with.
            package: steptime's own folder, with the code of workers and libraries.
            machine: as ``fingerprint`` returns it; this one by default.
        """
        machine = fingerprint() if machine is None else machine
        # The same code computes in other ways on another processor or GPU, and with another driver.
        self._machine = json.dumps([machine.get(name) for name in _OF_MACHINE])
        self._folder = folder
        self._package = package
        own = package / "runner" / "equivalence"
        self._shared = _digest_files(package / "worker") + _digest_files(own) + self._digest_framework(reference)

    def key(self, trial: Trial, workload: Workload, manifest: Manifest, ready: ReadyEnvironment, setting: str) -> str:
        """Return the name under which a check is kept.

        It covers the code of the check, of the worker half, of both frameworks and of the libraries that they share,
        the environment's packages, the machine's processor, GPUs and driver, the workload, the configuration and
        ``setting``, which describes the check.
        """
        parts = [
            self._shared,
            self._machine,
            self._digest_framework(manifest),
            json.dumps(ready.packages, sort_keys=True),
            ready.python_version,
            json.dumps(workload.to_json(), sort_keys=True),
            trial.model_dump_json(),
            setting,
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def get(self, key: str) -> EquivalenceResult | None:
        """Return the kept result; None when there is none, it cannot be read, or it is none of a passed check."""
        try:
            kept = read_equivalence((self._folder / f"{key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return kept if kept.passed is True else None

    def put(self, key: str, result: EquivalenceResult) -> str | None:
        """Keep ``result`` if it passed; return why the cache cannot keep it, where that is so.

        A cache that cannot be written (another user's, a read-only one) costs a repetition of the check, not the run.
        Every writer has a partial file of its own, since several may keep the same check at once.
        """
        if not result.passed:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._folder, prefix=f"{key}.", suffix=_PARTIAL, delete=False
            ) as file:
                try:
                    file.write(json.dumps(result.to_json()))
                    file.close()
                    Path(file.name).replace(self._folder / f"{key}.json")
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
            self._remove_abandoned()
        except OSError as error:
            return f"checks cannot be kept in {self._folder} ({error.strerror}), so that the next run repeats them"
        return None

    def _remove_abandoned(self) -> None:
        """Remove the partial files of processes that were killed while they wrote one."""
        for partial in self._folder.glob(f"*{_PARTIAL}"):
            with contextlib.suppress(OSError):
                if time.time() - partial.stat().st_mtime > _ABANDONED_S:
                    partial.unlink()

    def _digest_framework(self, manifest: Manifest) -> str:
        libraries = (self._package / "libraries" / name for name in manifest.libraries)
        return "".join(map(_digest_files, [manifest.folder, *libraries]))


def _digest_files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml"), *folder.rglob("*.txt")]):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
