"""The studies that were measured before names were settled, unpacked under today's names."""

import json
import tarfile
from functools import cache
from pathlib import Path

from renamed import FILES, rename

ARCHIVES = Path(__file__).parent.parent / "data" / "stored"
STUDIES = ["strong-scaling", "four-frameworks", "two-hosts", "stale-updates", "batches"]


@cache
def stored(study: str) -> dict[str, bytes]:
    """Return the files of an archive by their names in it."""
    with tarfile.open(ARCHIVES / f"{study}.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def unpacked(study: str, root: Path) -> Path:
    """Write the results folder of a stored study below ``root`` and return it."""
    for name, data in stored(study).items():
        if name.startswith("study/"):
            path = root / name
            path = path.with_name(FILES.get(path.name, path.name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(with_names_of_today(path, data))
    return root / "study"


def with_names_of_today(path: Path, data: bytes) -> bytes:
    """Return a file of a results folder with today's keys."""
    if path.suffix == ".jsonl":
        return "".join(json.dumps(rename(json.loads(line))) + "\n" for line in data.splitlines()).encode()
    return json.dumps(rename(json.loads(data))).encode() if path.suffix == ".json" else data
