"""The folder that brings this package into every Python process of a command, and the variables that point to it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PACKAGE = "steptime_attach"
ENTRY_POINTS = f"[torch.backends]\n{PACKAGE} = {PACKAGE}.imports:torch_entry\n"
METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE.replace('_', '-')}\nVersion: 1\n"


def write_hook(folder: Path) -> Path:
    """Copy the package into ``folder`` as an importable one of its own, and return the folder for PYTHONPATH.

    ``sitecustomize`` is run by every Python that starts; the entry point is called by torch, also without ``site``.
    """
    here = Path(__file__).parent
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    for source in here.rglob("*.py"):
        target = (folder if source.name == "sitecustomize.py" else package) / source.relative_to(here)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)
    distribution = folder / f"{PACKAGE}-1.dist-info"
    distribution.mkdir(exist_ok=True)
    (distribution / "METADATA").write_text(METADATA, encoding="utf-8")
    (distribution / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return folder


def environment(
    hook_folder: Path, records_folder: Path, *, lines: bool | None, flops: bool, ablate: bool = False
) -> dict[str, str]:
    """Return the variables that attach a command started with them.

    ``lines`` samples the user's lines always, never, or (None) where gaps exceed 10 % of the time of steps; ``flops``
    counts the floating-point operations of one step; ``ablate`` makes it a throw-away run, whose blocks of steps lack a
    part of the step.
    """
    paths = [str(hook_folder.resolve()), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "STEPTIME_ATTACH": str(records_folder.resolve()),
        "STEPTIME_ATTACH_LINES": {True: "on", False: "off", None: "auto"}[lines],
        "STEPTIME_ATTACH_FLOPS": "1" if flops else "",
        "STEPTIME_ATTACH_ABLATE": "1" if ablate else "",
    }
