"""The run folder of a launch: where it lies, and how it is filled before the launch.

A run folder holds everything that a launch needs and nothing else; its processes write their records into it.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import steptime
from steptime.plain_file import PlainFolder, entries_below
from steptime.study.trial import Trial

_ROOT = Path(steptime.__file__).parent
_SECRET_BYTES = 32
_NO_CODE = {".md", ".toml", ".txt", ".lock"}
_TAIL_LINES = 40
"""Lines of a standard error that are kept."""


def trial_run_folder(
    results: Path, trial: Trial, kind: Literal["launch", "ablation", "loader", "training", "checkpoint"], number: int
) -> Path:
    """Return the run folder of a trial's launch ``number`` of a kind, within the results folder."""
    return results / "trials" / trial.id / f"{kind}-{number}"


def make_run_folder(
    folder: Path, framework_folder: Path, job: Mapping[str, Any], libraries: Sequence[str] = (), name: str = ""
) -> Path:
    """Fill ``folder`` with ``start.py``, ``job.json`` and the code that a process of the launch imports.

    That is the worker half, one framework's folder, and the libraries that it shares; nothing else of steptime.

    Args:
        folder: the run folder, which exists.
        framework_folder: the framework's own, wherever it lies.
        job: what ``job.json`` will hold.
        libraries: names of folders of ``steptime/libraries``.
        name: the framework's, so that its copy is ``steptime/frameworks/NAME``; the folder's name by default.

    Returns:
        The path of ``job.json``.

    Raises OSError when the folder cannot be written.
    """
    package, target = folder / "steptime", PlainFolder(folder)
    copies = {
        package / "worker": _ROOT / "worker",
        package / "frameworks" / (name or framework_folder.name): framework_folder,
    }
    copies |= {package / "libraries" / name: _ROOT / "libraries" / name for name in libraries}
    files = {copy / name: original / name for copy, original in copies.items() for name in _code_of(original)}
    files[folder / "start.py"] = _ROOT / "worker" / "start.py"
    for parent in {parent for copy in copies for parent in (package, copy.parent, copy)}:
        if parent / "__init__.py" not in files:
            target.put(parent / "__init__.py", b"")
    for path, original in files.items():
        target.put(path, original.read_bytes(), original.stat().st_mode & 0o755)
    path = folder / "job.json"
    secret = {"secret": secrets.token_hex(_SECRET_BYTES)}  # by which the launch's processes know each other
    target.put(path, json.dumps({**job, **secret}, indent=1, sort_keys=True).encode(), mode=0o600)
    return path


def _code_of(folder: Path) -> Iterator[Path]:
    """Yield the files that a launch needs of a folder of code, relative to it."""
    for entry in entries_below(folder):
        path = Path(entry.path)
        if path.is_file() and path.suffix not in _NO_CODE and path.parent.name != "__pycache__":
            yield path.relative_to(folder)


def stderr_tails(folder: Path) -> dict[str, str]:
    """Return the last lines of every process's standard error, and of its launcher's output."""
    tails = {}
    for path in sorted([*folder.glob("*.err"), *folder.glob("*.launch")]):
        lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        if lines:
            tails[path.name] = "\n".join(lines)
    return tails
