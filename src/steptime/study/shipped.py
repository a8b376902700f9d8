"""The studies that come with steptime."""

from pathlib import Path

import steptime
from steptime.study.source import read_yaml

_FOLDER = Path(steptime.__file__).parent / "studies"


def study_files() -> dict[str, Path]:
    """Return the file of every shipped study, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.yaml"))}


def shipped_studies() -> dict[str, str]:
    """Return the question of every shipped study, by name."""
    return {
        name: str(read_yaml(path.read_text("utf-8"), path.name).data.get("question", ""))
        for name, path in study_files().items()
    }
