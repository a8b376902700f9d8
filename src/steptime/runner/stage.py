"""Make a run folder: everything that a launch needs, and nothing that it does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import steptime

_ROOT = Path(steptime.__file__).parent


def stage(folder: Path, framework_folder: Path, job: dict[str, Any]) -> Path:
    """Fill ``folder`` with ``start.py``, ``job.json``, the worker half and one framework's room; return ``job.json``.

    Raises OSError when the folder cannot be written.
    """
    package = folder / "steptime"
    room = package / "frameworks" / framework_folder.name
    ignore = shutil.ignore_patterns("__pycache__", "*.md", "*.toml", "*.txt")
    shutil.copytree(_ROOT / "worker", package / "worker", ignore=ignore, dirs_exist_ok=True)
    shutil.copytree(framework_folder, room, ignore=ignore, dirs_exist_ok=True)
    for parent in (package, package / "frameworks", room):
        (parent / "__init__.py").touch()
    shutil.copy(_ROOT / "worker" / "start.py", folder / "start.py")
    path = folder / "job.json"
    path.write_text(json.dumps(job, indent=1, sort_keys=True))
    return path
