"""Make a run folder: everything that a launch needs, and nothing that it does not."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import steptime

_ROOT = Path(steptime.__file__).parent


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
    package = folder / "steptime"
    copies = {
        package / "worker": _ROOT / "worker",
        package / "frameworks" / (name or framework_folder.name): framework_folder,
    }
    copies |= {package / "libraries" / name: _ROOT / "libraries" / name for name in libraries}
    ignore = shutil.ignore_patterns("__pycache__", "*.md", "*.toml", "*.txt")
    for copy, original in copies.items():
        shutil.copytree(original, copy, ignore=ignore, dirs_exist_ok=True)
        for parent in (package, copy.parent, copy):
            (parent / "__init__.py").touch()
    shutil.copy(_ROOT / "worker" / "start.py", folder / "start.py")
    path = folder / "job.json"
    path.write_text(json.dumps(dict(job), indent=1, sort_keys=True))
    return path
