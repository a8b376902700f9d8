"""The five studies in tests/data/stored: their archives, and results folders made of them with today's names."""

import json
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from renamed import FILES, rename
from typer.testing import CliRunner

from steptime.cli.app import app

ARCHIVES = Path(__file__).parent.parent / "data" / "stored"
STUDIES = ["strong-scaling", "four-frameworks", "two-hosts", "stale-updates", "batches"]
FITTED = ["four-frameworks", "two-hosts", "stale-updates", "batches"]
"""Those with breakdowns, from which a profile is fitted."""
PREDICTIONS = {
    "predict.json": ["--workers", "2,4,8,64"],
    "predict_links.json": ["--workers", "2,4,8", "interconnect.bandwidth=10Gbit/s,25Gbit/s", "cores_per_host=1"],
}
"""Arguments with which each stored file was made."""


@cache
def stored(study: str) -> dict[str, bytes]:
    """Return the files of an archive by their names in it."""
    with tarfile.open(ARCHIVES / f"{study}.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def unpacked(study: str, root: Path) -> Path:
    """Write a study's results folder and the profile fitted to it into ``root``; return the results folder."""
    write_results(study, root)
    if study in FITTED:
        (root / "study.profile.json").write_bytes(fitted(study))
    return root / "study"


@cache
def fitted(study: str) -> bytes:
    """Return the profile that is fitted to a study's results, made once in a process."""
    with TemporaryDirectory() as root:
        write_results(study, Path(root))
        output_of("fit", str(Path(root, "study")))
        return Path(root, "study.profile.json").read_bytes()


def write_results(study: str, root: Path) -> None:
    """Write a study's results folder into ``root``."""
    for name, data in stored(study).items():
        if name.startswith("study/"):
            path = root / name
            path = path.with_name(FILES.get(path.name, path.name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(with_names_of_today(path, data))


def with_names_of_today(path: Path, data: bytes) -> bytes:
    """Return a file of a results folder with today's keys."""
    if path.suffix == ".jsonl":
        return "".join(json.dumps(rename(json.loads(line))) + "\n" for line in data.splitlines()).encode()
    return json.dumps(rename(json.loads(data))).encode() if path.suffix == ".json" else data


def output_of(*arguments: str, columns: int | None = None) -> str:
    """Return what the program prints, on a terminal of ``columns`` or into a file; it must succeed."""
    environment = {"COLUMNS": None if columns is None else str(columns)}
    result = CliRunner().invoke(app, arguments, catch_exceptions=False, env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout
