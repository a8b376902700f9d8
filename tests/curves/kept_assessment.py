"""The model's scores on the published curves, kept with the hash of what made them: they take minutes to compute.

After a change of the model, write them anew with

    .venv/bin/python tests/curves/kept_assessment.py
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import steptime
from steptime.curves.table import read_curves
from steptime.scaling.assessment import assess

DATA = Path(__file__).parent / "data"
POINTS = DATA / "published-scaling.csv"
KEPT = DATA / "published-assessment.json"
SEEDS = 2
"""Scores are means over two seeds, since medians of single ones are up to 0.3 apart."""
_SOURCE = Path(steptime.__file__).parent
_MAKERS = ("curves", "model", "catalog/workloads")


def hash_makers() -> str:
    """Return the hash of the points and of every file of the packages that compute the scores."""
    files = [path for folder in _MAKERS for path in (_SOURCE / folder).rglob("*") if path.is_file()]
    files.append(_SOURCE / "scaling" / "assessment.py")
    kept = sorted(path for path in (*files, POINTS) if path.suffix in {".py", ".json", ".csv"})
    return hashlib.sha256(b"\0".join(hashlib.sha256(path.read_bytes()).digest() for path in kept)).hexdigest()


def read_assessment() -> dict[str, Any]:
    """Return the kept scores, or compute them where anything that makes them has changed since."""
    kept: dict[str, Any] = json.loads(KEPT.read_text())
    return kept["assessment"] if kept["made_by"] == hash_makers() else assess(read_curves(POINTS), SEEDS)


if __name__ == "__main__":
    made = {"made_by": hash_makers(), "assessment": assess(read_curves(POINTS), SEEDS)}
    KEPT.write_text(f"{json.dumps(made, indent=1)}\n")
